"""Child processes end with their parent, however it ends, and leave no zombie."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sluicegate.children import Child, ChildFailed

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('up', flush=True)\n"
    "time.sleep(60)",
]
PARENT = """
import sys, time
from pathlib import Path
from sluicegate.children import Child
child = Child("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(60)
"""


def up(log: Path) -> bool | None:
    return True if "up" in log.read_text() else None


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_leaving_the_block_ends_and_collects(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Child("sleeper", SLEEP, log, stop_within_s=5.0) as child:
        child.wait_until(lambda: up(log), 10.0)
        child.check()
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_child_that_will_not_end_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Child("stubborn", STUBBORN, log, stop_within_s=0.1) as child:
        child.wait_until(lambda: up(log), 10.0)
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_child_in_a_session_of_its_own_misses_ctrl_c(tmp_path: Path) -> None:
    with Child("sleeper", SLEEP, tmp_path / "log") as child:
        assert os.getsid(child.pid) == child.pid != os.getsid(0)


def test_early_end_is_told_with_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('one'); print('two'); raise SystemExit(3)"]
    with (
        Child("brief", command, tmp_path / "log") as child,
        pytest.raises(ChildFailed, match="brief ended with status 3") as failed,
    ):
        child.wait_until(lambda: None, 10.0)
    assert failed.value.last_words(1) == "two"


def test_too_slow_a_start_is_told(tmp_path: Path) -> None:
    with (
        Child("sleeper", SLEEP, tmp_path / "log") as child,
        pytest.raises(ChildFailed, match="sleeper was not ready within 0 s"),
    ):
        child.wait_until(lambda: None, 0.05)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_dies_with_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.send_signal(how)
    give_up_at = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert not is_running(pid)
