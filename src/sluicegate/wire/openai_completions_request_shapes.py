"""What is read of a legacy Completions request. Source: wire formats page `completions.md`."""

from typing import Any

import msgspec


class Edges(msgspec.Struct, gc=False):
    """What routing and metering look at."""

    model: Any = None
    stream: Any = None
    n: Any = None
    best_of: Any = None
    max_tokens: Any = None
