"""The last piece of a stream that breaks off, where it came without its blank line, with half a character, or waits as
the beginning of a stop sequence: what is counted has been told, and what was not told is said and charged once, by who
goes on. Contract B1, B3, E3; cases B060 and B133.
"""

import pytest

from sluicegate.billing.tokens import count_tokens
from sluicegate.messages import Format
from sluicegate.simulator import Answer
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.simulator.script import AnyStep, Close, Play, Reset, Script, Send, Wait
from tests.grid.asked import was_asked
from tests.grid.scenes import FORMATS, QUESTION, TEXT
from tests.grid.speaking import heard_stream
from tests.taken_over.world import (
    COST,
    INPUT,
    INPUT_NANO,
    OUTPUT_NANO,
    SAID,
    WHOLE,
    World,
    events_until,
    model_of,
    rest,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDS: dict[str, tuple[AnyStep, ...]] = {"ended": (), "closed": (Close(),), "cut": (Wait(s=0.02), Reset())}
PIECES = ("without its blank line", "with half a character", "both")
ANSWER = Answer(text=TEXT, input_tokens=INPUT)


def torn(format: Format, piece: str, end: str) -> Script:
    """Return a provider's part whose last piece is not as it should be."""
    last = events_until(format, ANSWER, SAID) - 1
    data = DIALECTS[format].stream(ANSWER, Ask("m"))[last].data
    if piece != "without its blank line":
        word = TEXT[SAID - 1].encode()
        assert data.count(word + b'"') == 1
        data = data.replace(word + b'"', word + rb'\ud83d"')
    if piece != "with half a character":
        data = data.rstrip(b"\r\n")
    return Script(answer=ANSWER, steps=(Play(stop=last), Send(data=data), Wait(s=0.02), *ENDS[end]))


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize(
    ("client", "first", "end"),
    [
        (client, first, ("ended", "closed", "cut")[(row + column) % 3])
        for row, client in enumerate(FORMATS)
        for column, first in enumerate(FORMATS)
    ],
)
async def test_E3_what_came_last_is_told_and_charged_once(
    world: World, client: Format, first: Format, end: str, piece: str
) -> None:
    second: Format = "completions" if client == "completions" else "messages"
    world.first.push(torn(first, piece, end))
    world.second.push(rest())
    model = model_of(first, second)
    response = await world.ask(client, model)
    assert response.complete
    heard = heard_stream(client, response, model)
    assert (heard.text, heard.finish) == (WHOLE, "stop")
    row = world.row()
    assert (row.status, row.usage.input_tokens, row.usage.output_tokens) == ("ok", INPUT, len(TEXT))
    assert row.cost_nano_usd == heard.cost_nano_usd == COST
    assert world.costs() == [(1, f"first-{first}", "continued")]
    beginning = "".join(TEXT[:SAID])
    if second == "completions":
        assert world.asked().json["prompt"] == QUESTION + beginning
    else:
        assert was_asked(world.asked()).turns[-1].value == beginning


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize(("client", "first"), [(client, first) for client in FORMATS for first in FORMATS])
async def test_E3_where_nobody_goes_on_it_is_told_and_charged(
    world: World, client: Format, first: Format, piece: str
) -> None:
    world.first.push(torn(first, piece, "ended"))
    model = model_of(first, "responses")  # which cannot go on with anything
    heard = heard_stream(client, await world.ask(client, model), model, fails=True)
    assert heard.text == "".join(TEXT[:SAID])
    assert heard.error
    row = world.row()
    assert (row.status, row.usage.output_tokens) == ("upstream_error", SAID)


@pytest.mark.parametrize("first", ["responses", "gemini"])
async def test_what_waits_as_a_stop_sequence_is_said_again_and_charged_once(
    world: World, first: Format
) -> None:
    text = ("Water", " finds", "EN")
    answer = Answer(text=(*text, " never"), input_tokens=INPUT, usage="never")
    until = events_until(first, answer, len(text))
    stop = [*(f"never{n}" for n in range(5)), "END"]  # one more than Gemini takes
    for said, whole in (
        (("EN", "D", " of", " it"), "Water finds"),
        (("EN", "TRY", " of", " it"), "Water findsENTRY of it"),
    ):
        world.first.push(Script(answer=answer, steps=(Play(stop=until), Wait(s=0.02))))
        world.second.push(Script(answer=Answer(text=said, input_tokens=INPUT + 2, usage="never")))
        model = model_of(first, "messages")
        heard = heard_stream("chat", await world.ask("chat", model, stop=stop), model)
        assert heard.text == whole
        assert was_asked(world.asked()).turns[-1].value == "Water finds"
        row = world.row()
        assert row.usage_source == "counted"
        read = "END" if whole == "Water finds" else "ENTRY of it"
        assert row.usage.output_tokens == count_tokens("Water finds") + count_tokens(read)
        assert row.usage.input_tokens is not None
        cost = row.usage.input_tokens * INPUT_NANO + row.usage.output_tokens * OUTPUT_NANO
        assert row.cost_nano_usd == heard.cost_nano_usd == cost
