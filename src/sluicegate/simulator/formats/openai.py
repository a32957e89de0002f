"""What the OpenAI formats share: framing, error shapes, usage names. Source: the vendor's API description."""

from typing import Any

import msgspec

from sluicegate.messages import Usage
from sluicegate.simulator.formats.base import Fault

CREATED = 1_700_000_000
"""Wall time of every simulated answer."""
FINGERPRINT = "fp_simulated"

TYPES = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("request_forbidden", None),
    404: ("invalid_request_error", "model_not_found"),
    409: ("invalid_request_error", None),
    413: ("invalid_request_error", None),
    422: ("invalid_request_error", None),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
}


def event(payload: Any, name: str | None = None) -> bytes:
    """Return one event of a stream."""
    data = b"data: " + msgspec.json.encode(payload) + b"\n\n"
    return data if name is None else b"event: " + name.encode() + b"\n" + data


def error_object(fault: Fault) -> dict[str, Any]:
    """Return the inner error object."""
    type_, code = TYPES.get(fault.status, ("server_error", None))
    return {"message": fault.message, "type": fault.type or type_, "param": None, "code": fault.code or code}


def error_body(fault: Fault) -> bytes:
    """Return the JSON body of an error status."""
    return msgspec.json.encode({"error": error_object(fault)})


def error_event(fault: Fault) -> bytes:
    """Return an error inside a chat or completions stream."""
    return event({"error": error_object(fault)})


def usage_object(usage: Usage) -> dict[str, Any]:
    """Return usage as chat and completions spell it."""
    prompt, output = usage.input_tokens or 0, usage.output_tokens or 0
    spelled: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }
    if usage.cache_read_tokens is not None or usage.cache_write_tokens is not None:
        details = {"cached_tokens": usage.cache_read_tokens or 0}
        if usage.cache_write_tokens is not None:
            details["cache_write_tokens"] = usage.cache_write_tokens
        spelled["prompt_tokens_details"] = details
    if usage.reasoning_tokens is not None:
        spelled["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return spelled
