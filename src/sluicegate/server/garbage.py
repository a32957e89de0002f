"""Memory of processes that serve: the collector looks for the rare cycle, and what a burst has freed goes back.

A full collection goes over every object of the libraries; it takes tens of milliseconds in the supervisor, for which
nobody gets an answer.
"""

import ctypes
import gc

THRESHOLDS = (20_000, 20, 50)
"""Objects of a request die by reference count; the collector only has to find the rare cycle."""


def collect_less() -> None:
    """Leave alone for good what is there now, and look at new objects more rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def give_back_freed() -> None:
    """Return to the system what is free in the middle of the heap, which glibc keeps; takes milliseconds, or tens of
    them where much is free.

    Of many TLS handshakes at once, each leaves some KiB there. Other C libraries have no such call.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
