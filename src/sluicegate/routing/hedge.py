"""When a second attempt begins beside the first: once its first token is later than most were.

Pure. Source: J. Dean, L. A. Barroso, "The Tail at Scale", 2013 (hedged requests).
"""

import math
from collections.abc import Collection

MIN_MEASURED = 20
"""First tokens that must have been measured before any is called late."""
MAX_MEASURED = 200
"""How many are remembered, the latest ones."""


def late_after_s(first_tokens_s: Collection[float], percentile: float) -> float | None:
    """Return after how many seconds a first token is later than this share of them, or None where few are known.

    Args:
        percentile: above 0, below 100.
    """
    if len(first_tokens_s) < MIN_MEASURED:
        return None
    ordered = sorted(first_tokens_s)
    return ordered[math.ceil(len(ordered) * percentile / 100) - 1]
