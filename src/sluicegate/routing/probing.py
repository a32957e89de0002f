"""What the operator's own probes of a deployment mean: when the next one is due, and how long it stays open then.

A probe never closes a breaker: that is left to a request that is served. It spares requests: it lets one in as soon as
the provider answers again, and none while it does not. Where what works is probed too, failures in a row open it, as
those of requests do. Both are bounded, since a probe may be wrong (a list of models may be there while its models are
not, and the other way round): each time a deployment opens again although probes went well, one more of them in a row
is needed; and probes hold it open no longer than `max_open_for` in all, after which a request tries it as if there were
no probes.

Pure, as `health` is. Who asks when is `server.probe_desk`'s, how one is made `server.probing`'s.
"""

from typing import Literal, NamedTuple

from sluicegate.errors import UpstreamError
from sluicegate.routing.chance import fraction
from sluicegate.routing.health import JITTER, HealthRules, effect_of

Probe = Literal["none", "models", "request"]
"""How a provider is probed: not at all, by its list of models, by a request for one token."""
Finding = Literal["well", "ill", "refused", "unclear"]

LEAST_S = 0.05
"""Between two probes of the same deployment."""
BEFORE_END = 0.8
"""The first probe comes after this share of the time that a deployment stays open, where that is the sooner."""


class ProbeRules(NamedTuple):
    """When probes are made; see `health` in the configuration."""

    kind: Probe = "none"
    """Of providers that say nothing themselves."""
    every_s: float = 5.0
    """Of what is open."""
    closed_every_s: float = 0.0
    """Of what works; 0: never."""
    timeout_s: float = 5.0


class Watch(NamedTuple):
    """What the probes of one open deployment have come to. Times are those of the caller's clock."""

    opens: int
    """How often it had opened since it last worked; another number is another watch."""
    since: float
    due_at: float
    """Of the next probe."""
    well: int = 0
    """Probes in a row that went well."""
    last: Finding | None = None
    """What the last one found."""


def finding_of(error: UpstreamError | None) -> Finding:
    """Return what a probe found; what says nothing about the health of a deployment is unclear."""
    if error is None:
        return "well"
    effect = effect_of(error)
    return "ill" if effect == "failure" else "refused" if effect == "refused" else "unclear"


def begin(opens: int, open_s: float, now: float, seed: int, rules: ProbeRules) -> Watch:
    """Watch a deployment that has opened.

    Args:
        open_s: how long it stays open from now on.
        seed: makes the jitter; any integer.
    """
    return Watch(opens, now, now + max(LEAST_S, min(drawn(rules.every_s, seed), BEFORE_END * open_s)))


def after_finding(
    watch: Watch,
    finding: Finding,
    open_s: float,
    now: float,
    seed: int,
    rules: ProbeRules,
    health: HealthRules,
) -> tuple[Watch, float]:
    """Return the watch after a probe, and how long the deployment stays open from now on.

    Args:
        open_s: how long it would have.
    """
    watch = watch._replace(
        due_at=now + max(LEAST_S, drawn(rules.every_s, seed)),
        well=watch.well + 1 if finding == "well" else 0,
        last=finding,
    )
    if finding == "well" and watch.well >= watch.opens:
        return watch._replace(well=0), 0.0
    if finding in ("ill", "refused"):
        until_next_s = watch.due_at - now + rules.timeout_s
        held_s = min(until_next_s, watch.since + health.max_open_s - now)
        return watch, max(open_s, held_s)
    return watch, open_s


def trips(ill: int, finding: Finding, health: HealthRules) -> bool:
    """Whether a deployment that works is to be opened.

    Args:
        ill: probes in a row that found it ill, this one counted.
    """
    return finding == "refused" or ill >= health.failures


def drawn(middle_s: float, seed: int) -> float:
    """Return a time around a middle one, so that probes do not meet."""
    return middle_s * (1 - JITTER + 2 * JITTER * fraction(seed))
