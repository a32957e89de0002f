"""Batches: a file of requests that a provider answers within a day, at a price of their own.

What a line of requests may use is estimated when the file is uploaded (`server.batch_files`); what a line of results
did use is read here. Source: OpenAI's API reference, "Batch".
"""

from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from sluicegate.errors import BadRequest, DecodeError
from sluicegate.messages import Endpoint, Format, Usage
from sluicegate.wire import json_edit
from sluicegate.wire.openai_usage import count, read_usage
from sluicegate.wire.request_edges import needed_text
from sluicegate.wire.translation import Asked, Notes, PassedAnswer
from sluicegate.wire.unary import JsonRequest, TargetModel
from sluicegate.wire.unary.jobs import JobAnswer, text_of, top_of

TIER = "batch"
"""The service tier by which a price says what batches cost."""
URLS: dict[str, Format | Literal["embeddings"]] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/embeddings": "embeddings",
}
"""What a batch may ask for; everything else has no price by the token."""
_ENDED: dict[str, str] = {
    "completed": "ok",
    "failed": "rejected",
    "expired": "upstream_error",
    "cancelled": "client_closed",
}
"""A batch's last states, and what its row says of them. What was answered until then is charged in each."""


def input_file_of(body: bytes) -> str:
    """Return the file that a batch is made of, as the client spells it. Raises BadRequest."""
    try:
        top = json_edit.decode_top(body, "batches")
        named = json_edit.loads(bytes(top.get("input_file_id", b"null")))
    except DecodeError as error:
        raise BadRequest(f"The request body is not a JSON object: {error.reason}.") from None
    return needed_text("input_file_id", named)


class BatchRequest(JsonRequest):
    """A batch to be made of a file that was uploaded before."""

    ENDPOINT: ClassVar[Endpoint] = "batches"
    background = True
    names_kept_state = True

    def __init__(self, body: bytes, model: str, keeper: str, file_id: str, units: Usage) -> None:
        """Read a body.

        Args:
            model: the public id, which all requests of the file name.
            keeper: the provider that keeps the file.
            file_id: that provider's.
            units: the most that the requests may use.
        Raises:
            BadRequest
        """
        super().__init__(body, model)
        self.model = model
        self.input_estimate = 0
        self.keeper = keeper
        self._file_id = file_id
        self.units: Usage | None = units
        endpoint = needed_text("endpoint", self.decoded("endpoint"))
        if endpoint not in URLS:
            raise BadRequest(f"Invalid 'endpoint': use one of {', '.join(URLS)}.", param="endpoint")
        needed_text("completion_window", self.decoded("completion_window"))

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return the client's body with the provider's id of the file."""
        wanted = {"input_file_id": json_edit.dumps(self._file_id)}
        return [json_edit.changed(self.body, wanted, {"model", *drop})]

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read the answer. Raises DecodeError."""
        (body,) = bodies
        return JobAnswer(self.ENDPOINT, body, asked)


class BatchState(NamedTuple):
    """What a provider says of a batch."""

    ended: str | None
    """The status of its row; None: it goes on."""
    results: str | None
    """The provider's id of the file with what was answered."""
    errors: str | None
    """Likewise, with what was not."""


def read_state(body: bytes) -> BatchState:
    """Read what a provider says of a batch. Raises DecodeError."""
    top = top_of(body)
    return BatchState(
        _ENDED.get(text_of(top.get("status")) or ""),
        text_of(top.get("output_file_id")),
        text_of(top.get("error_file_id")),
    )


class _Response(msgspec.Struct):
    status_code: int = 0
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Line(msgspec.Struct):
    response: _Response | None = None


_decode_line = msgspec.json.Decoder(_Line).decode


def usage_of_line(line: bytes) -> Usage | None:
    """Return what one line of results used; None where its request failed, or nothing is reported."""
    try:
        response = _decode_line(line).response
        if response is None or not 200 <= response.status_code < 300:
            return None
        body: Any = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    told = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(told, dict):
        return None
    usage = read_usage(msgspec.json.encode(told)) if "prompt_tokens" in told else _of_responses(told)
    if usage is not None:
        usage.output_tokens = usage.output_tokens or 0
        usage.service_tier = TIER
    return usage


def _of_responses(told: dict[str, Any]) -> Usage | None:
    into, out = count(told.get("input_tokens")), count(told.get("output_tokens"))
    if into is None and out is None:
        return None
    read, written = told.get("input_tokens_details"), told.get("output_tokens_details")
    return Usage(
        input_tokens=into,
        output_tokens=out,
        cache_read_tokens=count(read.get("cached_tokens")) if isinstance(read, dict) else None,
        cache_write_tokens=count(read.get("cache_write_tokens")) if isinstance(read, dict) else None,
        reasoning_tokens=count(written.get("reasoning_tokens")) if isinstance(written, dict) else None,
    )


def add(total: Usage, usage: Usage) -> None:
    """Add what one line used to what all did."""
    total.requests = (total.requests or 0) + 1
    total.longest_input_tokens = max(total.longest_input_tokens or 0, usage.input_tokens or 0)
    for name in (
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
    ):
        more = getattr(usage, name)
        if more is not None:
            setattr(total, name, (getattr(total, name) or 0) + more)
