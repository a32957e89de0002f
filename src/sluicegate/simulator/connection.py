"""One connection of the simulator: requests in by httptools, answers out by a player, one after another.

Leaves to `server.py` what to play. It is lenient on purpose: what a gate sends is judged by tests, not
refused here.
"""

import asyncio
import socket
import struct
import time
from collections import deque
from typing import Protocol, cast
from urllib.parse import unquote

import httptools

from sluicegate.simulator.player import Player
from sluicegate.simulator.record import Received
from sluicegate.simulator.script import Script

LINGER_RESET = struct.pack("ii", 1, 0)


class Host(Protocol):
    """What a connection asks of the simulator."""

    def connected(self, connection: "Connection") -> Script | None:
        """Take in a new connection; return a script that begins at once."""
        ...

    def headed(self, record: Received) -> Script | None:
        """Hear of a request's head; return a script that begins before the body."""
        ...

    def player(self, connection: "Connection", record: Received, script: Script | None) -> Player | None:
        """Return what plays the answer; None where the host answered by itself."""
        ...

    def disconnected(self, connection: "Connection") -> None:
        """Forget a connection."""
        ...

    def new_record(self, connection: int) -> Received: ...

    def keep_open(self, answers: int) -> bool:
        """Say whether a connection goes on after so many answers."""
        ...

    idle_close_s: float


class Connection(asyncio.Protocol):
    """One peer."""

    def __init__(self, host: Host, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        self.paused = False
        self.open = False
        self._host = host
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._record: Received | None = None
        self._url = b""
        self._body: list[bytes] = []
        self._waiting: deque[tuple[Received, Script | None]] = deque()
        self._player: Player | None = None
        self._playing: Received | None = None
        self._answers = 0
        self._idle: asyncio.TimerHandle | None = None
        self._read_bytes_per_s = 0
        self._script_at_head: Script | None = None
        self._ours = False
        """The connection ends by our own doing."""

    # the peer's bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's
        self._transport = cast(asyncio.Transport, transport)
        self.open = True
        script = self._host.connected(self)
        if script is not None:
            if script.read_bytes_per_s:
                self._read_slowly(script.read_bytes_per_s)
            else:
                self._start(self._host.new_record(self.number), script)
        self._watch_idle()

    def data_received(self, data: bytes) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._read_bytes_per_s and self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_later(len(data) / self._read_bytes_per_s, self._read_on)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as error:
            self._refuse(str(error))

    def eof_received(self) -> bool:
        self._peer_left()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._peer_left()
        if self._idle is not None:
            self._idle.cancel()
        self._host.disconnected(self)
        self._transport = None

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self._player is not None:
            self._player.wake()

    # httptools' callbacks

    def on_message_begin(self) -> None:
        self._record = self._host.new_record(self.number)
        self._url = b""
        self._body = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._record is not None:
            self._record.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        record = self._record
        if record is None:
            return
        record.at = time.monotonic()
        record.method = self._parser.get_method().decode("latin-1")
        path, _, record.query = self._url.decode("latin-1").partition("?")
        record.path = unquote(path)
        if record.header("expect") == "100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        script = self._host.headed(record)
        self._script_at_head = script
        if script is not None:
            if script.read_bytes_per_s:
                self._read_slowly(script.read_bytes_per_s)
            elif self._player is None:
                self._start(record, script)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        record = self._record
        if record is None:
            return
        record.body = b"".join(self._body)
        record.body_at = time.monotonic()
        script, self._script_at_head = self._script_at_head, None
        self._record, self._body = None, []
        if script is not None and not script.read_bytes_per_s:
            return
        if self._player is None:
            self._start(record, script)
        else:
            self._waiting.append((record, script))

    # what players and the host do

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def reset(self) -> None:
        """End the connection with RST."""
        self._ours = True
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            self._transport.abort()

    def close(self) -> None:
        """End the connection with FIN, after what was written."""
        self._ours = True
        if self._transport is not None:
            self._transport.close()

    def played(self, complete: bool) -> None:
        """Go on with the next request, or close."""
        self._player = None
        self._answers += 1
        if not complete or not self._host.keep_open(self._answers):
            self.close()
        elif self._waiting:
            self._loop.call_soon(self._next)
        else:
            self._watch_idle()

    def _next(self) -> None:
        if self._player is None and self._waiting:
            self._start(*self._waiting.popleft())

    def _start(self, record: Received, script: Script | None) -> None:
        self._playing = record
        player = self._host.player(self, record, script)
        if player is None:
            return
        self._player = player
        player.resume()

    def _peer_left(self) -> None:
        record = self._playing
        if record is not None and record.peer_left_at is None and not self._ours:
            record.peer_left_at = time.monotonic()
        player, self._player = self._player, None
        if player is not None:
            player.leave()

    def _watch_idle(self) -> None:
        if self._host.idle_close_s:
            self._idle = self._loop.call_later(self._host.idle_close_s, self.close)

    def _read_slowly(self, bytes_per_s: int) -> None:
        self._read_bytes_per_s = bytes_per_s
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _refuse(self, why: str) -> None:
        record = self._record or self._host.new_record(self.number)
        record.script = f"refused: {why}"
        body = why.encode()
        head = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.write(head + body)
        self.close()
