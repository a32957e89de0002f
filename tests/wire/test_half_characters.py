"""C1: halves of characters that nothing joins: what waits is bounded, whatever a provider numbers its choices."""

from sluicegate.wire.half_characters import HalfCharacters


def torn(index: int) -> bytes:
    return rb'{"choices":[{"index":%d,"delta":{"content":"\ud83d"}}]}' % index


def test_no_more_events_wait_than_a_request_has_choices() -> None:
    halves = HalfCharacters()
    left = [whole for index in range(1000) for whole in halves.mend(torn(index))]
    held = halves.give_up()
    assert len(left) + len(held) == 1000
    assert len(held) <= 128
    assert [b"\\ufffd" in event for event in left] == [True] * len(left)
    assert not halves.waits


def test_each_choice_gets_its_own_other_half() -> None:
    halves = HalfCharacters()
    assert not halves.mend(torn(0))
    assert not halves.mend(torn(1))
    rest = rb'{"choices":[{"index":%d,"delta":{"content":"\ude00!"}}]}'
    for index in (0, 1):
        whole = halves.mend(rest % index)
        assert whole[-1] == rb'{"choices":[{"index":%d,"delta":{"content":"\ud83d\ude00!"}}]}' % index
    assert not halves.waits
