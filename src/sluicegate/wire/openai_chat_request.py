"""A Chat Completions request read by its edges: what routing and metering need, and the body a provider gets.

The body is never rebuilt: what has to change (the model, options that are ours, a token limit) is edited at its offset.
Source: wire formats page `chat-completions.md`.
"""

import re
from hashlib import blake2b
from typing import Final, NoReturn

import msgspec

from sluicegate.errors import BadRequest
from sluicegate.wire import json_edit
from sluicegate.wire.kept_ids import may_name_ids
from sluicegate.wire.openai_chat_request_shapes import Edges, Message
from sluicegate.wire.openai_request import MAX_CHOICES, OpenAIRequest
from sluicegate.wire.request_edges import (
    MEDIA_TOKENS,
    READ_KEYS,
    estimate_input,
    flag,
    needed_text,
    number,
    read_members,
)

__all__ = ["MEDIA_TOKENS", "READ_KEYS", "ChatRequest", "estimate_input", "read_members"]


_decode_messages = msgspec.json.Decoder(list[Message]).decode
_decode_edges: Final = msgspec.json.Decoder(Edges).decode


class ChatRequest(OpenAIRequest):
    """One request as the client sent it. See `PassedRequest`."""

    __slots__ = ("_names_sound",)

    def __init__(self, body: bytes) -> None:
        """Read a body.

        Raises:
            BadRequest: what is wrong, and `param` says where.
        """
        super().__init__(body)
        try:
            edges = _decode_edges(body)
        except msgspec.ValidationError:
            # One of them cannot be read; the others are told of first.
            edges = Edges(**{key: self._value(key) for key in Edges.__struct_fields__ if key != "messages"})
        self.model = needed_text("model", edges.model)
        self.stream = flag("stream", edges.stream)
        if edges.messages is None or not edges.messages:
            self._refuse_messages()
        self._names_sound = False
        for message in edges.messages:
            if message.audio is not None:
                self._names_sound = True
        self.choices = 1 if edges.n is None else number("n", edges.n, 1, MAX_CHOICES) or 1
        self.max_output_key = "max_completion_tokens"
        self.max_output_tokens = number("max_completion_tokens", edges.max_completion_tokens, 1)
        legacy = number("max_tokens", edges.max_tokens, 1)
        if self.max_output_tokens is None and legacy is not None:
            self.max_output_key, self.max_output_tokens = "max_tokens", legacy
        self._read_stream_options()
        self.input_estimate = estimate_input(body, len(edges.messages or ()))

    @property
    def messages_hash(self) -> bytes:
        """Of all up to the first user message: requests of one conversation share it."""
        raw = self.value("messages") or b"[]"
        end = 0
        for start, end in json_edit.elements(raw, 0):
            if b'"user"' in raw[start:end]:
                break
        return blake2b(raw[:end], digest_size=16).digest()

    @property
    def names_kept_state(self) -> bool:
        """Whether it may name what a provider keeps: a file, or what it has spoken."""
        return self._names_sound or may_name_ids(self.body, "chat")

    @property
    def names_other_models(self) -> str | None:
        """The field that names models beside `model`, where there is one; a prompt template may."""
        fields = self._fields
        if "prompt" in fields:
            return "prompt"
        return super().names_other_models if "models" in fields or "fallbacks" in fields else None

    def _refuse_messages(self) -> NoReturn:
        raw = self.value("messages")
        if raw is None:
            raise BadRequest("Missing required parameter: 'messages'.", param="messages")
        if not raw.startswith(b"["):
            raise BadRequest("Invalid type for 'messages': expected an array of objects.", param="messages")
        try:
            messages = _decode_messages(raw)
        except RecursionError:
            raise BadRequest("Invalid 'messages': nested too deeply.", param="messages") from None
        except msgspec.ValidationError as error:
            path = re.search(r"`\$((?:\[\d+\]|\[\.\.\.\]|\.\w+)*)`", str(error))
            where = "messages" + (path[1] if path else "")
            if "missing required field" in str(error):
                where += ".role"
                raise BadRequest(f"Missing required parameter: '{where}'.", param=where) from None
            raise BadRequest(f"Invalid type for '{where}'.", param=where) from None
        assert not messages, "they were refused"
        raise BadRequest("Invalid 'messages': must not be empty.", param="messages")
