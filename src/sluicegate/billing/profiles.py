"""Profiles: the switches of usage, cost and cut streams that one word sets together, and which level decides.

First that says it: the key's switch, the key's profile, the model, the provider, the server's switch, the server's
profile. Source: the streaming contract, C6–C9 and B3.
"""

from collections.abc import Sequence
from typing import Any

from sluicegate.routing.catalog_shapes import CostPlace, CutPolicy, StreamSwitches, UsageChunk

SWITCHES = ("usage_chunk", "cost", "cost_extension_key", "cost_header", "on_disconnect", "on_error")
"""Their names."""


class Switches:
    """Every switch, decided."""

    def __init__(
        self,
        usage_chunk: UsageChunk,
        cost: CostPlace,
        cost_extension_key: str,
        cost_header: str,
        on_disconnect: CutPolicy,
        on_error: CutPolicy,
    ) -> None:
        """Args: cost_header: empty: no header."""
        self.usage_chunk: UsageChunk = usage_chunk
        self.cost: CostPlace = cost
        self.cost_extension_key = cost_extension_key
        self.cost_header = cost_header
        self.on_disconnect: CutPolicy = on_disconnect
        self.on_error: CutPolicy = on_error


PROFILES: dict[str, Switches] = {
    "default": Switches(
        "on_request", "usage", "openrelay", "x-sluicegate-cost-nano-usd", "produced", "produced"
    ),
    "relaykit": Switches("on_request", "none", "openrelay", "", "produced", "produced"),
    "openrelay": Switches("always", "extension", "openrelay", "OpenRelay-Cost-Nano-USD", "none", "none"),
    "rutoken": Switches("on_request", "none", "openrelay", "", "produced", "produced"),
    "cloakray": Switches(
        "always", "usage", "openrelay", "x-sluicegate-cost-nano-usd", "produced", "produced"
    ),
}


def decide(levels: Sequence[StreamSwitches]) -> Switches:
    """Decide every switch.

    Args:
        levels: from the one that is asked first (the key) to the last (the server). At each, a single switch goes
            before the profile.
    """
    decided: dict[str, Any] = {}
    for name in SWITCHES:
        for level in levels:
            value = getattr(level, name)
            if value is None and level.profile is not None:
                value = getattr(PROFILES[level.profile], name)
            if value is not None:
                decided[name] = value
                break
        else:
            decided[name] = getattr(PROFILES["default"], name)
    return Switches(**decided)
