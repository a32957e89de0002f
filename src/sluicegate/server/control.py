"""How supervisor and workers are connected: framing, and one end of a connection.

Each worker process has one socket to the supervisor, inherited when it starts. A frame is four bytes of length (big
endian) and one msgpack map tagged by its type (`control_messages`). The same framing serves `control.sock`
(`control_socket`). The worker's end is `supervisor_link`'s.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

from sluicegate.errors import DecodeError, MessageUnsent
from sluicegate.server.control_messages import FromWorker
from sluicegate.server.telemetry import MESSAGE_UNSENT, log

MAX_FRAME_BYTES = 256 * 1024 * 1024
"""Bounds what the supervisor sends: settings, or all keys."""
MAX_WORKER_FRAME_BYTES = 64 * 1024 * 1024
"""Bounds what a worker sends; an answer to be kept, with its input, is the largest."""

BEAT_S = 1.0
"""How often each end says that it lives."""
SILENCE_S = 5.0
"""A peer that has said nothing for so long is taken for stuck."""
ANSWER_S = 1.0
"""The longest that a request waits for the supervisor before it is admitted."""

_encoder = msgspec.msgpack.Encoder()
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def encode_frame(message: Any, max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """Return a message as a frame.

    Raises:
        MessageUnsent: msgpack cannot say it (a whole number beyond 64 bits, half of a character), or the other end
            would refuse its size.
    """
    try:
        body = _encoder.encode(message)
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise MessageUnsent(f"{type(message).__name__} cannot be encoded: {error}") from error
    if len(body) > max_bytes:
        raise MessageUnsent(f"{type(message).__name__} would take {len(body)} bytes, more than {max_bytes}")
    return len(body).to_bytes(4, "big") + body


class FrameSplitter:
    """Cuts a byte stream into the bodies of its frames."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bodies that are whole now.

        Raises:
            DecodeError: a frame says that it is longer than allowed.
        """
        self._rest += data
        bodies = []
        start, end = 0, len(self._rest)
        while end - start >= 4:
            size = int.from_bytes(self._rest[start : start + 4], "big")
            if size > self._max_bytes:
                raise DecodeError("control", start, f"a frame of {size} bytes")
            if end - start - 4 < size:
                break
            bodies.append(bytes(self._rest[start + 4 : start + 4 + size]))
            start += 4 + size
        del self._rest[:start]
        return bodies


Message = TypeVar("Message")


class Channel(asyncio.Protocol, Generic[Message]):
    """One end of a control connection: messages out, decoded messages in.

    `on_lost` is called once: with None when the peer closed, with the error when it sent what is no message
    of ours (the connection is closed then).
    """

    def __init__(
        self,
        decode: Callable[[bytes], Message],
        max_frame_bytes: int,
        on_message: Callable[[Message], None],
        on_lost: Callable[[DecodeError | None], None],
        max_sent_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        """Make an end.

        Args:
            max_frame_bytes: bounds what comes.
            max_sent_bytes: bounds what leaves, as the peer bounds what comes to it.
        """
        self._decode = decode
        self._splitter = FrameSplitter(max_frame_bytes)
        self._max_sent_bytes = max_sent_bytes
        self._on_message = on_message
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._error: DecodeError | None = None

    def send(self, message: Any) -> None:
        """Send a message; silently nothing once the connection is gone, which `on_lost` tells.

        Raises:
            MessageUnsent: it cannot be encoded. The log has it, and the connection is as it was.
        """
        if self._transport is not None and not self._transport.is_closing():
            try:
                self._transport.write(encode_frame(message, self._max_sent_bytes))
            except MessageUnsent as error:
                log(MESSAGE_UNSENT, error=error)
                raise

    def send_frame(self, frame: bytes) -> None:
        """Send what `encode_frame` made."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    @property
    def is_open(self) -> bool:
        """Whether the peer may still hear us."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Close after what was sent has left."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods, not by its class
        # The peer reads or is killed within seconds, so what waits to be written needs no bound here.
        transport.set_write_buffer_limits(high=MAX_FRAME_BYTES)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._splitter.feed(data):
                message = self._decode(body)
                with contextlib.suppress(MessageUnsent):  # logged; what came after it is no worse for it
                    self._on_message(message)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(DecodeError("control", None, str(error)))
        except DecodeError as error:
            self._refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost(self._error)

    def _refuse(self, error: DecodeError) -> None:
        self._error = self._error or error
        if self._transport is not None:
            self._transport.abort()


async def open_supervisor_end(
    sock: socket.socket,
    on_message: Callable[[FromWorker], None],
    on_lost: Callable[[DecodeError | None], None],
) -> "Channel[FromWorker]":
    """Take the supervisor's end of a worker's socket into the running loop."""
    return await open_end(sock, Channel(_from_worker.decode, MAX_WORKER_FRAME_BYTES, on_message, on_lost))


async def open_end(sock: socket.socket, channel: Channel[Message]) -> Channel[Message]:
    """Take one end of a worker's socket into the running loop."""
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: channel, sock=sock)
    return channel
