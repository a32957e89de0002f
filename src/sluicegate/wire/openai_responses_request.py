"""A Responses request read by its edges: what routing and metering need, and the body a provider gets.

The body is never rebuilt: what has to change (the model, a token limit) is edited at its offset. What is wrong deeper
inside, a provider of this format says itself. State that a provider keeps is only named here: whose it is, and whether
it may be used, is for others to say. Source: wire formats page `responses.md`, "Request fields" and "State".
"""

import re
from hashlib import blake2b
from typing import Any

import msgspec

from sluicegate.errors import BadRequest
from sluicegate.wire import json_edit
from sluicegate.wire.kept_ids import may_name_ids
from sluicegate.wire.openai_request import OpenAIRequest
from sluicegate.wire.request_edges import (
    MEDIA_TOKENS,
    estimate_input,
    flag,
    needed_text,
    number,
    other_models,
)

_READ_KEYS = frozenset(
    {
        "input",
        "instructions",
        "max_output_tokens",
        "previous_response_id",
        "conversation",
        "background",
        "store",
    }
)
"""Keys that the gate reads here beside those that it reads of any request."""
_STATE = ("previous_response_id", "conversation", "prompt")
"""Where one of these is given, the input may be missing."""
_OTHER_MODELS = ("prompt", "models", "fallbacks")
_TOOL_STATE = re.compile(rb"container|vector_store|skill_id")
_HASHED_BYTES = 1024
_MEDIA_URL = re.compile(rb'"(?:image_url|file_url)"\s*+:\s*+"https?://')
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class ResponsesRequest(OpenAIRequest):
    """One request as the client sent it. See `PassedRequest`."""

    __slots__ = ("background", "conversation_id", "previous_response_id", "store")

    def __init__(self, body: bytes) -> None:
        """Read a body.

        Raises:
            BadRequest: what is wrong, and `param` says where.
        """
        super().__init__(body)
        self._refuse_duplicates()
        self.model = needed_text("model", self._value("model"))
        self.stream = flag("stream", self._value("stream"))
        self.background: bool = flag("background", self._value("background"))
        """The client wants the answer made while it is away, and will ask for it."""
        self.store: bool = self._value("store") is not False
        """The provider keeps the answer, which is what the format does where nothing is said."""
        self.previous_response_id: str | None = self._state_id("previous_response_id")
        """Of an answer that the provider keeps, and that this request goes on from."""
        self.conversation_id: str | None = self._state_id("conversation")
        """Of a conversation that the provider keeps."""
        if self.previous_response_id is not None and self.conversation_id is not None:
            raise BadRequest(
                "'previous_response_id' and 'conversation' cannot be used together.", param="conversation"
            )
        self.choices = 1
        self.include_usage = True
        self.continuous_usage = False
        self.max_output_key = "max_output_tokens"
        self.max_output_tokens = number("max_output_tokens", self._value("max_output_tokens"), 1)
        items = self._read_input()
        self.input_estimate = estimate_input(body, items) + MEDIA_TOKENS * len(_MEDIA_URL.findall(body))

    @property
    def names_kept_state(self) -> bool:
        """Whether it may name what a provider keeps, or wants it to keep working."""
        return (
            self.previous_response_id is not None
            or self.conversation_id is not None
            or self.background
            or may_name_ids(self.body, "responses")
            or ("tools" in self._fields and _TOOL_STATE.search(self.value("tools") or b"") is not None)
        )

    @property
    def messages_hash(self) -> bytes:
        """Of the beginning: requests of one conversation share it."""
        first = self.value("input") or b""
        inside = first[1:].lstrip()
        if first.startswith(b"[") and inside.startswith(b"{"):
            first = inside[: json_edit.value_end(inside, 0)]
        said = (self.value("instructions") or b"")[:_HASHED_BYTES] + first[:_HASHED_BYTES]
        return blake2b(said, digest_size=16).digest()

    @property
    def names_other_models(self) -> str | None:
        """The field that names models beside `model`, where there is one: a stored prompt has one of its own."""
        return other_models(self._fields, self.value, _OTHER_MODELS)

    def upstream_body(
        self,
        model: str,
        *,
        ask_usage: bool,
        drop: tuple[str, ...] = (),
        max_output_tokens: int | None = None,
    ) -> bytes:
        """Return the body for a provider.

        Args:
            model: the provider's id.
            ask_usage: of no matter: this format always tells usage.
            drop: top-level fields it must not see.
            max_output_tokens: the limit to send instead of the client's, or None.
        """
        wanted = {"model": json_edit.dumps(model)}
        if max_output_tokens is not None:
            wanted[self.max_output_key] = b"%d" % max_output_tokens
        return json_edit.splice(self.body, json_edit.edits(self.body, self._all_members, wanted, set(drop)))

    def _refuse_duplicates(self) -> None:
        if len(self._fields) == len(self._all_members):
            return
        seen: set[str] = set()
        for member in self._all_members:
            if member.key in seen and member.key in _READ_KEYS:
                raise BadRequest(f"Duplicate key '{member.key}' (at byte {member.key_at}).", param=member.key)
            seen.add(member.key)

    def _state_id(self, key: str) -> str | None:
        value: Any = self._value(key)
        if isinstance(value, dict) and key == "conversation":
            value = value.get("id")
        if value is not None and not isinstance(value, str):
            raise BadRequest(f"Invalid type for '{key}': expected a string.", param=key)
        return value or None

    def _read_input(self) -> int:
        """Return how many items there are."""
        raw = self.value("input")
        if raw is None or raw == b"null":
            if any(self.value(key) not in (None, b"null") for key in _STATE):
                return 0
            raise BadRequest("Missing required parameter: 'input'.", param="input")
        if raw.startswith(b'"'):
            return 1
        if not raw.startswith(b"["):
            raise BadRequest("Invalid type for 'input': expected a string or an array.", param="input")
        try:
            items = _decode_items(raw)
        except RecursionError:
            raise BadRequest("Invalid 'input': nested too deeply.", param="input") from None
        for place, item in enumerate(items):
            if bytes(memoryview(item)[:1]) != b"{":
                where = f"input[{place}]"
                raise BadRequest(f"Invalid type for '{where}': expected an object.", param=where)
        if not items and all(self.value(key) in (None, b"null") for key in _STATE):
            raise BadRequest("Invalid 'input': must not be empty.", param="input")
        return len(items)
