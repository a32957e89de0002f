"""Plays one script on one connection: when which bytes leave, and how it ends.

`Player` is a generator driven by the pacer: it yields the time at which it wants to go on, `SOON` for the
next turn of the loop, or None to sleep until the socket takes bytes again. A healthy answer takes a short
path that does per event only what it must: put the id in, write, count.
"""

import time
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, Protocol

from sluicegate.messages import Format
from sluicegate.simulator.answer import ID, STAMP, Answer
from sluicegate.simulator.formats import DIALECTS, Ask, Fault
from sluicegate.simulator.pace import Pacer
from sluicegate.simulator.prepared import Prepared, chunk, prepared
from sluicegate.simulator.record import Received
from sluicegate.simulator.script import (
    AnyStep,
    Close,
    CutAt,
    Cuts,
    Done,
    Drip,
    EndlessLine,
    Error,
    Event,
    Flood,
    Head,
    How,
    Huge,
    Informational,
    Play,
    Raw,
    Reset,
    Script,
    Send,
    Stall,
    Wait,
)

SOON = 0.0
WHOLE = Play()
FLOOD_BYTES = 1 << 16
READING_TURNS = 10
"""Turns of the loop that a wait goes on for when its time is up: where the loop was held up for longer, a peer in the
same loop has yet to read what was sent before."""
_ID = ID.encode()
_STAMP = STAMP.encode()
REASONS = {
    100: "Continue",
    102: "Processing",
    103: "Early Hints",
    200: "OK",
    301: "Moved Permanently",
    302: "Found",
    307: "Temporary Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    529: "Overloaded",
}


class Wire(Protocol):
    """What a player needs of its connection."""

    paused: bool
    """The socket takes no more bytes for now."""

    def write(self, data: bytes) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...

    def played(self, complete: bool) -> None:
        """Hear that the script is over; `complete`: the connection can carry another answer."""
        ...


class _Stopped(Exception):
    """The script ended the connection or will never end."""


