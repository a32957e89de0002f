"""Which accounts have cost the operator so much today that nothing is left to chance any more.

A stream holds part of its output limit and more as it goes on. Where the truth keeps coming out dearer than that, the
operator pays; past `billing.shortfall_limit_usd` in one UTC day the account's streams hold their whole limit at once.
"""

from collections.abc import Mapping

from sluicegate.billing.spending_limits import day_of


class ShortfallWatch:
    """Shortfall by account, of the day that runs. Amounts are nano-USD, times seconds since 1970."""

    def __init__(self, limit_nano: int, now: float, so_far: Mapping[str, int]) -> None:
        """Args: so_far: what the day has brought until now."""
        self.limit_nano = limit_nano
        self._day = day_of(now)
        self._borne = dict(so_far)

    @property
    def passed(self) -> list[str]:
        """The accounts that are past the limit."""
        return [account_id for account_id, nano in self._borne.items() if nano > self.limit_nano]

    def add(self, shortfall: Mapping[str, int], now: float) -> list[str]:
        """Add what a commit brought; return the accounts that are past the limit by it."""
        self.turn(now)
        newly = []
        for account_id, nano in shortfall.items():
            before = self._borne.get(account_id, 0)
            self._borne[account_id] = before + nano
            if before <= self.limit_nano < before + nano:
                newly.append(account_id)
        return newly

    def turn(self, now: float) -> bool:
        """Begin anew where the day has changed; return whether an account is past the limit no more."""
        day = day_of(now)
        if day == self._day:
            return False
        self._day = day
        lifted = bool(self.passed)
        self._borne.clear()
        return lifted
