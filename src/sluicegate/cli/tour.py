"""One streamed answer, in whichever format, read as a client reads it, with the times that a client sees."""

import json
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

from sluicegate.cli.tour_formats import CHAT, WireFormat

READ_TIMEOUT_S = 60.0


class TourFailed(Exception):
    """The gate refused the request or broke off its answer; the message says why."""


class Receipt(NamedTuple):
    """What one answer used, cost and took."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_nano_usd: int
    first_token_s: float
    tokens_per_s: float | None
    """Pace after the first token; None where a single piece came."""


def stream_chat(
    address: tuple[str, int], key: str, request: dict[str, Any], on_text: Callable[[str], None]
) -> Receipt:
    """Ask for one chat completion; as `stream_answer`.

    Args:
        request: the body, but for what asks for a stream with usage.
    """
    body = {**request, "stream": True, "stream_options": {"include_usage": True}}
    return stream_answer(address, key, CHAT, CHAT.path, body, on_text)


def stream_answer(
    address: tuple[str, int],
    key: str,
    format: WireFormat,
    path: str,
    body: dict[str, Any],
    on_text: Callable[[str], None],
) -> Receipt:
    """Ask for one streamed answer, pass its text on as it comes, and return what it cost.

    Args:
        body: of a request for a stream, and for its usage where the format makes that an option.
    Raises:
        TourFailed: no answer, an error, or a stream without its end or its usage.
    """
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection = HTTPConnection(*address, timeout=READ_TIMEOUT_S)
    try:
        asked_at = time.monotonic()
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise TourFailed(f"{path}: status {response.status}: {_error_message(response.read())}")
        usage: dict[str, Any] = {}
        first_at = last_at = 0.0
        ended = False
        for line in response:
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                ended = True
                continue
            event = json.loads(line.removeprefix(b"data: "))
            if error := event.get("error") or event.get("response", {}).get("error"):
                raise TourFailed(f"{path}: {error['message']}")
            told = format.read(event)
            usage |= told.usage or {}
            ended = ended or told.ended
            if told.text:
                last_at = time.monotonic()
                first_at = first_at or last_at
                on_text(told.text)
    except (OSError, HTTPException) as error:
        raise TourFailed(f"the gate did not answer: {error}") from error
    finally:
        connection.close()
    if not (ended and usage and first_at):
        raise TourFailed(f"{path}: the stream ended without its end marker, its usage or any text")
    spent = format.spent(usage)
    return Receipt(
        *spent,
        first_token_s=first_at - asked_at,
        tokens_per_s=(spent.output_tokens - 1) / (last_at - first_at) if last_at > first_at else None,
    )


def _error_message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
