"""What was freed goes back to the system, also from the middle of the heap."""

import subprocess
import sys

PROGRAM = """
from pathlib import Path

from sluicegate.server.garbage import give_back_freed


def resident_kib() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])


pieces = [bytes(20_000) for _ in range(4_000)]
kept = pieces[::2]
del pieces
before = resident_kib()
give_back_freed()
print(before - resident_kib())
"""


def test_what_was_freed_between_what_is_kept_goes_back() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(run.stdout) > 16_000
