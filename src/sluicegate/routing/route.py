"""Which deployments may serve a request, in what order: priority groups, a strategy inside each, health over all.

Pure: what a worker knows of its deployments comes in. A conversation's requests go to the same deployment as long as it
is fit, since a provider's prompt cache is worth more than any spreading. Without any memory of it: each deployment is
drawn by its weight out of the conversation's key, so that all workers, and the next process, draw alike, and a
deployment that comes or goes moves only the conversations it takes or leaves.

Source: D. Thaler, C. Ravishankar, "Using name-based mappings to increase hit rates", 1998 (rendezvous hashing);
P. Efraimidis, P. Spirakis, "Weighted random sampling with a reservoir", 2006 (its weights); V. Mirrokni et al.,
"Consistent hashing with bounded loads", 2016 (when a conversation leaves its deployment).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from sluicegate.routing.catalog import Deployment
from sluicegate.routing.catalog_shapes import Strategy
from sluicegate.routing.chance import fraction
from sluicegate.routing.health import Condition

SLACK = 1.25
"""A conversation stays with its deployment up to this multiple of the best one's load or time."""
_NO_TIME = math.inf


class Candidate(NamedTuple):
    """One deployment, and what the worker knows of it."""

    deployment: Deployment
    salt: int
    """A number of its own, the same in every process."""
    condition: Condition = "closed"
    told: bool = True
    """Where it is cooling: it asked for it."""
    running: int = 0
    """Requests under way in this worker."""
    first_token_s: float | None = None
    """Moving average; None: not measured yet."""


def order(
    candidates: Sequence[Candidate], strategy: Strategy, key: int, tokens: tuple[int, int] = (1, 1)
) -> list[int]:
    """Return the places of those to be tried, in their order; none where all asked to be left alone.

    Lower priority numbers go first, weight 0 after the rest of its group. What is open or cooling is left out; where
    nothing else is left, those are tried that did not themselves ask for patience.

    Args:
        candidates: by priority.
        key: of the conversation; any integer.
        tokens: input and output that the request may come to, for `cheapest`.
    """
    fit = [
        place for place, candidate in enumerate(candidates) if candidate.condition in ("closed", "half_open")
    ]
    if not fit:
        fit = [
            place
            for place, candidate in enumerate(candidates)
            if candidate.condition == "open" or not candidate.told
        ]
    if len(fit) < 2:
        return fit
    ordered: list[int] = []
    start = 0
    while start < len(fit):
        priority = candidates[fit[start]].deployment.priority
        end = start + 1
        while end < len(fit) and candidates[fit[end]].deployment.priority == priority:
            end += 1
        group = fit[start:end]
        if len(group) > 1:
            group = _ranked(candidates, group, strategy, key, tokens)
        ordered += group
        start = end
    return ordered


def _ranked(
    candidates: Sequence[Candidate], group: list[int], strategy: Strategy, key: int, tokens: tuple[int, int]
) -> list[int]:
    """Rank one group: the conversation's own draw, then the strategy."""
    drawn = sorted(group, key=lambda place: _draw(candidates[place], key))
    if strategy == "cheapest":
        return sorted(drawn, key=lambda place: _cost(candidates[place].deployment, tokens))
    if strategy == "least_busy":
        return _near_best(drawn, [_busy(candidates[place]) for place in drawn])
    if strategy == "fastest_first_token":
        return _near_best(drawn, [_slow(candidates[place]) for place in drawn])
    return drawn


def _near_best(drawn: list[int], scores: list[tuple[bool, float]]) -> list[int]:
    """Sort by score, lowest first, ties as drawn; the first of the draw stays first while it is near the best."""
    ranked = [place for _, place in sorted(zip(scores, drawn, strict=True), key=lambda pair: pair[0])]
    last, best = min(scores)
    own_last, own = scores[0]
    if own_last == last and own <= best * SLACK and ranked[0] != drawn[0]:
        ranked.remove(drawn[0])
        ranked.insert(0, drawn[0])
    return ranked


def _draw(candidate: Candidate, key: int) -> tuple[bool, float]:
    """Return an exponential variate of the deployment's weight: the least of a group is drawn first."""
    weight = candidate.deployment.weight
    variate = -math.log(fraction(key, candidate.salt))
    return (True, variate) if weight == 0 else (False, variate / weight)


def _busy(candidate: Candidate) -> tuple[bool, float]:
    weight = candidate.deployment.weight
    return weight == 0, candidate.running / max(1, weight)


def _slow(candidate: Candidate) -> tuple[bool, float]:
    """Return the time to its first token; one that was never measured is tried at once, by one request at first."""
    time_s = candidate.first_token_s
    if time_s is None:
        time_s = _NO_TIME if candidate.running else 0.0
    return candidate.deployment.weight == 0, time_s


def _cost(deployment: Deployment, tokens: tuple[int, int]) -> tuple[bool, bool, int]:
    cost = deployment.cost
    if cost is None:
        return deployment.weight == 0, True, 0
    told = cost.input * tokens[0] + cost.output * tokens[1] + cost.per_request * 1_000_000
    return deployment.weight == 0, False, told


def after_first_token(average_s: float | None, since_s: float, took_s: float) -> float:
    """Return the moving average of a deployment's time to its first token, after one more of them.

    It rises at once to a peak and falls slowly, so that one that slows down is left before it has kept many waiting.

    Args:
        average_s: as it was; None: not measured yet.
        since_s: seconds since it was last changed.
    Source: Finagle, `com.twitter.finagle.loadbalancer.PeakEwma`.
    """
    if average_s is None or took_s > average_s:
        return took_s
    kept = math.exp(-since_s / AVERAGED_S)
    return average_s * kept + took_s * (1 - kept)


def faded(average_s: float, since_s: float) -> float:
    """Return an average as it counts later: it fades while nobody asks, so that the slow are tried again."""
    return average_s * math.exp(-since_s / AVERAGED_S)


AVERAGED_S = 30.0
"""Time in which an average falls to 37 % of what it was."""
