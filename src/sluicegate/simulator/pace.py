"""The simulator's clockwork: thousands of streams at a steady pace, one timer for all that fall due together.

A runner says when it wants to go on; runners of the same tick leave in one turn of the loop. The schedule is
absolute, so a late turn is caught up and never shifts what follows. The worst lateness is kept, since a load
test must know when the load side was the slow one.
"""

import asyncio
import heapq
import time
from typing import Protocol


class Runner(Protocol):
    """Something that goes on at a given time."""

    def resume(self) -> None:
        """Go on; must not raise."""
        ...


class Pacer:
    """Resumes runners at their times, to the tick."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tick_s: float) -> None:
        self._loop = loop
        self._tick_s = tick_s
        self._due: dict[int, list[Runner]] = {}
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0
        self.worst_late_s = 0.0
        self.late_events = 0
        """Runners resumed more than 5 ms late."""

    def at(self, due: float, runner: Runner) -> None:
        """Resume a runner at `due` seconds of the monotonic clock."""
        tick = int(due / self._tick_s) + 1
        bucket = self._due.get(tick)
        if bucket is not None:
            bucket.append(runner)
            return
        self._due[tick] = [runner]
        heapq.heappush(self._ticks, tick)
        if self._timer is None:
            self._arm()
        elif tick < self._timer_tick:
            self._timer.cancel()
            self._arm()

    def soon(self, runner: Runner) -> None:
        """Resume a runner in the next turn of the loop."""
        self._loop.call_soon(runner.resume)

    def close(self) -> None:
        """Forget everybody."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due.clear()
        self._ticks.clear()

    def _arm(self) -> None:
        self._timer_tick = tick = self._ticks[0]
        self._timer = self._loop.call_later(max(tick * self._tick_s - time.monotonic(), 0.0), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = time.monotonic()
        # libuv counts whole milliseconds and may be a fraction of one early
        last = int((now + 0.0005) / self._tick_s)
        ticks = self._ticks
        while ticks and ticks[0] <= last:
            tick = heapq.heappop(ticks)
            late = now - tick * self._tick_s
            bucket = self._due.pop(tick)
            if late > 0.005:
                self.late_events += len(bucket)
                self.worst_late_s = max(self.worst_late_s, late)
            for runner in bucket:
                runner.resume()
        if ticks and self._timer is None:
            self._arm()
