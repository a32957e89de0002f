"""One request of a client and its answer, as the application has them.

What the answer is, the application decides; an exchange frames it and writes it to its connection, counts the body that
it holds, and says when the client leaves or reads too slowly. Reading requests is `client_connection`'s.

Source: RFC 9112 (6 message body, 9.3 persistence).
"""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from sluicegate.errors import InternalError, SluicegateError
from sluicegate.server.http_head import Header, HeadMemo, RequestHead

if TYPE_CHECKING:
    from sluicegate.server.client_connection import InboundConnection

HIGH_WATER_BYTES: Final = 65_536
"""Unsent bytes of an answer above which its writer is told to pause."""

_CLOSE: Final = b"connection: close\r\n"
_NO_HEADERS: list[Header] = []
_NO_MEMO = HeadMemo()
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Runner(Protocol):
    """Runs a request: a task, or whoever does it without one."""

    def cancel(self) -> object:
        """Stop it: the client is told, where no answer has begun."""
        ...


class Mover(Protocol):
    """Moves an answer to the client as it comes, and is told what becomes of the client."""

    def client_left(self) -> None:
        """The client has left before the answer has ended. Called once."""
        ...

    def pause(self) -> None:
        """The client reads too slowly: the write buffer is above its high mark."""
        ...

    def resume(self) -> None:
        """It reads again."""
        ...


class HeldEnd(Protocol):
    """Takes the end of an answer that has to wait for something."""

    answer: tuple[int, bytes, bytes] | None
    """Status, header lines and body of a whole answer."""
    last: bytes | None
    """The last piece of a streamed one."""


