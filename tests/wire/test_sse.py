"""Event framing: WHATWG HTML 9.2.6 at any cut, limits, and work that is linear in the bytes."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import DecodeError
from sluicegate.wire.sse import Event, EventReader, frame
from tests.wire.passing import one_byte, random_cuts

BOM = b"\xef\xbb\xbf"


def read(pieces: list[bytes], *, finish: bool = True, limit: int = 1 << 24) -> list[Event]:
    reader = EventReader(limit)
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + (reader.finish() if finish else [])


def payloads(data: bytes, *, finish: bool = True) -> list[bytes]:
    """Read at several cuts, which must not matter, and return the data of the events."""
    whole = read([data], finish=finish)
    assert read(list(one_byte(data)), finish=finish) == whole
    for seed in range(5):
        assert read(random_cuts(data, seed), finish=finish) == whole
    return [event.data for event in whole]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_line_ends_B074(end: bytes) -> None:
    data = b"data: {A}" + end * 2 + b"data: [DONE]" + end * 2
    assert payloads(data, finish=False) == [b"{A}", b"[DONE]"]


def test_line_ends_may_change_in_one_stream() -> None:
    assert payloads(b"data: 1\r\n\rdata: 2\n\r\ndata: 3\r\r", finish=False) == [b"1", b"2", b"3"]


def test_a_carriage_return_that_ends_a_read_is_not_a_blank_line_with_its_line_feed() -> None:
    reader = EventReader()
    assert reader.feed(b"data: 1\r") == []
    assert reader.feed(b"") == []
    assert reader.feed(b"\n") == []
    assert reader.feed(b"data: 2\r\n\r\n") == [Event(b"", b"1\n2")]


def test_fields() -> None:
    assert payloads(b"data:{A}\n\ndata:  {B}\n\n") == [b"{A}", b" {B}"]
    assert payloads(b"id: 1\nretry: 5\nunknown: x\ndata: {A}\nnocolon\n\n") == [b"{A}"]
    assert payloads(b"data\ndata: {A}\n\n") == [b"\n{A}"]
    assert payloads(b" data: {A}\n\nDATA: {B}\n\n") == []


def test_names() -> None:
    stream = b"event: a\ndata: 1\n\ndata: 2\n\nevent:b\ndata: 3\nevent: c\n\nevent: d\nevent\ndata: 4\n\nevent: e\n\n"
    expected = [(b"a", b"1"), (b"", b"2"), (b"c", b"3"), (b"", b"4")]
    assert read([stream]) == read(list(one_byte(stream))) == expected


def test_comments_neither_end_nor_begin_an_event_B026() -> None:
    comment = b": PROCESSING\n\n"
    data = comment * 2 + b"data: 1\n: ping - 2\ndata: 2\n:\n\n" + comment + b":\n\ndata: 3\n\n"
    assert payloads(data) == [b"1\n2", b"3"]


def test_several_data_lines_B033() -> None:
    data = (
        b'event: message_delta\ndata: {"type":"message_delta",\ndata: "delta":{"stop_reason":"end_turn"}}\n\n'
    )
    assert read([data]) == [
        (b"message_delta", b'{"type":"message_delta",\n"delta":{"stop_reason":"end_turn"}}')
    ]
    payloads(data)


def test_mark_at_the_start_alone_is_dropped_B053() -> None:
    text = '{"a":"\ufeff"}'.encode()
    assert payloads(BOM + b"data: " + text + b"\n\n" + b"data: 2\n\n") == [text, b"2"]
    assert payloads(BOM + BOM + b"data: 1\n\ndata: 2\n\n") == [b"2"]
    assert payloads(BOM[:2]) == payloads(BOM) == []


@pytest.mark.parametrize("last", [b"", b"\n", b"\r", b"\r\n"])
def test_last_event_without_a_blank_line_is_left_to_its_format_B027(last: bytes) -> None:
    assert payloads(b"data: 1\n\ndata: {}" + last) == [b"1", b"{}"]
    assert payloads(b"data: 1\n\ndata: {}" + last, finish=False) == [b"1"]


def test_keep_alive_wrapped_as_data_is_dropped_B085() -> None:
    assert payloads(b"data: : keepalive\n\ndata:\n\ndata:   \n\ndata: 1\n\n") == [b"1"]


def test_end_marker_with_white_space_B110() -> None:
    for data in (b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [DONE] \r\n\r\n"):
        assert [payload.strip() for payload in payloads(data)] == [b"[DONE]"]


def test_strings_may_hold_other_line_separators() -> None:
    text = '{"a":"\u2028\u2029\u0085\x0b\x0c\x1c"}'.encode()
    assert payloads(b"data: " + text + b"\n\n") == [text]


def test_four_megabytes_in_one_line_B014() -> None:
    line = b"data: " + b"x" * (4 << 20)
    data = line + b"\n\n"
    pieces = [data[at : at + 16_384] for at in range(0, len(data), 16_384)]
    assert read(pieces) == [(b"", line[6:])]


def test_reading_is_linear_B014() -> None:
    def cost(size: int) -> float:
        piece = b"x" * 16_384
        best = 9.0
        for _ in range(3):
            reader = EventReader()
            reader.feed(b"data: ")
            start = time.process_time()
            for _ in range(size // 16_384):
                reader.feed(piece)
            reader.feed(b"\n\n")
            best = min(best, time.process_time() - start)
        return best

    small, large = cost(1 << 20), cost(8 << 20)
    # Eight times the bytes: about eight times the work; quadratic work would be sixty-four times.
    assert large < 30 * small + 0.02


@pytest.mark.parametrize("piece", [1, 7, 1000, 5000])
@pytest.mark.parametrize(
    "line", [b"data: " + b"x" * 3000, b"data: 12345678\n" * 300, b"y" * 3000, b": c\n" * 1000]
)
def test_endless_events_end_at_the_limit_B087(line: bytes, piece: int) -> None:
    with pytest.raises(DecodeError, match="longer than 2000 bytes"):
        read([line[at : at + piece] for at in range(0, len(line), piece)], limit=2000)


def test_the_limit_does_not_depend_on_cuts() -> None:
    for size in (90, 91, 92, 93, 94, 95, 96):
        event = frame(b"{" + b"x" * size + b"}")
        outcomes = set()
        for pieces in ([event], list(one_byte(event)), [event[:50], event[50:]], [event * 1]):
            try:
                outcomes.add(len(read(pieces, limit=100)))
            except DecodeError:
                outcomes.add(-1)
        assert len(outcomes) == 1, size


def test_limit_is_for_each_event() -> None:
    assert len(read([frame(b"{}" + b" " * 80) * 100], limit=100)) == 100


def test_clean_says_whether_an_event_is_open() -> None:
    reader = EventReader()
    assert not reader.clean
    seen = []
    for piece in (b"data: 1", b"\n", b"\n", b": c\n", b"\n", b"data: 2\r\n\r", b"\n"):
        reader.feed(piece)
        seen.append(reader.clean)
    assert seen == [False, False, True, False, True, False, True]


def test_frame_is_read_back() -> None:
    assert payloads(frame(b'{"a":1}') + frame(b"[DONE]")) == [b'{"a":1}', b"[DONE]"]


pieces_of_streams = st.sampled_from(
    [b"data: {A}", b"data:", b"data: ", b"\n", b"\r", b"\r\n", b"\n\n", b": c", b"event: x", b"data", b"event",
     b'data: {"a":1}\n\n', b"data: {", b"}\n\n", b"x", BOM, b"\xef", b"", b"id: 1", b"[DONE]"]
)  # fmt: skip
streams = st.one_of(st.binary(max_size=60), st.lists(pieces_of_streams, max_size=25).map(b"".join))


@given(streams, st.lists(st.integers(0, 400), max_size=12), st.integers(3, 60))
def test_cuts_never_change_events(data: bytes, cuts: list[int], limit: int) -> None:
    def outcome(pieces: list[bytes]) -> tuple[list[Event], bool]:
        reader = EventReader(limit)
        events: list[Event] = []
        try:
            for piece in pieces:
                events += reader.feed(piece)
            return events + reader.finish(), True
        except DecodeError:
            return [], False

    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert outcome(pieces) == outcome([data]) == outcome(list(one_byte(data)))


@given(streams)
def test_events_agree_with_a_plain_reading_of_the_standard(data: bytes) -> None:
    assert read([data], finish=False) == list(by_the_standard(data))


def by_the_standard(data: bytes) -> list[Event]:
    """Read a stream as the standard words it, whole, without thought for speed."""
    text = data.removeprefix(BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = text.split(b"\n")[:-1]
    events: list[Event] = []
    name, buffer = b"", []
    for line in lines:
        if not line:
            joined = b"\n".join(buffer)
            if joined.strip() and not joined.strip().startswith(b":"):
                events.append(Event(name, joined))
            name, buffer = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            buffer.append(value)
        elif field == b"event":
            name = value
    return events
