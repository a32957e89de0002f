"""A form with files on its way from a client to a provider, without ever being held whole.

It begins to pass once what the gate has to know has come: the fields before the first file, or all of a small form. For
a provider that wants it said anew, all of it is waited for, up to a bound.
A provider that reads slowly pauses the client. What has passed is gone: only a form that is still here whole can be
sent a second time.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from sluicegate.errors import BadRequest, SluicegateError, TooLarge
from sluicegate.server.exchange import Exchange
from sluicegate.wire.unary.multipart import MODEL, Form

WHOLE_BYTES = 2_097_152
"""A form that is told to have no more is held whole, like any other body: its fields may come in any order then, as
they do from SDKs that send them as their caller wrote them, and it can be sent again."""
HOLD_BYTES = 65_536
"""So much is held of a larger one while its provider is being connected."""


IDENTITY_BYTES = 49_152
"""So much of a form is here whenever it begins to pass, its boundaries left out: no more tells two forms apart."""


class BodyWriter(Protocol):
    """A provider's connection, as an upload needs it."""

    def write_more(self, data: bytes) -> None:
        """Send more of the request's body."""
        ...


class Upload:
    """One request's form: takes the client's bytes (`BodySink`), and gives them to a connection (`BodyFeeder`)."""

    __slots__ = (
        "_connection",
        "_error",
        "_exchange",
        "_held",
        "_held_bytes",
        "_holds_all",
        "_most_held",
        "_ready",
        "_stopped",
        "form",
        "on_failed",
        "on_grown",
        "passing",
    )

    def __init__(self, exchange: Exchange, boundary: bytes, most_held: int) -> None:
        """Begin to take a request's body.

        Args:
            most_held: bytes that a form may have before its `model` has come.
        """
        self.form = Form(boundary)
        self.passing = False
        """What comes goes to a provider, and is not kept."""
        self.on_failed: Callable[[SluicegateError], None] | None = None
        """Called when the rest of the form turns out to be wrong, or does not come."""
        self.on_grown: Callable[[int], None] | None = None
        """Of a form whose length nobody told: called with each piece that passes, with its size so far."""
        self._exchange = exchange
        self._most_held = most_held
        self._held: list[bytes | None] = []
        self._held_bytes = 0
        self._holds_all = False
        """Nothing of it passes: its provider wants it in another shape."""
        self._ready = asyncio.Event()
        self._error: SluicegateError | None = None
        self._connection: BodyWriter | None = None
        self._stopped = False

    async def wait_until_ready(self, read_first: frozenset[str]) -> None:
        """Wait until the fields that matter are known.

        Args:
            read_first: these are refused where they come later.
        Raises:
            SluicegateError: the form is wrong, too large, did not come in time, or its client left.
        """
        exchange = self._exchange
        if exchange.gone:
            self._ready.set()
        exchange.on_gone = self._ready.set
        await self._ready.wait()
        exchange.on_gone = None
        if exchange.gone:
            self._held = []
            raise BadRequest("The client left before its form had come.")
        if self._error is not None:
            raise self._error
        self.form.frozen = read_first

    async def hold_whole(self) -> None:
        """Wait until all of the form is here; nothing of it passes. A client that leaves ends the wait.

        Raises:
            SluicegateError: the form is wrong, larger than may be held, or did not come in time.
        """
        exchange = self._exchange
        if max(exchange.content_length, self._held_bytes) > self._most_held:
            raise self._too_large_to_hold()
        self._holds_all = True
        if not exchange.complete and not exchange.gone and self._error is None:
            self._ready.clear()
            exchange.on_gone = self._ready.set
            exchange.resume_body()
            await self._ready.wait()
            exchange.on_gone = None
        if self._error is not None:
            raise self._error

    @property
    def ready(self) -> bool:
        """Whether what has to be known has come, or never will."""
        return self._ready.is_set()

    @property
    def complete(self) -> bool:
        """Whether the whole form has come."""
        return self._exchange.complete

    def identity(self) -> tuple[bytes, bool]:
        """Return what tells this form from others, whatever its boundary, and whether nothing is missing.

        Of a large form it is the beginning and the length: the rest is not here.
        """
        model = self.form.fields.get(MODEL, [""])[0].encode()
        body = b"".join(model if part is None else part for part in self._held)
        body = body.replace(b"--" + self.form.boundary, b"--")
        if len(body) <= IDENTITY_BYTES:
            return body, True
        return body[:IDENTITY_BYTES] + b"\0%d" % self._exchange.content_length, False

    # ---- what the client's connection tells (BodySink) --------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body."""
        if self._stopped or self._error is not None:
            return
        try:
            self.form.feed(piece)
        except BadRequest as error:
            self.failed(error)
            return
        out, self.form.out = self.form.out, []
        if self._connection is not None:
            self._write(b"".join(part for part in out if part is not None))
            if self._exchange.chunked and self.on_grown is not None:
                self.on_grown(self._exchange.body_bytes)
            return
        self._held += out
        self._held_bytes += len(piece)
        if self._holds_all:
            if self._held_bytes > self._most_held:
                self.failed(self._too_large_to_hold())
        elif self._is_small():
            pass  # it is waited for
        elif self._may_pass():
            if self._held_bytes > HOLD_BYTES:
                self._ready.set()
                self._exchange.pause_body()
        elif self._held_bytes > self._most_held:
            self.failed(self._too_large())

    def completed(self) -> None:
        """Take the end of the body."""
        if self._stopped or self._error is not None:
            return
        try:
            self.form.finish()
        except BadRequest as error:
            self.failed(error)
            return
        self._ready.set()
        if self._connection is not None and self._exchange.chunked:
            self._connection.write_more(b"0\r\n\r\n")

    def failed(self, error: SluicegateError) -> None:
        """Take what is wrong with the body; nothing more of it is looked at."""
        self._error = error
        self._ready.set()
        if self.on_failed is not None:
            self.on_failed(error)

    # ---- what an attempt does (BodyFeeder) --------------------------------------------------------------------------

    def framing(self, model: str, first: bytes) -> bytes:
        """Return the header line that frames the body at a provider.

        Args:
            first: what `first_part` returned.
        """
        if self.complete:
            return b"content-length: %d\r\n" % len(first)
        if self._exchange.chunked:
            return b"transfer-encoding: chunked\r\n"
        changed = len(model.encode()) - len(self.form.fields[MODEL][0].encode())
        return b"content-length: %d\r\n" % (self._exchange.content_length + changed)

    def first_part(self, model: str) -> bytes:
        """Return what has come so far, with the provider's model in it; all of it where it is complete."""
        named = model.encode()
        body = b"".join(named if part is None else part for part in self._held)
        if MODEL in self.form.fields:
            return body
        delimiter, line_end, rest = body.partition(b"\r\n")
        part = b'Content-Disposition: form-data; name="model"\r\n\r\n%b\r\n' % named
        return b"".join((delimiter, line_end, part, delimiter, line_end, rest))

    def framed(self, first: bytes) -> bytes:
        """Return the first part as it is written."""
        return (
            b"%x\r\n%b\r\n" % (len(first), first) if self._exchange.chunked and not self.complete else first
        )

    def begin(self, connection: BodyWriter) -> None:
        """Let what comes after the first part, which was sent, go to this connection."""
        if self.complete:
            return
        self.passing = True
        self._connection = connection
        self._held = []
        self._exchange.release_body()
        self._exchange.resume_body()

    def stop(self) -> None:
        """Let nothing more pass: the attempt has ended."""
        if self.passing:
            self._stopped = True
            self._connection = None

    def pause(self) -> None:
        """Stop the client: the provider reads too slowly."""
        self._exchange.pause_body()

    def resume(self) -> None:
        """Let the client go on."""
        self._exchange.resume_body()

    def _is_small(self) -> bool:
        return 0 < self._exchange.content_length <= min(WHOLE_BYTES, self._most_held)

    def _may_pass(self) -> bool:
        """Whether all has come that has to be known before the rest goes to a provider."""
        return MODEL in self.form.fields and self.form.in_file

    def _too_large(self) -> TooLarge:
        return TooLarge("A form as large as this must name its 'model' before its files.")

    def _too_large_to_hold(self) -> TooLarge:
        return TooLarge(
            f"The model's provider takes files inside of JSON, so that a form of at most {self._most_held} bytes may "
            "be sent."
        )

    def _write(self, data: bytes) -> None:
        if data and self._connection is not None:
            self._connection.write_more(self.framed(data))
