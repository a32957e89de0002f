"""The grammar of a Gemini stream as the gate must emit it, as events or as a growing JSON array.

Source: contract G1, E2; wire/gemini.md, "SDK strictness", and wire/node-sdks.md.
"""

import base64
import json
from typing import Any, Literal

from tests.grammar.narrow_sse import (
    ParsedCall,
    ParsedStream,
    check_cost,
    check_count,
    check_events,
    parse_object,
)


def _check_error(payload: dict[str, Any]) -> dict[str, Any]:
    assert next(iter(payload)) == "error", f"error is not the first key: {payload}"
    error: dict[str, Any] = payload["error"]
    code = error.get("code")
    assert isinstance(code, int), f"error.code is {code!r}"
    assert 400 <= code <= 599, f"error.code is {code}"
    assert isinstance(error.get("message"), str), f"error.message is {error.get('message')!r}"
    assert isinstance(error.get("status"), str), f"error.status is {error.get('status')!r}"
    return error


def _check_part(part: dict[str, Any]) -> None:
    text, call = part.get("text"), part.get("functionCall")
    assert text is None or isinstance(text, str), f"text is {text!r}"
    if call is not None:
        assert isinstance(call["name"], str), f"name is {call['name']!r}"
        assert isinstance(call.get("args", {}), dict), f"args is {call['args']!r}"
    if "thoughtSignature" in part:
        base64.b64decode(part["thoughtSignature"], validate=True)


def check_gemini_stream(
    raw: bytes,
    *,
    model: str | None = None,
    array: bool = False,
    cost_nano_usd: int | None = None,
    end: Literal["done", "error"] | None = "done",
    keepalive: bool = False,
) -> ParsedStream:
    """Check the body of a streamed Gemini answer and return what it said.

    Args:
        raw: the body without HTTP framing.
        model: the `modelVersion` that every event must carry.
        array: the form without `alt=sse`; one that ends with an error is not closed.
        cost_nano_usd: the cost that the last `usageMetadata` must tell.
        end: how it must end, with a finish reason or with an error; None: either.
        keepalive: whether line feeds between events are allowed.
    Raises: AssertionError with what is wrong.
    """
    if array:
        text = raw.decode()
        assert text.startswith("["), "the array has no beginning"
        closed = text.rstrip().endswith("]")
        payloads: list[dict[str, Any]] = json.loads(text if closed else text + "]")
        payloads = [parse_object(json.dumps(payload)) for payload in payloads]
        assert closed == (not payloads or "error" not in payloads[-1]), "closed after an error, or left open"
        kept = 0
    else:
        events, kept = check_events(raw, keepalive="line_feed" if keepalive else None)
        payloads = [parse_object(event.data) for event in events]
    parts: list[tuple[int, dict[str, Any]]] = []
    finishes: dict[int, str] = {}
    seen: set[int] = set()
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    blocked: str | None = None
    response_id: Any = None
    for payload in payloads:
        assert error is None, f"something follows the error: {payload}"
        if "error" in payload:
            error = _check_error(payload)
            continue
        assert model is None or payload.get("modelVersion") == model, f"modelVersion in {payload}"
        assert response_id in (None, payload.get("responseId")), "responseId changed"
        response_id = payload.get("responseId")
        usage = payload.get("usageMetadata", usage)
        if "promptFeedback" in payload:
            blocked = payload["promptFeedback"]["blockReason"]
        else:
            assert payload.get("candidates"), f"no candidates: {payload}"
        for candidate in payload.get("candidates", []):
            index = candidate.get("index", 0)
            assert index not in finishes, f"candidate {index} goes on after its finish: {payload}"
            seen.add(index)
            content, finish = candidate.get("content"), candidate.get("finishReason")
            if content is not None:
                assert content.get("role") == "model", f"role is {content.get('role')!r}"
                assert content.get("parts"), f"no parts: {payload}"
                for part in content["parts"]:
                    _check_part(part)
                    parts.append((index, part))
            else:
                assert finish not in (None, "STOP", "MAX_TOKENS"), f"no content: {payload}"
            if finish is not None:
                finishes[index] = finish
    done = blocked is not None or (bool(seen) and seen == finishes.keys())
    assert done or error is not None, "neither a finish reason nor an error: a false end"
    assert end != "done" or error is None, f"it ended with the error {error}"
    assert end != "error" or error is not None, "it ended properly, not with an error"
    if error is None:
        assert usage is not None, "no usageMetadata"
        assert payloads[-1].get("usageMetadata") is not None, "the last event has no usageMetadata"
        check_count(usage, "promptTokenCount", "totalTokenCount")
        if cost_nano_usd is not None:
            check_cost(usage, cost_nano_usd)
    first = [part for index, part in parts if index == 0]
    calls = [part["functionCall"] for part in first if "functionCall" in part]
    return ParsedStream(
        text="".join(part.get("text", "") for part in first if not part.get("thought")),
        reasoning="".join(part.get("text", "") for part in first if part.get("thought")),
        refusal="",
        tool_calls=[
            ParsedCall(call.get("id", ""), call["name"], json.dumps(call.get("args", {}), default=float))
            for call in calls
        ],
        finish=blocked or finishes.get(0),
        usage=usage,
        error=error,
        events=payloads,
        keepalives=kept,
        texts=tuple(
            "".join(part.get("text", "") for at, part in parts if at == index and not part.get("thought"))
            for index in sorted(seen)
        ),
    )