class BodySink(Protocol):
    """What takes a request's body while it comes, instead of having it whole at its end."""

    @property
    def passing(self) -> bool:
        """Whether pieces go on at once, and do not stay in memory."""
        ...

    @property
    def ready(self) -> bool:
        """Whether enough has come to serve the request."""
        ...

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body."""
        ...

    def completed(self) -> None:
        """Take the end of the body."""
        ...

    def failed(self, error: SluicegateError) -> None:
        """Take what is wrong with the body, and answer it; nothing more of it comes."""
        ...


class Exchange(RequestHead):
    """One request on a client's connection, and its answer.

    The answer is either `respond`, or `start`, any number of `write`, then `end` or `cut` or `abort`. Once
    the client has gone all of them do nothing.
    """

    __slots__ = (
        "_connection",
        "_open",
        "_sized",
        "_transport",
        "answered",
        "body",
        "body_bytes",
        "body_sink",
        "caller",
        "closing",
        "complete",
        "ended",
        "gone",
        "held_bytes",
        "held_end",
        "max_body_bytes",
        "mover",
        "on_gone",
        "received_at",
        "request_id",
        "route",
        "runner",
        "settling",
        "write_timed_out",
    )

    caller: object
    """Whatever the application learned of who is calling while it looked at the head; None at first."""
    route: object
    """Likewise, of what is asked for."""
    request_id: str
    """By which the application calls the request; empty until it does."""
    body: bytes
    """Whole, once `complete`; empty after `release_body`."""
    body_bytes: int
    """What has come of a body that goes to `body_sink`."""
    held_bytes: int
    """Of the body, in memory and counted as in flight."""
    body_sink: BodySink | None
    """Set in `head_received`: `handle` is called at once then, and the body goes there as it comes."""
    complete: bool
    """The body has arrived."""
    received_at: float
    """Loop time of the head's first byte."""
    max_body_bytes: int
    """The application may set another limit in `head_received`."""
    closing: bool
    """The connection closes after this answer."""
    answered: bool
    """A byte of the answer is out: its status is fixed."""
    ended: bool
    """The answer is whole, or was given up."""
    gone: bool
    """The client left, or the connection was aborted."""
    held_end: HeldEnd | None
    """Takes the answer's end in our place, where it has to wait for something."""
    runner: "Runner | None"
    """Who runs the request, where that is no task."""
    settling: bool
    """The answer is whole, and leaves when its settlement is written: in this turn of the loop, or the next."""
    write_timed_out: bool
    """The client was dropped because it did not read."""
    on_gone: Callable[[], None] | None
    """Called once, when the client leaves before the answer has ended and nobody moves it."""
    mover: "Mover | None"
    """Who moves the answer from a provider to the client, and is told of the client."""

    def __init__(self, connection: "InboundConnection", received_at: float, max_body_bytes: int) -> None:
        self._connection = connection
        self._transport = connection.transport
        self._open = self._sized = False
        self.held_bytes = 0
        self.body = b""
        self.body_bytes = 0
        self.body_sink = None
        self.complete = False
        self.received_at = received_at
        self.request_id = ""
        self.max_body_bytes = max_body_bytes
        self.closing = True
        self.answered = self.ended = self.gone = self.settling = self.write_timed_out = False
        self.caller = self.route = self.runner = self.held_end = None
        self.on_gone = self.mover = None

    @property
    def paused(self) -> bool:
        """Whether the write buffer is above its marks now."""
        return self._connection.write_paused

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """Send the whole answer in one write.

        Args:
            headers: ready lines, each with its CRLF; length and connection are added here.
        """
        if self.held_end is not None:
            self.held_end.answer = (status, headers, body)
            return
        if self.answered:
            raise AssertionError("a request is answered once")
        self.answered = True
        if self.gone:
            return
        if not self.complete:
            self.closing = True
        line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        length = b"" if status in (204, 304) else b"content-length: %d\r\n" % len(body)
        head = b"%b%b%b%b\r\n" % (line, headers, length, _CLOSE if self.closing else b"")
        if self.method == "HEAD" or not length:
            self._transport.write(head)
        elif len(body) > HIGH_WATER_BYTES:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head + body)
        self._end_answer()

    def start(self, status: int, headers: bytes, first: bytes = b"") -> None:
        """Send the head of a streamed answer, and its first piece in the same write.

        Chunked; to an HTTP/1.0 client unframed, ended by closing the connection.
        """
        self._begin_answer()
        if self.gone:
            return
        if not self.complete:
            self.closing = True
        line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        connection = _CLOSE if self.closing else b""
        if self.http10:
            piece = b"" if self.method == "HEAD" else first
            self._transport.write(b"%b%b%b\r\n%b" % (line, headers, connection, piece))
            return
        self._open = self.method != "HEAD"
        piece = b"%x\r\n%b\r\n" % (len(first), first) if first and self._open else b""
        self._transport.write(
            b"%b%b%btransfer-encoding: chunked\r\n\r\n%b" % (line, headers, connection, piece)
        )

    def start_sized(self, status: int, headers: bytes, size: int) -> None:
        """Send the head of a streamed answer whose size is known: it is not chunked, and has to have that many bytes.

        An answer that is given up before them does not look complete.
        """
        self._begin_answer()
        if self.gone:
            return
        if not self.complete:
            self.closing = True
        line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        connection = _CLOSE if self.closing else b""
        self._sized = True
        self._transport.write(b"%b%b%bcontent-length: %d\r\n\r\n" % (line, headers, connection, size))

    def write(self, data: bytes) -> None:
        """Send one piece of a streamed answer."""
        if self._open and data:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        elif data:
            self._write_unframed(data)

    def _write_unframed(self, data: bytes) -> None:
        if self.gone:
            return
        if not self.answered or self.ended:
            raise AssertionError("write outside a streamed answer")
        if (self.http10 or self._sized) and self.method != "HEAD":
            self._transport.write(data)

    def end(self, last: bytes = b"") -> None:
        """Send the last piece of a streamed answer and its end in one write."""
        if self.held_end is not None:
            self.held_end.last = last
            return
        if self._open:
            if last:
                self._transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))
            else:
                self._transport.write(b"0\r\n\r\n")
        elif last:
            self._write_unframed(last)
        if not self.ended:
            self._end_answer()

    def cut(self) -> None:
        """Break an answer off: what was written reaches the client, and does not look complete."""
        if self.gone or self.ended:
            return
        self.ended = True
        self._let_go()
        self._connection.break_off(reset=self.http10)

    def abort(self) -> None:
        """Reset the connection at once: what was written may be lost, and does not look complete."""
        if self.gone or self.ended:
            return
        self._mark_gone()
        self.ended = True
        self._connection.reset()

    def write_piecemeal(self) -> None:
        """Have the writer of a large answer pause sooner."""
        if not self.gone and not self.ended:
            self._connection.write_piecemeal()

    def pause_body(self) -> None:
        """Take no more of a body that is on its way."""
        if not self.gone and not self.ended and not self.complete:
            self._connection.pause_body()

    def resume_body(self) -> None:
        """Go on taking a body."""
        if not self.gone and not self.ended and not self.complete:
            self._connection.resume_body()

    def release_body(self) -> None:
        """Let the request's body go: it counts as in flight until then."""
        self.body = b""
        if self.held_bytes:
            self._connection.server.inflight_bytes -= self.held_bytes
            self.held_bytes = 0

    def forget_head(self) -> None:
        """Let go what the head said beyond the request line: an answer may run for long, and many of them."""
        self.headers = _NO_HEADERS
        self.memo = _NO_MEMO
        self.route = None

    def hold(self, size: int) -> None:
        """Count bytes of the body that have arrived."""
        self.held_bytes += size
        self._connection.server.inflight_bytes += size

    def refuse(self, error: SluicegateError) -> None:
        """Answer with an error where nothing is out yet; where an answer has begun, break it off."""
        self._connection.fail(self, error)

    def give_up(self) -> None:
        """Let no request of an application that failed hang: 500, or a broken answer where one had begun."""
        self._connection.fail(self, InternalError("the gate failed to handle this request"))

    def served(self) -> None:
        """Say that who runs the request is done with it, and has answered."""
        self._connection.server.served(self)

    def go_on(self, serving: Coroutine[Any, Any, None]) -> None:
        """Have the request served by a task from here on."""
        self.runner = None
        self._connection.server.go_on(self, serving)

    def lose_client(self) -> None:
        """Note that the client has gone, and say so once if the answer had not ended."""
        if self.gone or self.ended:
            return
        on_gone, mover = self.on_gone, self.mover
        self._mark_gone()
        if mover is not None:
            mover.client_left()
        elif on_gone is not None:
            on_gone()

    def _mark_gone(self) -> None:
        self.gone = True
        self._let_go()

    def _let_go(self) -> None:
        """Drop what the answer needed: the body, and callbacks that refer back to whoever writes it."""
        self._open = False
        self.on_gone = self.mover = None
        self.release_body()

    def _begin_answer(self) -> None:
        if self.answered:
            raise AssertionError("a request is answered once")
        self.answered = True

    def _end_answer(self) -> None:
        self.ended = True
        self._let_go()
        if not self.gone:
            self._connection.answer_ended(self)
