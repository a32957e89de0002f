"""How a worker process ends, as its exit status says it."""

DRAINED = 0
"""It was told to end, and did."""
SUPERVISOR_GONE = 3
"""The control socket closed."""
BOOT_FAILED = 4
"""It could not start; a successor could not either."""
