"""Request ids: made here, and read for what they tell: when a request began, and which worker process has it.

`req_`, the milliseconds since 1970 in 11 hexadecimal digits, 96 random bits, and the number of the worker process,
which is never reused. The time keeps new rows together in the store's indexes.
"""

import os
import re
import time

_ID = re.compile(r"req_([0-9a-f]{11})[0-9a-f]{24}([0-9a-f]{1,15})")


def new_request_id(number: int) -> str:
    """Return an id for a request of the worker process with this number."""
    return f"req_{time.time_ns() // 1_000_000:011x}{os.urandom(12).hex()}{number:x}"


def read_request_id(request_id: str) -> tuple[float, int] | None:
    """Return when a request began, in seconds since 1970, and its worker's number; None: it is no id of ours."""
    found = _ID.fullmatch(request_id)
    return None if found is None else (int(found[1], 16) / 1000, int(found[2], 16))
