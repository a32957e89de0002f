"""Limits over time: requests and tokens a minute, requests at once. Pure: the time comes as an argument.

The whole gate shares one book of them. Workers take slices out of it: so much of one second, so many places. A slice of
a minute's limit is booked under the second in which alone it may be used, and what is left of it then is booked back,
so that no minute anywhere ever holds more than the limit, whoever used it. Slices are small beside the limit: what
idles in workers is never what a request elsewhere is refused for.

A window is a ring of one-second buckets. The bucket that is only partly inside the last minute counts whole.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

WINDOW_S = 60
_BUCKETS = WINDOW_S + 1
IDLE_SHARE = 100
"""All slices of a limit together hold at most one part in so many beyond what was needed, where several workers share
it."""
ALONE_SHARE = 8
"""The same for a worker that shares with nobody."""
PLACE_WAIT_S = 1.0
"""When to ask again for a place, as nobody can know when one is free."""

Kind = Literal["requests", "tokens", "streams"]


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

    def empty_in_s(self, now: float) -> float:
        """Return the seconds until the window is empty, if nothing more comes."""
        self._advance(int(now))
        for age in range(_BUCKETS):
            if self._buckets[(self._second - age) % _BUCKETS]:
                return _BUCKETS - age - (now - int(now))
        return 0.0

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


# ── what workers ask for and get ────────────────────────────────────────────────────────────────────────────


class Want(msgspec.Struct, frozen=True, array_like=True):
    """What a worker needs of one limit, and what it still had of it, which goes back with the question."""

    name: str
    """Whose limit: `key:`, `account:`, `model:` or `route:`, and which one."""
    kind: Kind
    limit: int
    need: int
    back: int = 0
    back_second: int = 0
    """The second that `back` was booked under."""
    bare: bool = False
    """Nothing beyond the need: another question for the same limit is on its way, and brings the spare."""


class Slice(msgspec.Struct, frozen=True, array_like=True):
    """What a worker gets of one limit."""

    amount: int
    """The need and something more; nothing where any limit of the question leaves too little."""
    keep: int
    """Of streams: idle places that the worker may keep."""
    left: int
    """What the limit still leaves."""


class Return(msgspec.Struct, frozen=True, array_like=True):
    """What a worker gives back of one limit; below 0: what was used beyond what was booked."""

    name: str
    kind: Kind
    amount: int
    second: int = 0
    """That it was booked under; nothing to streams."""


class Grant(msgspec.Struct, frozen=True):
    """What a question for slices comes to: all of it, or nothing."""

    second: int
    """In which alone what is limited by the minute may be used."""
    slices: list[Slice]
    """One for each that was wanted."""
    refused: int = -1
    """Place of the limit that leaves too little; -1: none does."""
    wait_s: float = 0.0
    """When to ask again, where it was refused."""
    reset_s: float = 0.0
    """When that limit will be whole again."""


class _Places:
    """Requests at once under one limit."""

    __slots__ = ("by_worker", "taken")

    def __init__(self) -> None:
        self.by_worker: dict[int, int] = {}
        self.taken = 0

    def move(self, worker: int, change: int) -> None:
        held = max(0, self.by_worker.get(worker, 0) + change)
        self.taken += held - self.by_worker.get(worker, 0)
        if held:
            self.by_worker[worker] = held
        else:
            self.by_worker.pop(worker, None)


class LimitBook:
    """All limits of the gate, as far as anybody asked for them. A limit is as high as the last question says."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, Kind], SlidingWindow] = {}
        self._places: dict[str, _Places] = {}

    def __len__(self) -> int:
        return len(self._windows) + len(self._places)

    def ask(self, worker: int, wants: Sequence[Want], now: float, workers: int) -> Grant:
        """Grant all that is wanted, or nothing of it.

        Args:
            now: monotonic seconds, the same for every process of the machine.
            workers: how many share the limits.
        """
        for want in wants:
            if want.back:
                self.give_back(worker, Return(want.name, want.kind, want.back, want.back_second), now)
        for place, want in enumerate(wants):
            wait_s = self._wait_s(want, now)
            if wait_s:
                lefts = [Slice(0, 0, self._left(want, now)) for want in wants]
                return Grant(int(now), lefts, place, wait_s, self._reset_s(want, now))
        return Grant(int(now), [self._take(worker, want, now, workers) for want in wants])

    def give_back(self, worker: int, back: Return, now: float) -> None:
        """Take back what was not used, or book what was used beyond."""
        if back.kind == "streams":
            places = self._places.get(back.name)
            if places is not None:
                places.move(worker, -back.amount)
            return
        window = self._windows.get((back.name, back.kind))
        if window is not None:
            window.correct(now, back.second, -back.amount)

    def release_worker(self, worker: int) -> None:
        """Free the places of a worker that ended; what it had used of any minute stays used."""
        for places in self._places.values():
            places.move(worker, -places.by_worker.get(worker, 0))

    def forget_idle(self, now: float) -> None:
        """Let go of limits of which nothing is used."""
        self._windows = {at: window for at, window in self._windows.items() if window.used(now)}
        self._places = {name: places for name, places in self._places.items() if places.taken}

    def used(self, name: str, kind: Kind, now: float) -> int:
        """Return what is booked of a limit."""
        if kind == "streams":
            places = self._places.get(name)
            return 0 if places is None else places.taken
        window = self._windows.get((name, kind))
        return 0 if window is None else window.used(now)

    def _window(self, want: Want) -> SlidingWindow:
        window = self._windows.get((want.name, want.kind))
        if window is None:
            window = self._windows[want.name, want.kind] = SlidingWindow(want.limit)
        window.limit = want.limit
        return window

    def _wait_s(self, want: Want, now: float) -> float:
        if want.kind != "streams":
            return self._window(want).wait_s(now, want.need)
        return 0.0 if self._left(want, now) >= want.need else PLACE_WAIT_S

    def _left(self, want: Want, now: float) -> int:
        return max(0, want.limit - self.used(want.name, want.kind, now))

    def _reset_s(self, want: Want, now: float) -> float:
        return PLACE_WAIT_S if want.kind == "streams" else self._window(want).empty_in_s(now)

    def _take(self, worker: int, want: Want, now: float, workers: int) -> Slice:
        spare = want.limit // (ALONE_SHARE if workers < 2 else IDLE_SHARE * workers)
        more = 0 if want.bare else max(0, min(spare, self._left(want, now) - want.need))
        amount = want.need + more
        if want.kind == "streams":
            self._places.setdefault(want.name, _Places()).move(worker, amount)
        else:
            self._window(want).take(now, amount)
        return Slice(amount, spare, self._left(want, now))
