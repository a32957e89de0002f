"""Stop sequences for providers that know none: found at any cut of the text, told once, and nothing behind them."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import (
    End,
    Finish,
    ReasoningDelta,
    Start,
    StreamEvent,
    TextDelta,
    ToolCallStart,
    Usage,
    UsageReport,
)
from sluicegate.wire.openai_responses import CODEC
from sluicegate.wire.stop_cutting import StopCutter, cut_answer
from sluicegate.wire.translation import StreamDecoder
from tests.profiles import examples
from tests.wire.openai_responses_world import Script, by_event, message

WHERE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}


def stream(*pieces: str) -> bytes:
    """Return a provider's stream of a text."""
    script = Script().add("output_item.added", output_index=0, item=message(status="in_progress"))
    for piece in pieces:
        script.add("output_text.delta", **WHERE, delta=piece, logprobs=[])
    return script.end(message("".join(pieces)))


def decoder(count_text: Callable[[str], None]) -> StreamDecoder:
    """Begin to read a provider's stream."""
    return CODEC.stream_decoder(Capabilities(), count_text)


def text_of(events: list[StreamEvent]) -> str:
    """Return the text that events tell."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_b101_an_answer_is_cut_where_a_stop_sequence_stands() -> None:
    cutter = StopCutter(decoder, ["END", "\n\n"], len)
    told: list[StreamEvent] = []
    for event in by_event(stream("One E", "N", "D two", " three")):
        told += cutter.feed(event)
    assert text_of(told) == "One "
    assert told[-2:] == [Finish("stop_sequence", stop_sequence="END"), End()]
    assert cutter.finish() == []
    assert cutter.upstream_id == "resp_1"
    assert not cutter.repaired


def test_what_only_looked_like_one_is_told_after_all() -> None:
    cutter = StopCutter(decoder, ["END"], len)
    told = cutter.feed(stream("the E", "N", "d EN"))
    assert text_of(told) == "the ENd EN"
    assert told[-2] == Finish("stop", raw_reason="completed")


def test_a_cut_by_the_provider_stays_one() -> None:
    cutter = StopCutter(decoder, ["END"], len)
    cutter.feed(b"".join(by_event(stream("the E"))[:-1]))
    with pytest.raises(DecodeError):
        cutter.finish()


def test_b3_what_is_counted_is_what_was_told_until_the_answer_is_cut() -> None:
    counted: list[str] = []
    cutter = StopCutter(decoder, ["END"], counted.append)
    events = by_event(stream("the ", "E", "N", "d E", "ND of", " it"))
    told = ""
    for event in events:
        told += text_of(cutter.feed(event))
        assert "".join(counted) == told or told == "the ENd "
    assert told == "the ENd "
    assert "".join(counted) == "the ENd END of"  # what was produced, as far as it was read
    counted.clear()
    broken = StopCutter(decoder, ["END"], counted.append)
    told = text_of(broken.feed(b"".join(by_event(stream("the E", "N"))[:-1])))
    with pytest.raises(DecodeError):
        broken.finish()
    assert broken.left() == []
    assert told == "".join(counted) == "the "


def test_what_waits_leaves_before_anything_else_is_told() -> None:
    usage = UsageReport(Usage(input_tokens=1, output_tokens=2))
    events = [Start(), TextDelta("aE"), ReasoningDelta("r"), TextDelta("ND"), usage, Finish("stop"), End()]
    assert cut_answer(events, ["END"]) == [
        Start(),
        TextDelta("a"),
        TextDelta("E"),
        ReasoningDelta("r"),
        TextDelta("ND"),
        usage,
        Finish("stop"),
        End(),
    ]
    called = [TextDelta("xEND"), ToolCallStart(0, "c", "f"), usage, Finish("tool_calls"), End()]
    assert cut_answer(called, ["END"]) == [
        TextDelta("x"),
        usage,
        Finish("stop_sequence", stop_sequence="END"),
        End(),
    ]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.text("abE", max_size=5), max_size=6),
    st.lists(st.text("abE", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_cuts_of_the_text_do_not_matter(pieces: list[str], stop: list[str]) -> None:
    text = "".join(pieces)
    places = [text.find(sequence) for sequence in stop if sequence in text]
    told = cut_answer([*map(TextDelta, pieces), Finish("stop"), End()], stop)
    finish = next(event for event in told if isinstance(event, Finish))
    if not places:
        assert (text_of(told), finish.reason) == (text, "stop")
        return
    # A match that ends first is seen first, also where a longer one begins before it.
    assert finish.stop_sequence in stop
    assert text.startswith(text_of(told) + (finish.stop_sequence or ""))
    assert not any(sequence in text_of(told) for sequence in stop)
