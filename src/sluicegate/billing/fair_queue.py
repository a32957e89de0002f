"""Who is next where many wait for the same thing: callers take turns, and each caller's own requests keep their order.

Pure. How long somebody waits, and for what, is left to others.
"""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")


class FairQueue(Generic[Waiter]):
    """A line in which a caller with many requests does not hold up one with few."""

    __slots__ = ("_callers", "_size")

    def __init__(self) -> None:
        self._callers: OrderedDict[str, deque[Waiter]] = OrderedDict()
        """Who is next stands first."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, caller: str, waiter: Waiter) -> None:
        """Put somebody at the end of the caller's own line."""
        line = self._callers.get(caller)
        if line is None:
            line = self._callers[caller] = deque()
        line.append(waiter)
        self._size += 1

    def first(self) -> Waiter | None:
        """Return who is next; None where nobody waits."""
        for line in self._callers.values():
            return line[0]
        return None

    def remove(self, caller: str, waiter: Waiter) -> bool:
        """Take somebody out of the line; whoever was next has had the caller's turn. False: was not in it."""
        line = self._callers.get(caller)
        if line is None or waiter not in line:
            return False
        was_next = line[0] is waiter
        line.remove(waiter)
        self._size -= 1
        if not line:
            del self._callers[caller]
        elif was_next:
            self._callers.move_to_end(caller)
        return True
