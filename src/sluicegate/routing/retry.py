"""May we try again, where, and after how long. One pure function, and a table over what can go wrong.

The caller keeps the deadline, the clock and the list of targets; a decision comes back as a value.

Source: RFC 9110, 9.2.2 (idempotent methods) and 10.2.3 (Retry-After); "Exponential Backoff And Jitter", AWS
Architecture Blog, 2015 (full jitter).
"""

from collections.abc import Sequence
from typing import NamedTuple

from sluicegate.errors import (
    ConnectFailed,
    StreamCut,
    UpstreamError,
    UpstreamGarbled,
    UpstreamStatus,
    UpstreamTimeout,
)

BASE_WAIT_S = 0.5
"""Upper bound of the wait before a target's second attempt; it doubles with each further one."""
MAX_WAIT_S = 8.0


class Rules(NamedTuple):
    """How often to try; see `retry` in the configuration."""

    max_attempts: int = 3
    after_send: int = 1


class Progress(NamedTuple):
    """Where a request stands after an attempt."""

    targets: int
    """How many targets there are, in order."""
    target: int = 0
    """The one that was tried last, counting from 0."""
    made_here: int = 1
    """Attempts made at it."""
    unanswered: int = 0
    """Further attempts spent so far on requests that were sent whole and not answered."""
    begun: bool = False
    """An event with content has reached the client."""


class Attempt(NamedTuple):
    """The attempt that follows."""

    target: int
    wait_s: float
    progress: Progress
    """Where the request stands once this attempt has been made."""


class _Rule(NamedTuple):
    """What one kind of failure allows."""

    same: bool = False
    """The same target again, up to max_attempts, before another one."""
    elsewhere: bool = False
    """Another target."""
    last_again: bool = False
    """The same target again where no other is left, up to max_attempts."""
    after_send: bool = False
    """Only as often as `after_send` allows: the provider may have done the work."""


_FINAL = _Rule()
_NOT_CONNECTED = _Rule(same=True, elsewhere=True)
_OVERLOADED = _Rule(same=True, elsewhere=True)
_ELSEWHERE = _Rule(elsewhere=True)
_NOT_PROCESSED = _Rule(elsewhere=True, last_again=True)
_CUT = _Rule(elsewhere=True, last_again=True, after_send=True)
_TIMED_OUT = _Rule(elsewhere=True, after_send=True)

KIND_RULES = {"rate_limited": _NOT_PROCESSED, "overloaded": _OVERLOADED}
"""By the kind of a provider's error, where no `retry-after` came with it; with one, the target is left
alone."""

STATUS_RULES = {408: _CUT, 409: _CUT, 425: _CUT, 504: _TIMED_OUT}
"""By the status of any other error. One that is not here: another target."""


def next_attempt(
    error: UpstreamError, progress: Progress, rules: Rules, left_s: float, seed: int
) -> Attempt | None:
    """Choose the attempt that follows a failed one, or None to give up.

    Args:
        progress: how far the request has come, the failed attempt counted.
        left_s: seconds until the request's one deadline.
        seed: makes the wait; any integer.
    Invariant: None once an event with content has reached the client.
    """
    if progress.begun or left_s <= 0:
        return None
    rule = _rule_for(error)
    unanswered = progress.unanswered + rule.after_send
    if rule.after_send and unanswered > rules.after_send:
        return None
    more_here = progress.made_here < rules.max_attempts
    others = progress.target + 1 < progress.targets
    if more_here and (rule.same or (rule.last_again and not others)):
        wait_s = _wait(progress.made_here, seed)
        if wait_s < left_s:
            made_here = progress.made_here + 1
            return Attempt(
                progress.target, wait_s, progress._replace(made_here=made_here, unanswered=unanswered)
            )
    if rule.elsewhere and others:
        target = progress.target + 1
        return Attempt(target, 0.0, progress._replace(target=target, made_here=1, unanswered=unanswered))
    return None


def final_error(failures: Sequence[UpstreamError]) -> UpstreamError:
    """Choose what the client is told when all attempts have failed, first to last.

    A final refusal is told as it is; else, where targets only ask to wait, the one that is back first; else
    the last."""
    last = failures[-1]
    if last.retry == "never":
        return last
    cooling = [error for error in failures if error.kind in KIND_RULES and error.retry_after_s is not None]
    return min(cooling, key=lambda error: error.retry_after_s or 0.0, default=last)


def _rule_for(error: UpstreamError) -> _Rule:
    if error.retry == "never":
        return _FINAL
    match error:
        case ConnectFailed():
            return _NOT_CONNECTED
        case UpstreamTimeout(phase="connect"):
            return _NOT_PROCESSED
        case UpstreamTimeout(phase="total"):
            return _FINAL
        case UpstreamTimeout():
            return _TIMED_OUT
        case UpstreamStatus(kind=kind) if kind in KIND_RULES:
            return KIND_RULES[kind] if error.retry_after_s is None else _ELSEWHERE
        case UpstreamStatus():
            return STATUS_RULES.get(error.upstream_status, _ELSEWHERE)
        case StreamCut() | UpstreamGarbled():
            return _CUT
    raise AssertionError(f"no rule for {type(error).__name__}")


def _wait(made_here: int, seed: int) -> float:
    """Draw a wait between nothing and a bound that doubles with each attempt (full jitter)."""
    bound = min(MAX_WAIT_S, BASE_WAIT_S * 2.0 ** (made_here - 1))
    mixed = ((seed ^ (made_here << 32)) * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & ((1 << 64) - 1)
    mixed = ((mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
    return bound * ((mixed ^ (mixed >> 32)) / 2.0**64)
