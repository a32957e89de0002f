"""Child processes that never outlive their parent and leave no zombie.

A child starts in a session of its own, so that Ctrl-C reaches the parent alone, which then ends its
children in order. Should the parent be killed, the kernel sends the child SIGTERM (Linux; prctl(2), PR_SET_PDEATHSIG).
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1


class ChildFailed(Exception):
    """A child process did not start or did not get ready; its last words are in `log_path`."""

    def __init__(self, message: str, log_path: Path) -> None:
        super().__init__(message)
        self.log_path = log_path

    def last_words(self, lines: int = 5) -> str:
        """Return the end of what the child printed."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


def start_child(
    command: Sequence[str], log_path: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a child that dies with this process; what it prints goes to a file, written anew."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)

    with log_path.open("wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def stop_child(child: subprocess.Popen[bytes], within_s: float) -> None:
    """Ask a child to end, end it after `within_s`, and collect it."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(within_s)
        except subprocess.TimeoutExpired:
            child.kill()
    child.wait()
