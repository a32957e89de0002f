"""Monotonic and wall time behind one protocol, so that tests can move both."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean anything."""
        ...

    def now(self) -> datetime:
        """Return the wall time as an aware UTC datetime."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)
