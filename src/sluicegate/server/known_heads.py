"""Heads that came before: a client's library sends the same one with each request, but for the body's length.

What was read of a head that comes a second time is kept, with what the application concluded from it, and used for all
that follow. It stands under a keyed hash of the head's bytes; neither those nor the credentials in it stay in memory.
A connection remembers the one that came last on it, by a hash that is cheaper: it has to tell that head from the next
alone.
"""

import os
import re
from hashlib import blake2b
from typing import Final

from mypy_extensions import i64

from sluicegate.server.http_head import RequestHead

MAX_KNOWN = 512
MAX_KNOWN_BYTES: Final = 4096
"""Longer heads are read each time."""
MAX_LENGTH_DIGITS = 15

_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,%d})\r\n" % MAX_LENGTH_DIGITS)
_CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key", b"cookie"))


class LastHead:
    """The known head that came last on a connection."""

    __slots__ = ("_after", "_before", "_mark", "_mark_after", "known", "times_cleared")

    def __init__(self, known: RequestHead, data: bytes, before: int, after: int, times_cleared: int) -> None:
        """Args:
        before: bytes before the body's length.
        after: bytes after it.
        """
        self.known = known
        self._before = before
        self._after = after
        self._mark = hash(data[:before])
        self._mark_after = hash(data[len(data) - after :])
        self.times_cleared = times_cleared

    def length_in(self, data: bytes) -> int:
        """Return the body's length if it is all that differs in a head; else -1.

        64 bits each are enough: whoever would pass for another has to guess them, on a connection that both share.
        """
        before, end = self._before, len(data) - self._after
        if not before < end <= before + MAX_LENGTH_DIGITS:
            return -1
        length: i64 = 0
        for at in range(before, end):
            digit: i64 = data[at] - 0x30
            if digit < 0 or digit > 9:
                return -1
            length = 10 * length + digit
        if hash(data[:before]) != self._mark or hash(data[end:]) != self._mark_after:
            return -1
        return length


class KnownHeads:
    """What one worker remembers of heads, bounded: when it is full it forgets all."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._known: dict[bytes, RequestHead | None] = {}
        """None: it came once."""
        self._times_cleared = 0

    def read(self, head: RequestHead, data: bytes, last: LastHead | None = None) -> LastHead | None:
        """Read one whole head, its empty line included, into `head`.

        Args:
            last: what the call for the connection's last head returned.
        Raises:
            ClientError: as `RequestHead.parse`.
        """
        if last is not None and last.times_cleared == self._times_cleared:
            content_length = last.length_in(data)
            if content_length >= 0:
                head.be_like(last.known, content_length)
                return last
        length = _LENGTH.search(data)
        if length is None or len(data) > MAX_KNOWN_BYTES:
            head.parse(data)
            return None
        # A second length would be part of what is hashed, and a head with two is never kept.
        start, end = length.span(1)
        mark = blake2b(data[:start] + data[end:], digest_size=16, key=self._secret).digest()
        known = self._known.get(mark)
        if known is not None and known.memo.key_hashes:  # else its credentials have to be looked at again
            head.be_like(known, int(data[start:end]))
            return LastHead(known, data, start, len(data) - end, self._times_cleared)
        head.parse(data)
        self._note(mark, head)
        return None

    def clear(self) -> None:
        """Forget all, and so what the application concluded."""
        self._known.clear()
        self._times_cleared += 1

    def _note(self, mark: bytes, head: RequestHead) -> None:
        if mark not in self._known:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[mark] = None
            return
        if "key=" in head.query or head.idempotency_key is not None or head.expects_continue:
            return
        known = RequestHead()
        known.be_like(head, 0)
        known.headers = [
            (name, b"" if name in _CREDENTIALS else value) for name, value in head.headers
        ]  # which of them came tells how a client wants to be answered
        self._known[mark] = known
