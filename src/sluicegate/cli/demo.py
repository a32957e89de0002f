"""`sluicegate demo`: the main job with nothing configured.

A folder with a configuration, a store and a key that holds $5; a real model in a child process (the
simulator where the extra `local` is missing); the gate in another; one streamed answer and what it cost,
then a short one in every other format.
All of it is what a stranger would set up by hand: the gate is `sluicegate serve` with the configuration
that lies in the folder.
"""

import contextlib
import fcntl
import json
import secrets
import shlex
import signal
import socket
import sys
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from sluicegate.children import Child, ChildFailed
from sluicegate.cli.tour import Receipt, TourFailed, stream_answer, stream_chat
from sluicegate.cli.tour_formats import SHORT_TOKENS, WireFormat, short_requests
from sluicegate.local_model import MODEL, LocalModel, find_model_file
from sluicegate.money import format_usd

FOLDER = Path("sluicegate-demo")
HOST = "127.0.0.1"
PUBLIC_MODEL = "smollm2"
QUESTION = "What is a sluice gate?"
READY_TIMEOUT_S = 90.0
DRAIN_TIMEOUT_S = 2

CONFIGURATION = """\
# Written anew by every `sluicegate demo`; copy it to keep what you change.
server: {{listen: "{host}:{port}", drain_timeout: {drain_timeout_s}s}}
admin: {{listen: "{host}:{admin_port}"}}
store: "sqlite:///sluicegate.db"
providers:
  {provider.name}: {{base_url: "{provider.url}/v1", speaks: [chat, completions, responses, messages], auth: none}}
models:
  {public_model}:
    routes: [{{provider: {provider.name}, model: {provider.model}}}]
    price: {{input: 0.15, cache_read: 0.075, output: 0.60}}   # USD per million tokens
    max_output_tokens: 1024
keys:
  - {{name: demo, key: "{key}", balance_usd: 5}}
"""

CURL = """\
curl -N {url}/v1/chat/completions -H 'authorization: Bearer {key}' \\
  -H 'content-type: application/json' -d '{body}'
"""

SNIPPET = """\
import json, urllib.request
headers = {{"authorization": "Bearer {key}", "content-type": "application/json"}}
body = {body}
request = urllib.request.Request("{url}/v1/chat/completions", json.dumps(body).encode(), headers)
for line in urllib.request.urlopen(request):
    if line.startswith(b"data: {{"):
        print(json.loads(line[6:])["choices"][0]["delta"].get("content") or "", end="", flush=True)

"""


class DemoFailed(Exception):
    """The demo cannot go on; the message is the one line that says why."""


class Provider(NamedTuple):
    """Who answers behind the gate."""

    name: str
    url: str
    model: str


def demo(
    port: Annotated[
        int, typer.Option(min=1, max=65534, help="The gate's port; its admin port is one higher.")
    ] = 4000,
    once: Annotated[bool, typer.Option("--once", help="Leave after the tour instead of serving on.")] = False,
) -> None:
    """Stream one answer of a bundled model through a gate, and see what it cost."""
    console = Console(highlight=False)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with contextlib.ExitStack() as children:
            try:
                _run(console, children, port, once)
            finally:
                _ignore_signals()  # nothing stops the stopping of the children
    except KeyboardInterrupt:
        _say(console, "\nStopped." if console.is_terminal else "Stopped.")
    except (DemoFailed, TourFailed) as failure:
        _say(console, str(failure), style="red")
        raise typer.Exit(1) from None
    except ChildFailed as failure:
        _say(console, f"{failure}; the end of {failure.log_path}:\n{failure.last_words()}", style="red")
        raise typer.Exit(1) from None


def _run(console: Console, children: contextlib.ExitStack, port: int, once: bool) -> None:
    for number in (port, port + 1):
        _check_port_is_free(number)
    try:
        FOLDER.mkdir(exist_ok=True)
    except OSError as error:
        raise DemoFailed(f"{FOLDER.absolute()} cannot be made ({error.strerror}).") from None
    _check_folder_is_free()
    key = _demo_key()
    provider = _start_provider(console, children)
    configuration = CONFIGURATION.format(
        host=HOST,
        port=port,
        admin_port=port + 1,
        drain_timeout_s=DRAIN_TIMEOUT_S,
        provider=provider,
        public_model=PUBLIC_MODEL,
        key=key,
    )
    gate = _start_gate(console, children, port, configuration)
    request = {"model": PUBLIC_MODEL, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 128}

    _say(console, f"\n{QUESTION}", style="bold")
    receipt = stream_chat(
        (HOST, port), key, {**request, "temperature": 0}, lambda text: _say(console, text, end="")
    )
    _say(console, "\n")
    _show_receipt(console, receipt)
    _say(
        console,
        "\nThe same model in the other formats; it does not speak Gemini, so the gate translates:",
        style="bold",
    )
    for format, path, body in short_requests(PUBLIC_MODEL):
        _show_short_answer(console, key, port, format, path, body)
    if once:
        return
    _show_next_steps(console, f"http://{HOST}:{port}", key, {**request, "stream": True})
    while True:
        time.sleep(0.5)
        gate.check()


