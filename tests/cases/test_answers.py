"""What providers say oddly, and what every client must hear of it: the faults that users of such systems reported.

Each case is played whole, byte by byte and at random cuts, streamed and not, to a client of every format that can meet
it: so on the same format, where bytes pass and are repaired, and across formats, where they are translated. Every
stream goes through the grammar checkers.
"""

import json

import pytest

from tests.cases.broken import BROKEN
from tests.cases.called import CALLED
from tests.cases.case import Case
from tests.cases.counted import COUNTS
from tests.cases.ended import ENDED
from tests.cases.framed import FRAMED
from tests.cases.world import Cut, Outcome, World
from tests.grid.speaking import wording
from tests.grid.test_grid import cost_of, counts

pytestmark = pytest.mark.asyncio(loop_scope="module")

CELLS = [
    pytest.param(case, client, id=f"{case.name}-to-{client}")
    for case in (*FRAMED, *ENDED, *CALLED, *COUNTS, *BROKEN)
    for client in case.heard_by()
]


@pytest.mark.parametrize(("case", "client"), CELLS)
async def test_answer(world: World, case: Case, client: str) -> None:
    cuts: tuple[Cut, ...] = ("random",)
    if client == case.provider and case.bytewise:
        cuts = ("whole", "random", "bytes")
    for cut in cuts:
        played = f"{case.name}-{client}-{cut}"
        body, then = case.body, case.then
        if case.fails is not None and case.text and not then:
            end = body.rindex(b"\n\n") + 2
            body, then = body[:end], body[end:]
        world.plays(played, body, cut, case.how, then=then, pause=bool(case.fails and case.text))
        check(case, client, await world.hear(client, f"{case.provider}/{played}", case.prompt, stream=True))
    if not case.streamed_only:
        played = f"{case.name}-{client}-plain"
        if case.plain is None:
            stream = (("content-type", "text/event-stream"),)
            world.plays(played, case.body + case.then, "whole", case.how, headers=stream)
        else:
            body = case.plain if isinstance(case.plain, bytes) else json.dumps(case.plain).encode()
            world.plays(played, body, "whole")
        outcome = await world.hear(client, f"{case.provider}/{played}", case.prompt, stream=False)
        check(case, client, outcome, stream=False)


def check(case: Case, client: str, outcome: Outcome, *, stream: bool = True) -> None:
    """Compare what was heard and booked with what the case says."""
    row, heard = outcome.row, outcome.heard
    assert row is not None, f"no row of {outcome.response.status}: {outcome.response.body[:300]!r}"
    if case.fails is not None:
        assert outcome.told is not None, f"a false end: {heard}"
        status, word = wording(client, case.fails)
        inside = heard is not None
        assert inside == (stream and bool(case.text or case.reasoning or case.calls))
        assert outcome.told.word == word
        assert inside or outcome.told.status == status
        assert row.status == "upstream_error"
        if heard is not None:
            assert heard.text == case.text
        else:
            assert row.cost_nano_usd == 0
        return
    assert outcome.told is None, f"it failed: {outcome.told}"
    assert heard is not None
    both = {client, case.provider}
    text, refusal = (
        (case.text, case.refusal) if both <= {"chat", "responses"} else (case.text + case.refusal, "")
    )
    assert (heard.text, heard.reasoning, heard.refusal) == (text, case.reasoning, refusal)
    assert [(call.name, json.loads(call.arguments)) for call in heard.calls] == [
        (name, json.loads(arguments)) for name, arguments in case.calls
    ]
    ids = [call.id for call in heard.calls if call.id or both != {"gemini"}]  # where ids are optional
    assert len(set(ids)) == len(ids), "two calls with one id"
    assert heard.finish == case.finish
    assert row.status == "ok"
    assert row.cost_nano_usd == cost_of(row.usage) == heard.cost_nano_usd
    if case.usage is not None:
        assert counts(row.usage) == counts(case.usage)
        assert row.usage_source == "reported"
        assert heard.usage is not None
        told = counts(heard.usage)
        if client == "gemini":  # it has no word for cache writes
            told["cache_write_tokens"] = counts(case.usage)["cache_write_tokens"]
        assert told == counts(case.usage)
    else:
        assert row.usage_source == "counted"
        assert row.usage.output_tokens
    for name, value in case.row.items():
        assert getattr(row, name) == value
