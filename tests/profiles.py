"""How hard property tests try: `make fuzz` takes its profile from here, and many times the examples that tests name."""

import os

from hypothesis import HealthCheck, settings

FACTOR = int(os.environ.get("SLUICEGATE_FUZZ", "1"))

settings.register_profile(
    "fuzz", max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


def examples(usual: int) -> int:
    """Return how many examples a test takes that has a number of its own."""
    return usual * FACTOR
