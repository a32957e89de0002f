"""Calls one after another, and everything else in the order in which it came."""

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.messages import StreamEvent, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from sluicegate.wire.serial_calls import SerialCalls


def told(events: list[StreamEvent]) -> list[StreamEvent]:
    serial = SerialCalls()
    return [event for each in events for event in serial.take(each)] + serial.close()


def test_what_waits_behind_two_calls_keeps_its_order() -> None:
    first, second = ToolCallStart(1, "call_1", "f"), ToolCallStart(0, "call_0", "f")
    events = [first, second, TextDelta("1"), ToolCallEnd(0), TextDelta("0")]
    assert told(events) == [first, second, ToolCallEnd(0), TextDelta("1"), TextDelta("0")]


def calls_and_texts() -> st.SearchStrategy[list[StreamEvent]]:
    """Events of up to four calls and of numbered texts, in any order in which calls begin before they go on."""
    steps = st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=16)

    def events(taken: list[int | None]) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        for place, index in enumerate(taken):
            begun = sum(1 for before in taken[:place] if before == index)
            if index is None:
                out.append(TextDelta(f"{place} "))
            elif begun == 0:
                out.append(ToolCallStart(index, f"call_{index}", "f"))
            else:
                out.append(ToolCallDelta(index, "{}") if begun == 1 else ToolCallEnd(index))
        return out

    return steps.map(events)


@given(calls_and_texts())
def test_texts_and_the_beginnings_of_calls_are_told_once_and_in_order(events: list[StreamEvent]) -> None:
    # What a call says after its end is left out, and so may be its arguments; nothing else may be, nor change places.
    kept = [event for event in events if isinstance(event, TextDelta | ToolCallStart)]
    out = told(events)
    assert [event for event in out if isinstance(event, TextDelta | ToolCallStart)] == kept
    open_call = None
    for event in out:
        if isinstance(event, ToolCallStart):
            open_call = event.index
        elif isinstance(event, ToolCallDelta | ToolCallEnd):
            assert event.index == open_call
