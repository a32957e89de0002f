"""Child processes that never outlive their parent and leave no zombie.

A child starts in a session of its own, so that Ctrl-C reaches the parent alone, which then ends its
children in order. Should the parent be killed, the kernel sends the child SIGTERM (Linux; prctl(2),
PR_SET_PDEATHSIG).
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.02

T = TypeVar("T")


class ChildFailed(Exception):
    """A child process ended, or did not get ready; its last words are in `log_path`."""

    def __init__(self, message: str, log_path: Path) -> None:
        super().__init__(message)
        self.log_path = log_path

    def last_words(self, lines: int = 5) -> str:
        """Return the end of what the child printed."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


class Child:
    """A running child process; leaving its `with` block ends it.

    Args:
        name: what messages call it.
        log_path: the file that gets all it prints, written anew.
        stop_within_s: how long it may take to end by itself once asked.
    """

    def __init__(self, name: str, command: Sequence[str], log_path: Path, stop_within_s: float = 0.0) -> None:
        self.name = name
        self.log_path = log_path
        self._stop_within_s = stop_within_s
        prctl = ctypes.CDLL(None).prctl
        parent = os.getpid()

        def die_with_parent() -> None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # it died before the call above
                os._exit(1)

        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, look: Callable[[], T | None], timeout_s: float) -> T:
        """Look again and again until there is something to return.

        Raises:
            ChildFailed: the process ended meanwhile, or the time is up.
        """
        give_up_at = time.monotonic() + timeout_s
        while (found := look()) is None:
            self.check()
            if time.monotonic() > give_up_at:
                raise ChildFailed(f"{self.name} was not ready within {timeout_s:.0f} s", self.log_path)
            time.sleep(_POLL_S)
        return found

    def check(self) -> None:
        """Raise ChildFailed if the process has ended."""
        status = self._process.poll()
        if status is not None:
            raise ChildFailed(f"{self.name} ended with status {status}", self.log_path)

    def stop(self) -> int:
        """Ask the process to end, end it when its time is up, and collect it; return its status."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(self._stop_within_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
