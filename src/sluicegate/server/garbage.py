"""The garbage collector's part in processes that serve: the rare cycle, and not what a start has left.

A full collection goes over every object of the libraries; it takes tens of milliseconds in the supervisor, for which
nobody gets an answer.
"""

import gc

THRESHOLDS = (20_000, 20, 50)
"""Objects of a request die by reference count; the collector only has to find the rare cycle."""


def collect_less() -> None:
    """Leave alone for good what is there now, and look at new objects more rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
