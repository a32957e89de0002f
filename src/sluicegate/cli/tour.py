"""One streamed chat completion, read as a client reads it, with the times that a client sees."""

import json
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

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
    """Ask for one chat completion, pass its text on as it comes, and return what it cost.

    Args:
        request: the body, but for what asks for a stream with usage.
    Raises:
        TourFailed: no answer, an error, or a stream without its end or its usage.
    """
    body = json.dumps({**request, "stream": True, "stream_options": {"include_usage": True}})
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection = HTTPConnection(*address, timeout=READ_TIMEOUT_S)
    try:
        asked_at = time.monotonic()
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise TourFailed(f"status {response.status}: {_error_message(response.read())}")
        usage: dict[str, Any] = {}
        first_at = last_at = 0.0
        ended = False
        for line in response:
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                ended = True
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            if "error" in chunk:
                raise TourFailed(_error_message(line.removeprefix(b"data: ")))
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                if text := choice["delta"].get("content"):
                    last_at = time.monotonic()
                    first_at = first_at or last_at
                    on_text(text)
    except (OSError, HTTPException) as error:
        raise TourFailed(f"the gate did not answer: {error}") from error
    finally:
        connection.close()
    if not (ended and usage and first_at):
        raise TourFailed("the stream ended without its end marker, its usage or any text")
    output_tokens = usage["completion_tokens"]
    return Receipt(
        input_tokens=usage["prompt_tokens"],
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        output_tokens=output_tokens,
        cost_nano_usd=usage["cost_nano_usd"],
        first_token_s=first_at - asked_at,
        tokens_per_s=(output_tokens - 1) / (last_at - first_at) if last_at > first_at else None,
    )


def _error_message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
