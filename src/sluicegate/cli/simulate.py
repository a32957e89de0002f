"""`sluicegate simulate`: a scripted provider for load tests and for trying faults."""

import ssl
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sluicegate.errors import BadRequest
from sluicegate.simulator.process import run
from sluicegate.simulator.server import words
from sluicegate.simulator.settings import SimulatorSettings


def simulate(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 4010,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    tls_cert: Annotated[str | None, typer.Option(help="Certificate file (PEM): speaks TLS.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Key file (PEM).")] = None,
    tokens: Annotated[int, typer.Option(min=0, help="Length of an answer.")] = 64,
    tokens_per_s: Annotated[float, typer.Option(min=0, help="Pace; 0: all at once.")] = 50.0,
    tokens_per_event: Annotated[int, typer.Option(min=1, help="Tokens in one event.")] = 1,
    first_token_ms: Annotated[float, typer.Option(min=0, help="Wait before the first event.")] = 100.0,
    prompt_tokens: Annotated[int, typer.Option(min=0, help="Input tokens that usage reports.")] = 9,
    stamped: Annotated[
        bool, typer.Option(help="Each piece of text is its sending time: 19 digits of monotonic nanoseconds.")
    ] = False,
    keep: Annotated[int, typer.Option(min=0, help="Requests that are remembered.")] = 10_000,
    list_models: Annotated[bool, typer.Option("--list", help="Print the model names it knows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: one object a line.")] = False,
) -> None:
    """Serve scripted answers in five formats, healthy or faulty, by the model's name."""
    if list_models:
        for word, meaning in words():
            line = msgspec.json.encode({"model": word, "answer": meaning}).decode()
            typer.echo(line if as_json else f"{word:20} {meaning}")
        return
    for file in (tls_cert, tls_key):
        if file is not None and not Path(file).is_file():
            raise BadRequest(f"there is no file {file}")
    if tls_key is not None and tls_cert is None:
        raise BadRequest("--tls-key goes with --tls-cert")
    settings = SimulatorSettings(
        host=host,
        port=port,
        tls_cert_file=tls_cert,
        tls_key_file=tls_key,
        tokens=tokens,
        tokens_per_event=tokens_per_event,
        input_tokens=prompt_tokens,
        first_token_s=first_token_ms / 1000,
        interval_s=tokens_per_event / tokens_per_s if tokens_per_s else 0.0,
        stamped=stamped,
        keep=keep,
    )
    try:
        run(settings)
    except ssl.SSLError:
        raise BadRequest("--tls-cert and --tls-key are no PEM certificate and the key that fits it") from None
    except OSError as error:
        raise BadRequest(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
