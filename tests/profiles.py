"""How hard property tests try: `make fuzz` loads the profile `fuzz` from here."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "fuzz", max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
