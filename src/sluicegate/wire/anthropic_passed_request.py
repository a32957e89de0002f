"""A Messages request read by its edges: what routing and metering need, and the body a provider gets.

The body is never rebuilt: what has to change (the model, a token limit) is edited at its offset. What is wrong deeper
inside, a provider of this format says itself. Source: wire formats page `anthropic-messages.md`.
"""

import re
from hashlib import blake2b
from typing import Any

import msgspec

from sluicegate.errors import BadRequest
from sluicegate.wire import json_edit
from sluicegate.wire.anthropic_foreign_state import foreign_state_edits
from sluicegate.wire.anthropic_request_shapes import Message
from sluicegate.wire.kept_ids import may_name_ids
from sluicegate.wire.request_edges import ReadBody, estimate_input, other_models, tier_named

_ROLES = frozenset({"user", "assistant", "system"})


_decode_messages = msgspec.json.Decoder(list[Message]).decode


class AnthropicRequest(ReadBody):
    """One request as the client sent it. Offsets are into `body`. See `PassedRequest`."""

    __slots__ = (
        "choices",
        "container",
        "continuous_usage",
        "include_usage",
        "input_estimate",
        "max_output_key",
        "max_output_tokens",
        "messages_hash",
        "model",
        "names_other_models",
        "stream",
    )

    def __init__(self, body: bytes, *, counting: bool = False) -> None:
        """Read a body.

        Args:
            counting: it only asks for its tokens, and so needs no limit.
        Raises:
            BadRequest: what is wrong, and `param` says where.
        """
        super().__init__(body)
        model = self._value("model", str, "a string")
        if not model:
            raise BadRequest(
                "model: Field required" if model is None else "model: must not be empty", param="model"
            )
        self.model: str = model
        self.stream: bool = self._value("stream", bool, "a boolean") or False
        self.choices = 1
        self.container = self.value("container") not in (None, b"null")
        """It names a container that the vendor keeps."""
        self.include_usage = True
        self.continuous_usage = False
        self.max_output_key = "max_tokens"
        self.max_output_tokens: int | None = self._limit(counting)
        self.names_other_models = other_models(self._fields, self.value, ("models", "fallbacks"))
        """The field that names models beside `model`."""
        messages = self._read_messages()
        self.input_estimate = estimate_input(body, len(messages))
        self.messages_hash = blake2b(
            (self.value("system") or b"") + bytes(messages[0].content), digest_size=16
        ).digest()

    @property
    def names_kept_state(self) -> bool:
        """Whether it may name what a provider keeps."""
        return self.container or may_name_ids(self.body, "messages")

    @property
    def service_tier(self) -> str | None:
        """The tier that it asks to be served by, where it names one."""
        return tier_named(self.value("service_tier"))

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
            wanted["max_tokens"] = b"%d" % max_output_tokens
        edits = json_edit.edits(self.body, self._all_members, wanted, set(drop))
        edits += foreign_state_edits(self.body, self._place("messages")[0])
        return json_edit.splice(self.body, edits)

    def _value(self, key: str, kind: type, called: str) -> Any:
        raw = self.value(key)
        if raw is None:
            return None
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            value = ...  # a number beyond all bounds, or one level too deep: the rest was read before
        if type(value) is not kind:
            raise BadRequest(f"{key}: Input should be {called}", param=key)
        return value

    def _limit(self, counting: bool) -> int | None:
        limit: int | None = self._value("max_tokens", int, "an integer")
        if limit is None and not counting:
            raise BadRequest("max_tokens: Field required", param="max_tokens")
        if limit is not None and not 0 <= limit <= 2**31:
            raise BadRequest("max_tokens: must be between 0 and 2147483648", param="max_tokens")
        return limit

    def _read_messages(self) -> list[Message]:
        raw = self.value("messages")
        if raw is None:
            raise BadRequest("messages: Field required", param="messages")
        try:
            messages = _decode_messages(raw)
        except RecursionError:
            raise BadRequest("messages: nested too deeply", param="messages") from None
        except msgspec.DecodeError as error:
            raise _wrong_message(str(error)) from None
        if not messages:
            raise BadRequest("messages: at least one message is required", param="messages")
        for place, message in enumerate(messages):
            if message.role not in _ROLES:
                where = f"messages[{place}].role"
                raise BadRequest(f"{where}: Input should be 'user' or 'assistant'", param=where)
        return messages


def _wrong_message(said: str) -> BadRequest:
    """Return the error for messages that are none, with the path of the field at fault."""
    path = re.search(r"`\$((?:\[\d+\]|\[\.\.\.\]|\.\w+)*)`", said)
    where = "messages" + (path[1] if path else "")
    missing = re.search(r"missing required field `(\w+)`", said)
    if missing is not None:
        where = f"{where}.{missing[1]}"
        return BadRequest(f"{where}: Field required", param=where)
    return BadRequest(f"{where}: Input should be of another type", param=where)