class Player:
    """One script being played."""

    __slots__ = (
        "_ask",
        "_body_bytes",
        "_cut_at",
        "_cut_how",
        "_cuts",
        "_cuts_every",
        "_cuts_gap_s",
        "_drip",
        "_drip_every_s",
        "_first_token_s",
        "_format",
        "_framing",
        "_gzip",
        "_head",
        "_headed",
        "_id",
        "_interval_s",
        "_pacer",
        "_parked",
        "_prepared",
        "_record",
        "_script",
        "_shaped",
        "_steps",
        "_wire",
    )

    def __init__(
        self,
        wire: Wire,
        pacer: Pacer,
        record: Received,
        script: Script,
        answer: Answer,
        ask: Ask,
        first_token_s: float,
        interval_s: float,
    ) -> None:
        self._wire = wire
        self._pacer = pacer
        self._record = record
        self._script = script
        self._format: Format = record.format or "chat"
        self._ask = ask
        self._prepared: Prepared = prepared(self._format, answer, ask)
        self._first_token_s = script.first_token_s if script.first_token_s is not None else first_token_s
        self._interval_s = script.interval_s if script.interval_s is not None else interval_s
        self._id = b"%012d" % record.number
        self._headed = False
        self._parked = False
        self._body_bytes = 0
        self._shaped = script.gzip
        self._gzip = zlib.compressobj(wbits=31) if script.gzip else None
        self._drip = 0
        self._drip_every_s = 0.0
        self._cuts: tuple[int, ...] = ()
        self._cuts_every = 0
        self._cuts_gap_s = 0.0
        self._cut_at: int | None = None
        self._cut_how: How = "reset"
        whole = self._whole_body()
        self._framing = script.framing or self._usual_framing(whole)
        self._head = self._make_head(whole)
        self._steps: Iterator[float | None] | None = self._run(whole)

    def resume(self) -> None:
        """Go on until the next wait."""
        steps = self._steps
        if steps is None:
            return
        try:
            due = next(steps)
        except StopIteration:
            self._end(complete=True)
        except _Stopped:
            self._end(complete=False)
        else:
            if due is None:
                self._parked = True
            elif due == SOON:
                self._pacer.soon(self)
            else:
                self._pacer.at(due, self)

    def wake(self) -> None:
        """Go on if we slept until the socket takes bytes again."""
        if self._parked:
            self._parked = False
            self.resume()

    def leave(self) -> None:
        """Stop: the peer has gone."""
        self._steps = None
        if self._record.ended is None:
            self._record.ended = "peer_left"
            self._record.ended_at = time.monotonic()

    def _end(self, complete: bool) -> None:
        if self._steps is None:
            return
        self._steps = None
        if self._record.ended is None:
            self._record.ended = "complete" if complete else "cut"
            self._record.ended_at = time.monotonic()
        closing = self._framing == "close" or self._script.close or self._script.hang_up
        self._wire.played(complete and not closing)

    # what is sent

    def _whole_body(self) -> bytes | None:
        """Return the body of a script that is not played in steps, or None."""
        script = self._script
        if script.steps:
            return None
        if script.body is not None:
            return script.body.encode()
        if script.status >= 400:
            message = script.message or f"Simulated failure with status {script.status}."
            return DIALECTS[self._format].error_body(Fault(script.status, message))
        if not self._prepared.stream:
            return b"".join(piece.data for piece in self._prepared.pieces).replace(_ID, self._id)
        return None

    def _usual_framing(self, whole: bytes | None) -> Literal["chunked", "length", "close"]:
        if self._script.content_length is not None:
            return "length"
        if whole is not None and not self._script.gzip:
            return "length"
        return "close" if self._script.http10 else "chunked"

    def _make_head(self, whole: bytes | None) -> bytes:
        script = self._script
        stream = self._ask.stream and whole is None
        ours = {"content-type": "text/event-stream; charset=utf-8" if stream else "application/json"}
        if self._ask.array and stream:
            ours["content-type"] = "application/json; charset=UTF-8"
        if self._format == "messages":
            ours["request-id"] = "req_" + self._id.decode()
        elif self._format != "gemini":
            ours["x-request-id"] = "req_" + self._id.decode()
        if stream:
            ours["cache-control"] = "no-cache"
        if script.gzip:
            ours["content-encoding"] = "gzip"
        if script.content_length is not None:
            ours["content-length"] = str(script.content_length)
        elif self._framing == "length":
            ours["content-length"] = str(self._prepared.length if whole is None else len(whole))
        if self._framing == "chunked":
            ours["transfer-encoding"] = "chunked"
        if script.close or (self._framing == "close" and not script.http10):
            ours["connection"] = "close"
        given = {name.lower() for name, _ in script.headers}
        lines = [f"{name}: {value}\r\n" for name, value in ours.items() if name not in given]
        lines += [f"{name}: {value}\r\n" for name, value in script.headers if value]
        reason = REASONS.get(script.status, "Status") if script.reason is None else script.reason
        version = "1.0" if script.http10 else "1.1"
        return f"HTTP/{version} {script.status} {reason}\r\n{''.join(lines)}\r\n".encode("latin-1")

    def _run(self, whole: bytes | None) -> Iterator[float | None]:
        script = self._script
        if whole is not None:
            if self._first_token_s:
                yield self._started() + self._first_token_s
            yield from self._send(whole)
            if self._record.answer is not None:
                self._record.events_sent = 1
                self._record.weight_sent = sum(piece.weight for piece in self._prepared.pieces)
        elif not script.steps:
            yield from self._play(WHOLE, last=True)
            return
        for step in script.steps:
            yield from self._do(step)
        yield from self._end_body()

    def _do(self, step: AnyStep) -> Iterator[float | None]:
        match step:
            case Play():
                yield from self._play(step)
            case Send():
                yield from self._send(step.text.encode() + step.data)
            case Event():
                name = b"" if step.event is None else b"event: " + step.event.encode() + b"\n"
                yield from self._send(name + b"data: " + step.data.encode() + b"\n\n")
            case Raw():
                self._wire.write(step.text.encode("latin-1") + step.data)
            case Error():
                yield from self._error(step)
            case Done():
                yield from self._send(self._prepared.pieces[-1].data)
            case Huge():
                yield from self._send(self._content("x" * step.bytes))
            case Wait():
                yield time.monotonic() + step.s
                for _ in range(READING_TURNS):
                    yield SOON
            case Head():
                yield from self._send_head(step)
            case Informational():
                yield from self._informational(step)
            case EndlessLine() | Flood():
                yield from self._flood(step)
            case Stall():
                yield from self._stop("stall")
            case Reset():
                yield from self._stop("reset")
            case Close():
                yield from self._stop("close")
            case Drip() | Cuts() | CutAt():
                self._shape(step)

    def _started(self) -> float:
        return self._record.body_at or self._record.at

    def _play(self, play: Play, last: bool = False) -> Iterator[float | None]:
        """Send beats at their times; with `last` the body's end leaves with the last one."""
        record, wire, interval_s = self._record, self._wire, self._interval_s
        beats = self._prepared.beats(play)
        due = time.monotonic()
        if not record.events_sent:
            due = max(self._started() + self._first_token_s, due)
            if self._first_token_s:
                yield due
        if self._shaped or self._framing == "length":
            yield from self._play_shaped(play, due)
            if last:
                yield from self._end_body()
            return
        chunked = self._framing == "chunked"
        end = len(beats) - 1 if last and chunked else -1
        stamped = self._prepared.stamped
        gathered = b""
        for index, beat in enumerate(beats):
            data = (beat.chunked if chunked else beat.data).replace(_ID, self._id)
            if stamped:
                data = data.replace(_STAMP, b"%019d" % time.monotonic_ns())
            if not self._headed:
                self._headed = True
                data = self._head + data
            if record.first_event_at is None:
                record.first_event_at = time.monotonic()
            if index == end:
                data += b"0\r\n\r\n"
            record.events_sent += beat.events
            record.weight_sent += beat.weight
            self._body_bytes += len(beat.data)
            if interval_s:
                wire.write(data)
                if index < len(beats) - 1:
                    due += interval_s
                    yield due
            else:
                gathered += data
                if len(gathered) > FLOOD_BYTES:
                    wire.write(gathered)
                    gathered = b""
            while wire.paused:
                yield None
        if gathered:
            wire.write(gathered)
        record.body_bytes_sent = self._body_bytes
        if play.plus_bytes:
            yield from self._send_rest(play)
        if last and not (chunked and beats):
            yield from self._end_body()

    def _play_shaped(self, play: Play, due: float) -> Iterator[float | None]:
        """Send events one by one, through everything that bends the body."""
        record = self._record
        for piece in self._prepared.select(play):
            if piece.kind == "content" and record.events_sent and self._interval_s:
                due += self._interval_s
                yield due
            yield from self._send(piece.data)
            record.events_sent += 1
            record.weight_sent += piece.weight
        if play.plus_bytes:
            yield from self._send_rest(play)

    def _send_rest(self, play: Play) -> Iterator[float | None]:
        """Send the beginning of the event that a step stopped before."""
        following = self._prepared.last(play)
        if following < len(self._prepared.pieces):
            event = self._prepared.pieces[following].data.replace(_ID, self._id)
            yield from self._send(event[: play.plus_bytes])

    def _content(self, text: str) -> bytes:
        """Return one content event of the request's format."""
        answer = Answer(text=(text,))
        pieces = DIALECTS[self._format].stream(answer, self._ask)
        return b"".join(piece.data for piece in pieces if piece.kind == "content")

    def _error(self, step: Error) -> Iterator[float | None]:
        dialect = DIALECTS[self._format]
        fault = Fault(step.status, step.message, step.type, step.code)
        yield from self._send(dialect.error_event(fault) if self._ask.stream else dialect.error_body(fault))

    def _flood(self, step: EndlessLine | Flood) -> Iterator[float | None]:
        if isinstance(step, Flood):
            event = self._content(" flood").replace(_ID, self._id)
            batch = max(FLOOD_BYTES // len(event), 1)
            left = step.events
            unit = len(event)
        else:
            event, batch, left, unit = b"x", FLOOD_BYTES, step.bytes, 1
            yield from self._send(b"data: ")
        while left is None or left > 0:
            count = batch if left is None else min(batch, left)
            yield from self._send(event * count)
            if left is not None:
                left -= count
            if unit > 1:
                self._record.events_sent += count
                self._record.weight_sent += count
            yield SOON

    # how it is sent

    def _shape(self, step: Drip | Cuts | CutAt) -> None:
        self._shaped = True
        match step:
            case Drip():
                self._drip, self._drip_every_s = step.bytes, step.every_s
            case Cuts():
                self._cuts, self._cuts_every, self._cuts_gap_s = step.at, step.every, step.gap_s
            case CutAt():
                self._cut_at, self._cut_how = step.bytes, step.how

    def _send(self, data: bytes) -> Iterator[float | None]:
        """Send body bytes: cut, split, compressed, framed and dripped as the script says."""
        data = data.replace(_ID, self._id)
        if _STAMP in data:
            data = data.replace(_STAMP, b"%019d" % time.monotonic_ns())
        if self._record.first_event_at is None:
            self._record.first_event_at = time.monotonic()
        cut = self._cut_at is not None and self._body_bytes + len(data) >= self._cut_at
        if cut and self._cut_at is not None:
            data = data[: max(self._cut_at - self._body_bytes, 0)]
        for index, part in enumerate(self._split(data)):
            if index:
                yield time.monotonic() + self._cuts_gap_s if self._cuts_gap_s else SOON
            self._body_bytes += len(part)
            self._record.body_bytes_sent = self._body_bytes
            if self._gzip is not None:
                part = self._gzip.compress(part) + self._gzip.flush(zlib.Z_SYNC_FLUSH)
            yield from self._put(chunk(part) if self._framing == "chunked" and part else part)
        if cut:
            yield from self._stop(self._cut_how)

    def _split(self, data: bytes) -> list[bytes]:
        start = self._body_bytes
        offsets = {at - start for at in self._cuts if start < at < start + len(data)}
        if self._cuts_every:
            first = self._cuts_every - start % self._cuts_every
            offsets.update(range(first, len(data), self._cuts_every))
        marks = [0, *sorted(offsets), len(data)]
        return [data[left:right] for left, right in pairwise(marks)]

    def _put(self, data: bytes) -> Iterator[float | None]:
        """Write bytes to the socket, the head before them if it has not left."""
        if not self._headed:
            self._headed = True
            data = self._head + data
        if not self._drip:
            self._wire.write(data)
        else:
            for offset in range(0, len(data), self._drip):
                self._wire.write(data[offset : offset + self._drip])
                yield time.monotonic() + self._drip_every_s if self._drip_every_s else SOON
        while self._wire.paused:
            yield None

    def _send_head(self, step: Head) -> Iterator[float | None]:
        self._headed = True
        head = self._head[: step.stop]
        size = step.drip or len(head)
        for offset in range(0, len(head), size):
            if offset:
                yield time.monotonic() + step.every_s
            self._wire.write(head[offset : offset + size])

    def _informational(self, step: Informational) -> Iterator[float | None]:
        head = f"HTTP/1.1 {step.status} {REASONS.get(step.status, 'Status')}\r\nx-sim: 1\r\n\r\n".encode()
        batch = 1 if step.every_s else FLOOD_BYTES // len(head)
        for index in range(0, step.count, batch):
            if index and step.every_s:
                yield time.monotonic() + step.every_s
            self._wire.write(head * min(batch, step.count - index))
            while self._wire.paused:
                yield None

    def _stop(self, how: How) -> Iterator[float | None]:
        match how:
            case "end":
                yield from self._end_body()
                self._end(complete=True)
                raise _Stopped
            case "stall":
                while True:
                    yield None
            case "reset":
                self._wire.reset()
            case "close":
                self._wire.close()
        raise _Stopped

    def _end_body(self) -> Iterator[float | None]:
        tail = self._gzip.flush() if self._gzip is not None else b""
        if self._framing == "chunked":
            yield from self._put((chunk(tail) if tail else b"") + b"0\r\n\r\n")
        elif tail or not self._headed:
            yield from self._put(tail)
