"""Heads that came before: a client's library sends the same one with each request, but for the body's length.

What was read of a head that comes a second time is kept, with what the application concluded from it, and used for all
that follow. It stands under a keyed hash of the head's bytes; neither those nor the credentials in it stay in memory.
"""

import os
import re
from hashlib import blake2b

from sluicegate.server.http_head import RequestHead

MAX_KNOWN = 512
MAX_KNOWN_BYTES = 4096
"""Longer heads are read each time."""

_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,15})\r\n")
_CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key", b"cookie"))


class KnownHeads:
    """What one worker remembers of heads, bounded: when it is full it forgets all."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._known: dict[bytes, RequestHead | None] = {}
        """None: it came once."""

    def read(self, head: RequestHead, data: bytes) -> None:
        """Read one whole head, its empty line included, into `head`.

        Raises:
            ClientError: as `RequestHead.parse`.
        """
        length = _LENGTH.search(data)
        if length is None or len(data) > MAX_KNOWN_BYTES:
            head.parse(data)
            return
        # A second length would be part of what is hashed, and a head with two is never kept.
        start, end = length.span(1)
        mark = blake2b(data[:start] + data[end:], digest_size=16, key=self._secret).digest()
        known = self._known.get(mark)
        if known is not None and known.memo.key_hashes:  # else its credentials have to be looked at again
            head.be_like(known, int(data[start:end]))
            return
        head.parse(data)
        self._note(mark, head)

    def clear(self) -> None:
        """Forget all, and so what the application concluded."""
        self._known.clear()

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
