"""Exact sums of money, also where they pass 64 bits on their way, which is an error of the database otherwise.

So dollars and the nano-dollars below one are summed apart, and put together here.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, literal_column

from sluicegate.money import NANO_PER_USD

_PER_USD: ColumnElement[int] = literal_column(str(NANO_PER_USD))


def sum_parts(nano: ColumnElement[int]) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return what to select for a sum of nano-USD; `joined` makes the sum of it. Both truncate towards 0."""
    return func.sum(nano.op("/")(_PER_USD)), func.sum(nano.op("%")(_PER_USD))


def joined(parts: Sequence[Any]) -> int:
    """Return the sum that the two parts of a row are; 0 where there was nothing to add up."""
    usd, nano = parts
    return int(usd or 0) * NANO_PER_USD + int(nano or 0)
