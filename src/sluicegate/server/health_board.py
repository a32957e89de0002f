"""What all workers found of deployments that are not well: passed on to the others, to new ones, and to the operator.

The supervisor's; it decides nothing. What has run out by itself, or was closed again, is forgotten.
"""

import asyncio
from typing import Any

import msgspec

from sluicegate.server import telemetry
from sluicegate.server.control_messages import DeploymentHealth
from sluicegate.server.tally import MAX_LABEL_SETS, Tally

STALE_S = 600.0
"""An open breaker that nobody has tried for so long is told no more: nobody asks for its model."""


class HealthBoard:
    """The last word on each deployment that is open or cooling."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._told: dict[tuple[str, str], tuple[float, DeploymentHealth]] = {}

    def put(self, told: DeploymentHealth) -> None:
        """Take what a worker found."""
        place = (told.provider, told.model)
        if told.opens or told.cooling_s > 0:
            self._told[place] = (self._loop.time(), told)
        else:
            self._told.pop(place, None)

    def current(self) -> list[DeploymentHealth]:
        """Return what still holds, with the time that is left."""
        now = self._loop.time()
        current: list[DeploymentHealth] = []
        for place, (at, told) in list(self._told.items()):
            since_s = now - at
            cooling_s = max(0.0, told.cooling_s - since_s)
            if (not told.opens and not cooling_s) or since_s > max(STALE_S, told.open_s):
                del self._told[place]
                continue
            open_s = max(0.0, told.open_s - since_s)
            current.append(msgspec.structs.replace(told, open_s=open_s, cooling_s=cooling_s))
        return current

    def status(self) -> list[dict[str, Any]]:
        """Return it for people."""
        return [
            {
                "provider": told.provider,
                "model": told.model,
                "state": state_of(told),
                "seconds_left": round(max(told.open_s, told.cooling_s), 1),
                "times_opened": told.opens,
                "why": told.kind,
            }
            for told in self.current()
        ]

    def measure(self, tally: Tally) -> None:
        """Set the gauges."""
        tally.forget(telemetry.UNHEALTHY)
        for told in self.current()[:MAX_LABEL_SETS]:
            tally.set(telemetry.UNHEALTHY, 1, told.provider, told.model, state_of(told))


def state_of(told: DeploymentHealth) -> str:
    """Return the state that a deployment is in: open, half_open or cooling."""
    if told.cooling_s > 0:
        return "cooling"
    return "open" if told.open_s > 0 else "half_open"
