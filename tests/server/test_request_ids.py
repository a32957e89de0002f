"""Ids of requests: they tell when a request began and who has it, and no two are the same."""

import time

from sluicegate.server.request_ids import RequestIds, read_request_id


def test_an_id_tells_when_and_whose_and_is_never_the_same() -> None:
    ids = RequestIds(0x2A)
    before = time.time()
    made = [ids.new() for _ in range(1000)]
    after = time.time()
    assert len(set(made)) == len({id_[15:39] for id_ in made}) == 1000
    for id_ in made:
        read = read_request_id(id_)
        assert read is not None
        assert before - 0.001 <= read[0] <= after
        assert read[1] == 0x2A
    assert [id_[:15] for id_ in made] == sorted(id_[:15] for id_ in made)
