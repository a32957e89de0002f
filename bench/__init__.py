"""The bench: what the gate costs beside nginx, on one pinned core. Run it with `python bench/run.py`."""
