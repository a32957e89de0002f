"""Request ids: made here, and read for what they tell: when a request began, and which worker process has it.

`req_`, the milliseconds since 1970 in 11 hexadecimal digits, 96 random bits, and the number of the worker process,
which is never reused. The time keeps new rows together in the store's indexes.
"""

import os
import re
import time
from typing import Final

_ID = re.compile(r"req_([0-9a-f]{11})[0-9a-f]{24}([0-9a-f]{1,15})")


_DRAWN: Final = 256


class RequestIds:
    """Makes ids for the requests of one worker process."""

    __slots__ = ("_began", "_began_ms", "_number", "_rests")

    def __init__(self, number: int) -> None:
        """Take the number of the process."""
        self._number = hex(number)[2:]
        self._rests: list[str] = []
        """What follows the time in the ids to come: drawn many at a time, as each draw is a system call."""
        self._began_ms = 0
        self._began = ""
        """How the ids of this millisecond begin."""

    def new(self) -> str:
        """Return an id for a request that begins now."""
        rests = self._rests
        if not rests:
            drawn = os.urandom(12 * _DRAWN).hex()
            for at in range(0, len(drawn), 24):
                rests.append(drawn[at : at + 24] + self._number)
        now_ms = time.time_ns() // 1_000_000
        if now_ms != self._began_ms:
            self._began_ms = now_ms
            self._began = "req_" + hex(now_ms)[2:]  # 11 digits until the year 2527
        return self._began + rests.pop()


def read_request_id(request_id: str) -> tuple[float, int] | None:
    """Return when a request began, in seconds since 1970, and its worker's number; None: it is no id of ours."""
    found = _ID.fullmatch(request_id)
    return None if found is None else (int(found[1], 16) / 1000, int(found[2], 16))
