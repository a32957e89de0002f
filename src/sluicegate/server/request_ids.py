"""Request ids: made here, and read for what they tell: when a request began, and which worker process has it.

`req_`, the milliseconds since 1970 in 11 hexadecimal digits, 96 random bits, and the number of the worker process,
which is never reused. The time keeps new rows together in the store's indexes.
"""

import os
import re
import time
from collections import deque

_ID = re.compile(r"req_([0-9a-f]{11})[0-9a-f]{24}([0-9a-f]{1,15})")


_DRAWN = 256
_random: deque[str] = deque()
"""Random parts of the ids to come: they are drawn many at a time, as each draw is a system call."""


def new_request_id(number: int) -> str:
    """Return an id for a request of the worker process with this number."""
    if not _random:
        drawn = os.urandom(12 * _DRAWN).hex()
        _random.extend(drawn[at : at + 24] for at in range(0, len(drawn), 24))
    began = hex(time.time_ns() // 1_000_000)[2:]  # 11 digits until the year 2527
    return f"req_{began}{_random.popleft()}{hex(number)[2:]}"


def read_request_id(request_id: str) -> tuple[float, int] | None:
    """Return when a request began, in seconds since 1970, and its worker's number; None: it is no id of ours."""
    found = _ID.fullmatch(request_id)
    return None if found is None else (int(found[1], 16) / 1000, int(found[2], 16))
