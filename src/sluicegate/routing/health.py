"""Circuit breaker of one deployment: closed, open, half_open; and cooling, where it asked to be left alone for a while.

Pure: a breaker is a value, what happens makes another one; clock, counts and chance come in as arguments. Which
deployment is then chosen is `route`'s; who keeps the breakers, and tells other workers, `server.deployments`'.

| what an attempt came to | effect |
| --- | --- |
| 5xx, no connection, cut, garbled, too late | a failure: so many in a row, or such a share of them, open it |
| 401, 403, or our budget there is spent | opens at once: asking again is of no use, and the operator is told |
| 429; 503 or 529 with a `retry-after` | cooling, for as long as it asks; no failure |
| any other 4xx; our own limits; the client left | nothing |

Source: M. Nygard, "Release It!", 2nd edition, 5.2 (circuit breaker).
"""

from typing import Literal, NamedTuple

from sluicegate.errors import (
    ConnectFailed,
    StreamCut,
    UpstreamError,
    UpstreamGarbled,
    UpstreamStatus,
    UpstreamTimeout,
)
from sluicegate.routing.chance import fraction

Effect = Literal["none", "failure", "refused", "cooling"]
Condition = Literal["closed", "open", "half_open", "cooling"]

GUESSED_COOLING_S = 1.0
"""How long a deployment is spared that is limiting requests and does not say for how long."""
JITTER = 0.25
"""An open breaker's time is drawn this share around its middle, so that trials do not meet."""


class HealthRules(NamedTuple):
    """When a breaker opens, and for how long; see `health` in the configuration."""

    failures: int = 5
    """In a row."""
    failure_percent: int = 50
    min_requests: int = 20
    """Requests of the last 5 to 10 s before their share of failures means anything."""
    open_s: float = 5.0
    """The first time; twice as long each further time in a row."""
    max_open_s: float = 60.0


class Breaker(NamedTuple):
    """What is known of a deployment. Times are those of the caller's clock."""

    failures: int = 0
    """In a row."""
    opens: int = 0
    """How often it opened since it last worked; 0: it is closed."""
    open_until: float = 0.0
    cooling_until: float = 0.0
    told: bool = False
    """It is cooling because it asked for it; else the time is our guess."""
    kind: str = ""
    """Of the last failure that changed something: a word of the table of errors."""

    def condition(self, now: float, *, trial: bool = False) -> Condition:
        """Return what it is now.

        Args:
            trial: a request is under way that shows whether it works again; there is one at a time.
        """
        if now < self.cooling_until:
            return "cooling"
        if not self.opens:
            return "closed"
        return "open" if now < self.open_until or trial else "half_open"


CLOSED = Breaker()
"""All is well. The only value that says so, so that it can be compared by identity."""


def effect_of(error: UpstreamError) -> Effect:
    """Return what a failed attempt means for the health of its deployment."""
    match error:
        case UpstreamTimeout(phase="total" | "pool"):
            return "none"  # the request's own clock; our own limit of connections
        case ConnectFailed() | UpstreamTimeout() | StreamCut() | UpstreamGarbled():
            return "failure"
        case UpstreamStatus(kind="upstream_auth" | "upstream_budget"):
            return "refused"
        case UpstreamStatus(kind="rate_limited"):
            return "cooling"
        case UpstreamStatus(kind="overloaded") if error.retry_after_s is not None:
            return "cooling"
        case UpstreamStatus() if error.upstream_status >= 500:
            return "failure"
    return "none"


def after_error(
    breaker: Breaker, error: UpstreamError, asked: int, failed: int, now: float, seed: int, rules: HealthRules
) -> Breaker:
    """Return the breaker after a failed attempt.

    Args:
        asked: requests of the last 5 to 10 s, this one counted.
        failed: those of them that were failures, this one counted where it is one.
        seed: makes the jitter; any integer.
    """
    effect = effect_of(error)
    if effect == "none":
        return breaker
    if effect == "cooling":
        told = error.retry_after_s is not None
        until = now + (error.retry_after_s or GUESSED_COOLING_S)
        if until <= breaker.cooling_until and breaker.told >= told:
            return breaker
        return breaker._replace(cooling_until=until, told=told, kind=error.kind)
    breaker = breaker._replace(failures=breaker.failures + 1, kind=error.kind)
    if breaker.opens and now < breaker.open_until:
        return breaker  # it was asked before it opened
    tripped = (
        effect == "refused"
        or breaker.opens > 0
        or breaker.failures >= rules.failures
        or (asked >= rules.min_requests and failed * 100 >= asked * rules.failure_percent)
    )
    if not tripped:
        return breaker
    middle = min(rules.max_open_s, rules.open_s * 2.0 ** min(breaker.opens, 30))
    open_s = middle * (1 - JITTER + 2 * JITTER * fraction(seed, breaker.opens))
    return breaker._replace(opens=breaker.opens + 1, open_until=now + open_s)


def after_success(breaker: Breaker, now: float) -> Breaker:
    """Return the breaker after an attempt that worked; a late answer to an old request does not close it."""
    if breaker.opens and now < breaker.open_until:
        return breaker._replace(failures=0)
    if now < breaker.cooling_until:
        return CLOSED._replace(cooling_until=breaker.cooling_until, told=breaker.told, kind=breaker.kind)
    return CLOSED
