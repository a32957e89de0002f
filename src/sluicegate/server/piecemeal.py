"""Reads in small pieces, for connections by which large files pass.

A connection takes what its socket has in one read, up to a quarter of a megabyte, and what the other side cannot take
waits in a buffer. That is quickest for what is small, and for a hundred files at once megabytes of buffers. So a
connection that begins to carry one reads into a small buffer that all share, until the file has passed.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

PIECE_BYTES = 32_768
"""The most that is read at once."""
HIGH_WATER_BYTES, LOW_WATER_BYTES = 1, 0
"""A connection that carries a file pauses the one that the file comes by as soon as it has any bytes unsent. Not at 0:
under TLS that many are as good as more."""
_piece = memoryview(bytearray(PIECE_BYTES))
"""Each read is fed to its end before the loop does anything else, so one buffer is enough for all."""


class Connection(Protocol):
    """What a connection is told by its transport, but for what is read."""

    def eof_received(self) -> bool | None:
        """Take the peer's end."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the connection's."""
        ...

    def pause_writing(self) -> None:
        """Write no more for now."""
        ...

    def resume_writing(self) -> None:
        """Go on writing."""
        ...


class Piecemeal(asyncio.BufferedProtocol):
    """Stands before a connection, as long as a file comes by it."""

    __slots__ = ("_connection", "_take")

    def __init__(self, connection: Connection, take: Callable[[bytes], None]) -> None:
        """Args: take: given each piece."""
        self._connection = connection
        self._take = take

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next read goes."""
        return _piece

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was read."""
        self._take(bytes(_piece[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
