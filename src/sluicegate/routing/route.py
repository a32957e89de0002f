"""Which deployments may serve a request, in what order: priority groups, and a weighted draw inside each.

Pure: the draw comes from a seed. Health, stickiness and the other strategies are not looked at here.
"""

from sluicegate.routing.catalog import Deployment, Model

_MASK = (1 << 64) - 1


def order(model: Model, seed: int) -> tuple[Deployment, ...]:
    """Return a model's deployments in the order in which they are to be tried.

    A lower priority number goes first. Inside a group the first is drawn by weight, the next by weight from
    the rest, and so on; those of weight 0 come after the others.

    Args:
        seed: any integer; the same one gives the same order.
    """
    deployments = model.deployments
    if len(deployments) == 1:
        return deployments
    ordered: list[Deployment] = []
    state = seed & _MASK
    start = 0
    while start < len(deployments):
        end = start + 1
        while end < len(deployments) and deployments[end].priority == deployments[start].priority:
            end += 1
        group = list(deployments[start:end])
        while len(group) > 1:
            state, draw = _next(state)
            ordered.append(group.pop(_drawn(group, draw)))
        ordered += group
        start = end
    return tuple(ordered)


def _drawn(group: list[Deployment], draw: int) -> int:
    """Return the place in a group that a draw of 64 random bits falls on."""
    total = sum(deployment.weight for deployment in group)
    if total == 0:
        return (draw * len(group)) >> 64
    point = (draw * total) >> 64
    for index, deployment in enumerate(group):
        point -= deployment.weight
        if point < 0:
            return index
    raise AssertionError("a draw fell outside its group")


def _next(state: int) -> tuple[int, int]:
    """Advance a SplitMix64 generator: its next state, and 64 bits drawn from it.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return state, mixed ^ (mixed >> 31)