def _say(console: Console, text: str, style: str | None = None, end: str = "\n") -> None:
    console.print(text, style=style, end=end, markup=False, soft_wrap=True)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _check_port_is_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise DemoFailed(
                f"Port {port} cannot be had ({error.strerror}); try --port with another."
            ) from None


def _check_folder_is_free() -> None:
    """See that no other demo serves out of the folder, before its configuration and logs are written anew."""
    try:
        with (FOLDER / "journal" / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return
    except BlockingIOError:
        raise DemoFailed(
            f"Another demo serves out of {FOLDER}: end it first, or run this one in another folder."
        ) from None


def _demo_key() -> str:
    """Return the key of earlier runs in this folder, so that its balance goes on, or make one."""
    path = FOLDER / "key"
    if not path.exists():
        _write_private(path, f"sg-{secrets.token_urlsafe(32)}\n")
    return path.read_text().strip()


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _start_provider(console: Console, children: contextlib.ExitStack) -> Provider:
    if find_model_file() is None:
        _say(console, "The extra `local` is not installed: the simulator answers, not a model.")
        port = _free_port()
        command = [sys.executable, "-m", "sluicegate", "simulate", "--port", str(port)]
        simulator = children.enter_context(Child("the simulator", command, FOLDER / "simulator.log"))
        simulator.wait_until(lambda: _answers(port, "/"), READY_TIMEOUT_S)
        return Provider("simulator", f"http://{HOST}:{port}", PUBLIC_MODEL)
    started_at = time.monotonic()
    model = children.enter_context(LocalModel(FOLDER / "model.log"))
    with console.status("Loading SmolLM2, 135 million parameters, 98 MB …"):
        url = model.wait_ready()
    _say(console, f"SmolLM2 135M is loaded, in {time.monotonic() - started_at:.1f} s.")
    return Provider("local", url, MODEL)


def _start_gate(console: Console, children: contextlib.ExitStack, port: int, configuration: str) -> Child:
    path = FOLDER / "sluicegate.yaml"
    _write_private(path, configuration)
    command = [sys.executable, "-m", "sluicegate", "serve", "--config", str(path)]
    gate = Child("the gate", command, FOLDER / "gate.log", stop_within_s=DRAIN_TIMEOUT_S + 3.0)
    children.enter_context(gate)
    with console.status("Starting the gate …"):
        gate.wait_until(lambda: _answers(port, "/readyz"), READY_TIMEOUT_S)
    _say(console, f"The gate is open on http://{HOST}:{port}, configured by {path}.")
    return gate


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _answers(port: int, path: str) -> bool | None:
    """Return True once a GET is answered with a success, else None."""
    connection = HTTPConnection(HOST, port, timeout=2.0)
    try:
        connection.request("GET", path)
        return True if connection.getresponse().status < 300 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def _show_short_answer(
    console: Console, key: str, port: int, format: WireFormat, path: str, body: dict[str, Any]
) -> None:
    """Stream one short answer and say, in one line, what it used and cost."""
    _say(console, f"\n{format.name}, POST {path}")
    _say(console, body.get("prompt", ""), end="")
    receipt = stream_answer(
        (HOST, port), key, format, path, body, lambda text: _say(console, text.replace("\n", " "), end="")
    )
    _say(console, " …" if receipt.output_tokens >= SHORT_TOKENS else "")
    _say(console, f"{_usage(receipt)}, {_cost(receipt)}", style="dim")


def _show_receipt(console: Console, receipt: Receipt) -> None:
    _say(console, f"usage         {_usage(receipt)}")
    _say(console, f"cost          {_cost(receipt)}")
    _say(console, f"first token   {receipt.first_token_s * 1000:.0f} ms")
    if receipt.tokens_per_s is not None:
        _say(console, f"pace          {receipt.tokens_per_s:.1f} tokens a second")


def _usage(receipt: Receipt) -> str:
    cached = f" ({receipt.cached_tokens} of them cached)" if receipt.cached_tokens else ""
    return f"{receipt.input_tokens} tokens read{cached}, {receipt.output_tokens} written"


def _cost(receipt: Receipt) -> str:
    return f"${format_usd(receipt.cost_nano_usd)} ({receipt.cost_nano_usd:,} nano-dollars)"


def _show_next_steps(console: Console, url: str, key: str, request: dict[str, object]) -> None:
    _say(console, "\nTry it with curl:\n", style="bold")
    _say(console, CURL.format(url=url, key=key, body=json.dumps(request)))
    _say(console, "or in Python:\n", style="bold")
    _say(console, SNIPPET.format(url=url, key=key, body=repr(request)))
    _say(
        console,
        f"or with an SDK and that key: base URL {url}/v1 for OpenAI's, {url} for Anthropic's and Gemini's.",
        style="bold",
    )
    _say(console, "Then see what it cost:\n", style="bold")
    _say(console, f"{_this_command()} usage --config {FOLDER / 'sluicegate.yaml'}\n")
    _say(console, "Serving until Ctrl-C.")


def _this_command() -> str:
    """Return how the command line was reached, for commands that work as pasted."""
    script = Path(sys.argv[0])
    return (
        shlex.quote(sys.argv[0])
        if script.name == "sluicegate"
        else f"{shlex.quote(sys.executable)} -m sluicegate"
    )
