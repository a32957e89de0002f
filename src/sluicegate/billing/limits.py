"""Limits over time of one key: requests and tokens a minute, requests at once. Pure: the time comes as an argument.

A window is a ring of one-second buckets. The bucket that is only partly inside the last minute counts whole, so that no
minute anywhere ever holds more than the limit.
"""

WINDOW_S = 60
_BUCKETS = WINDOW_S + 1


class SlidingWindow:
    """So many units in any minute."""

    __slots__ = ("_buckets", "_second", "_used", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buckets = [0] * _BUCKETS
        self._second = 0
        self._used = 0

    def used(self, now: float) -> int:
        """Return how much the window holds now."""
        self._advance(int(now))
        return self._used

    def wait_s(self, now: float, amount: int) -> float:
        """Return 0 where `amount` fits, else the seconds until it may; more than the limit fits an empty window.

        A limit of nothing lets nothing in.
        """
        self._advance(int(now))
        if self._used + amount <= self.limit or (self._used == 0 and self.limit):
            return 0.0
        free = self.limit - self._used
        for age in range(_BUCKETS - 1, -1, -1):
            free += self._buckets[(self._second - age) % _BUCKETS]
            if free >= amount or age == 0:
                return max(1.0, _BUCKETS - age - (now - int(now)))
        return float(WINDOW_S)

    def take(self, now: float, amount: int) -> int:
        """Use `amount`; return the second it was booked under, for `correct`."""
        self._advance(int(now))
        self._buckets[self._second % _BUCKETS] += amount
        self._used += amount
        return self._second

    def correct(self, now: float, second: int, difference: int) -> None:
        """Change what was booked under an earlier second, where that is still in the window."""
        self._advance(int(now))
        if self._second - second < _BUCKETS:
            at = second % _BUCKETS
            difference = max(difference, -self._buckets[at])
            self._buckets[at] += difference
            self._used += difference

    def _advance(self, second: int) -> None:
        if second <= self._second:
            return
        if second - self._second >= _BUCKETS:
            self._buckets = [0] * _BUCKETS
            self._used = 0
        else:
            for passed in range(self._second + 1, second + 1):
                at = passed % _BUCKETS
                self._used -= self._buckets[at]
                self._buckets[at] = 0
        self._second = second


class Refusal:
    """Why a request may not start now."""

    __slots__ = ("message", "wait_s")

    def __init__(self, message: str, wait_s: float) -> None:
        self.message = message
        self.wait_s = wait_s


class KeyLimits:
    """What one key may do in this worker. Take on admission, release exactly once when the request has ended."""

    __slots__ = ("_max_streams", "_requests", "_running", "_tokens", "spending")

    def __init__(
        self, rpm: int | None, tpm: int | None, max_streams: int | None, *, spending: bool = False
    ) -> None:
        """Args: spending: the key has spending limits, which are counted elsewhere."""
        self.spending = spending
        self._requests = SlidingWindow(rpm) if rpm is not None else None
        self._tokens = SlidingWindow(tpm) if tpm is not None else None
        self._max_streams = max_streams
        self._running = 0

    def admit(self, now: float, tokens: int) -> Refusal | int:
        """Take a place for a request.

        Args:
            tokens: the estimate of what it will use.
        Returns:
            Why not, or the second it was booked under.
        """
        if self._max_streams is not None and self._running >= self._max_streams:
            return Refusal(f"Too many requests at once: this key may run {self._max_streams}.", 1.0)
        if self._requests is not None:
            wait_s = self._requests.wait_s(now, 1)
            if wait_s:
                return Refusal(f"Rate limit reached: {self._requests.limit} requests a minute.", wait_s)
        if self._tokens is not None:
            wait_s = self._tokens.wait_s(now, tokens)
            if wait_s:
                return Refusal(f"Rate limit reached: {self._tokens.limit} tokens a minute.", wait_s)
        second = int(now)
        if self._requests is not None:
            self._requests.take(now, 1)
        if self._tokens is not None:
            second = self._tokens.take(now, tokens)
        self._running += 1
        return second

    def release(self, now: float, second: int, estimated: int, used: int) -> None:
        """End a request: its place is free, and its tokens are what it used instead of what was estimated."""
        self._running -= 1
        if self._tokens is not None and used != estimated:
            self._tokens.correct(now, second, used - estimated)

    @property
    def running(self) -> int:
        """Requests that have a place now."""
        return self._running
