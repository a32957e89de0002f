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
from sluicegate.routing.chance import fraction

BASE_WAIT_S = 0.5
"""Upper bound of the wait before the second attempt at a target; it doubles with each further attempt."""
MAX_WAIT_S = 8.0
FREE_RETRIES = 10
"""Retries of one provider in 10 s that its budget always allows."""


class Rules(NamedTuple):
    """How often to try; see `retry` in the configuration."""

    max_attempts: int = 3
    after_send: int = 1


class Progress(NamedTuple):
    """Where a request stands after an attempt."""

    targets: tuple[str, ...]
    """The provider of each target, in the order in which they are tried."""
    target: int = 0
    """The one that was tried last, counting from 0."""
    tried: int = 1
    """How many of them have been tried or passed over."""
    made: int = 1
    """Attempts made."""
    again: tuple[int, ...] = ()
    """Targets that did nothing yet and may be asked again, those that were tried longest ago first."""
    unanswered: int = 0
    """Further attempts spent so far on requests that were sent whole and not answered."""
    begun: bool = False
    """An event with content has reached the client."""


class Attempt(NamedTuple):
    """The attempt that follows."""

    target: int
    wait_s: float
    retry: bool
    """It asks a provider again, and so counts against that provider's budget."""
    progress: Progress
    """Where the request stands once this attempt has been made."""


class _Rule(NamedTuple):
    """What one kind of failure allows."""

    elsewhere: bool = True
    """A target that was not tried yet."""
    again: bool = False
    """This target again, once no other is left, while fewer than max_attempts have been made."""
    after_send: bool = False
    """Only as often as `after_send` allows: the provider may have done the work."""


_FINAL = _Rule(elsewhere=False)
_ELSEWHERE = _Rule()
_NOT_PROCESSED = _Rule(again=True)
_CUT = _Rule(again=True, after_send=True)
_TIMED_OUT = _Rule(after_send=True)

KIND_RULES = {"rate_limited": _NOT_PROCESSED, "overloaded": _NOT_PROCESSED}
"""By the kind of a provider's error, where no `retry-after` came with it; with one, the target is left alone."""

STATUS_RULES = {408: _CUT, 409: _CUT, 425: _CUT, 504: _TIMED_OUT}
"""By the status of any other error. One that is not here: another target."""


def next_attempt(
    error: UpstreamError,
    progress: Progress,
    rules: Rules,
    left_s: float,
    seed: int,
    spent: frozenset[str] = frozenset(),
) -> Attempt | None:
    """Choose the attempt that follows a failed one, or None to give up.

    Another target comes first, at once; when all have been tried, those that did nothing are asked again, after a wait.

    Args:
        progress: how far the request has come, the failed attempt counted.
        left_s: seconds until the request's one deadline.
        seed: makes the wait; any integer.
        spent: providers whose budget for retries is used up.
    Invariant: None once an event with content has reached the client.
    """
    if progress.begun or left_s <= 0:
        return None
    rule = _rule_for(error)
    unanswered = progress.unanswered + rule.after_send
    if not rule.elsewhere or (rule.after_send and unanswered > rules.after_send):
        return None
    failed, providers = progress.target, progress.targets
    again = tuple(target for target in progress.again if target != failed)
    if rule.again and not rule.after_send:
        again += (failed,)
    progress = progress._replace(made=progress.made + 1, again=again, unanswered=unanswered)
    for target in range(progress.tried, len(providers)):
        retry = providers[target] == providers[failed]
        if not (retry and providers[target] in spent):
            return Attempt(target, 0.0, retry, progress._replace(target=target, tried=target + 1))
    if progress.made > rules.max_attempts:
        return None
    for target in (failed,) if rule.again and rule.after_send else again:
        if providers[target] not in spent:
            wait_s = _wait(progress.made - 1, seed)
            left = progress._replace(target=target, tried=len(providers))
            return Attempt(target, wait_s, True, left) if wait_s < left_s else None
    return None


def may_take_over(error: UpstreamError, left_s: float) -> bool:
    """Whether another provider may go on with a stream that broke off by this error after its content had begun.

    Not where the provider refuses the request itself, which others would too, nor when its time is over.

    Args:
        left_s: seconds until the request's one deadline.
    """
    is_over = isinstance(error, UpstreamTimeout) and error.phase == "total"
    return left_s > 0 and error.retry != "never" and not is_over


def may_retry(asked: int, retried: int, percent: int, free: int = FREE_RETRIES) -> bool:
    """Whether a provider's budget allows one more retry: a dead provider must not be asked many times as often.

    Args:
        asked: requests it got in the last 5 to 10 s.
        retried: those of them that were retries.
        percent: see `retry.budget_percent`.
        free: retries that are always allowed.
    """
    return retried < max(free, asked * percent // 100)


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
        case ConnectFailed() | UpstreamTimeout(phase="connect" | "pool"):
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


def _wait(made: int, seed: int) -> float:
    """Draw a wait between nothing and a bound that doubles with each attempt made (full jitter)."""
    return min(MAX_WAIT_S, BASE_WAIT_S * 2.0 ** (made - 1)) * fraction(seed, made)


def may_have_cost(error: UpstreamError) -> bool:
    """Whether a provider may have worked, and so charge the operator, for an attempt that failed before any content."""
    unsent = error.retry == "same" or (
        isinstance(error, UpstreamTimeout) and error.phase in ("pool", "connect")
    )
    return not unsent and not (isinstance(error, UpstreamStatus) and error.upstream_status < 500)
