"""A Chat Completions request read by its edges: what routing and metering need, and the body a provider gets.

The body is never rebuilt: what has to change (the model, options that are ours, a token limit) is edited at its offset.
Source: wire formats page `chat-completions.md`.
"""

import re
from collections.abc import Callable, Container
from hashlib import blake2b
from typing import Any, NoReturn

import msgspec

from sluicegate.errors import BadRequest, DecodeError
from sluicegate.wire import json_edit
from sluicegate.wire.json_edit import Member

READ_KEYS = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "models",
        "fallbacks",
        "prompt",
        "user",
        "metadata",
        "prompt_cache_key",
        "service_tier",
    }
)
"""Top-level keys that the gate reads: a duplicate would let one value be priced and another be served."""
MESSAGE_TOKENS = 16
BYTES_PER_TOKEN = 3
MEDIA_TOKENS = 1600
MEDIA_BYTES_PER_TOKEN = 40
_MEDIA_SCAN_BYTES = 16_384
_BASE64 = re.compile(rb"(?:;base64,|\"data\"\s*:\s*\")([A-Za-z0-9+/=_\-]{64,})")
_MEDIA_URL = re.compile(rb"\"url\"\s*:\s*\"https?://")
MAX_CHOICES = 128


class _Message(msgspec.Struct, gc=False):
    role: str


class _Edges(msgspec.Struct, gc=False):
    model: Any = None
    messages: list[_Message] | None = None
    stream: Any = None
    n: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None


_decode_messages = msgspec.json.Decoder(list[_Message]).decode
_decode_edges = msgspec.json.Decoder(_Edges).decode


class ChatRequest:
    """One request as the client sent it. Offsets are into `body`."""

    __slots__ = (
        "_all_members",
        "_members",
        "body",
        "choices",
        "continuous_usage",
        "include_usage",
        "input_estimate",
        "max_output_key",
        "max_output_tokens",
        "model",
        "stream",
    )

    def __init__(self, body: bytes) -> None:
        """Read a body.

        Raises:
            BadRequest: what is wrong, and `param` says where.
        """
        self.body = body
        self._all_members = read_members(body)
        self._members = {member.key: member for member in self._all_members}
        try:
            edges = _decode_edges(body)
        except msgspec.ValidationError:
            # One of them cannot be read; the others are told of first.
            edges = _Edges(**{key: self._value(key) for key in _Edges.__struct_fields__ if key != "messages"})
        self.model = _text("model", edges.model)
        self.stream = _flag("stream", edges.stream)
        if edges.messages is None or not edges.messages:
            self._refuse_messages()
        self.choices = _number("n", edges.n, 1, MAX_CHOICES) or 1
        self.max_output_key = "max_completion_tokens"
        self.max_output_tokens = _number("max_completion_tokens", edges.max_completion_tokens, 1)
        legacy = _number("max_tokens", edges.max_tokens, 1)
        if self.max_output_tokens is None and legacy is not None:
            self.max_output_key, self.max_output_tokens = "max_tokens", legacy
        options = self._read_stream_options() if "stream_options" in self._members else {}
        self.continuous_usage = options.get("continuous_usage_stats", False)
        self.include_usage = options.get("include_usage", False) or self.continuous_usage
        self.input_estimate = estimate_input(body, len(edges.messages or ()))

    def value(self, key: str) -> bytes | None:
        """Return a top-level value's bytes; None where it is absent."""
        member = self._members.get(key)
        return None if member is None else self.body[member.start : member.end]

    @property
    def names_other_models(self) -> str | None:
        """The field that names models beside `model`, where there is one."""
        return other_models(self._members, self.value)

    @property
    def messages_hash(self) -> bytes:
        """Of all up to the first user message: requests of one conversation share it."""
        raw = self.value("messages") or b"[]"
        end = 0
        for start, end in json_edit.elements(raw, 0):
            if b'"user"' in raw[start:end]:
                break
        return blake2b(raw[:end], digest_size=16).digest()

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
            ask_usage: the provider takes `stream_options.include_usage`, and the request is streamed.
            drop: top-level fields it must not see.
            max_output_tokens: the limit to send instead of the client's, or None.
        """
        body = self.body
        wanted = {"model": json_edit.dumps(model)}
        dropped = set(drop)
        if not ask_usage:
            dropped.add("stream_options")
        elif "stream_options" not in dropped:
            wanted["stream_options"] = self._options_asking_usage()
        if max_output_tokens is not None:
            wanted[self.max_output_key] = b"%d" % max_output_tokens
        return json_edit.splice(body, json_edit.edits(body, self._all_members, wanted, dropped))

    def _options_asking_usage(self) -> bytes:
        options = self.value("stream_options")
        if options is None or options == b"null":
            return b'{"include_usage":true}'
        return json_edit.changed(options, {"include_usage": b"true"}, ("continuous_usage_stats",))

    def _value(self, key: str) -> Any:
        raw = self.value(key)
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            # The whole body was read before: only a number beyond all bounds, or one level too deep, comes here.
            raise BadRequest(f"Invalid value for '{key}'.", param=key) from None

    def _read_stream_options(self) -> dict[str, bool]:
        raw = self.value("stream_options")
        if raw is None or raw == b"null":
            return {}
        if not raw.startswith(b"{"):
            raise BadRequest("Invalid type for 'stream_options': expected an object.", param="stream_options")
        if not self.stream:
            raise BadRequest(
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                param="stream_options",
            )
        switches: dict[str, bool] = {}
        seen: set[str] = set()
        for member in json_edit.inner_members(raw, 0):
            where = f"stream_options.{member.key}"
            if member.key in seen:
                raise BadRequest(f"Duplicate key '{member.key}'.", param=where)
            seen.add(member.key)
            if member.key in ("include_usage", "continuous_usage_stats"):
                value = raw[member.start : member.end]
                if value not in (b"true", b"false", b"null"):
                    raise BadRequest(f"Invalid type for '{where}': expected a boolean.", param=where)
                switches[member.key] = value == b"true"
        return switches

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


def _text(key: str, value: object) -> str:
    if value is None:
        raise BadRequest(f"Missing required parameter: '{key}'.", param=key)
    if not isinstance(value, str):
        raise BadRequest(f"Invalid type for '{key}': expected a string.", param=key)
    if not value:
        raise BadRequest(f"Invalid '{key}': must not be empty.", param=key)
    return value


def _flag(key: str, value: object) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise BadRequest(f"Invalid type for '{key}': expected a boolean.", param=key)
    return value


def _number(key: str, value: object, low: int, high: int = 2**31) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"Invalid type for '{key}': expected an integer.", param=key)
    if not low <= value <= high:
        raise BadRequest(f"Invalid '{key}': must be between {low} and {high}.", param=key)
    return value


def other_models(
    keys: Container[str],
    value: Callable[[str], bytes | None],
    names: tuple[str, ...] = ("models", "fallbacks", "prompt"),
) -> str | None:
    """Return the field that names models beside `model`, where a request has one.

    Args:
        keys: of the request's top level.
        value: returns the bytes of one of its values.
    """
    return next((key for key in names if key in keys and value(key) not in (b"null", b"[]", b"{}")), None)


def read_members(body: bytes) -> list[Member]:
    """Read a request's top level, strictly: UTF-8, whole characters, no duplicate of a key that the gate reads.

    Raises:
        BadRequest: what is wrong, with the byte offset where one can be told.
    """
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"The request body is not UTF-8 (at byte {error.start}).") from None
    if b"\\u" in body:
        at = json_edit.lone_surrogate(body)
        if at is not None:
            raise BadRequest(f"The request body holds half a surrogate pair (at byte {at}).")
    try:
        members = json_edit.members(body)
    except DecodeError as error:
        raise BadRequest(f"The request body is not valid: {error.message}.") from None
    seen: set[str] = set()
    for member in members:
        if member.key in seen and member.key in READ_KEYS:
            raise BadRequest(f"Duplicate key '{member.key}' (at byte {member.key_at}).", param=member.key)
        seen.add(member.key)
    return members


def estimate_input(body: bytes, messages: int) -> int:
    """Estimate the tokens of a request from above, without a tokenizer: bytes / 3, media by their size or kind."""
    size = len(body)
    media = 0
    if size > _MEDIA_SCAN_BYTES:
        for match in _BASE64.finditer(body):
            encoded = match.end(1) - match.start(1)
            size -= encoded
            image = b"image/" in body[max(0, match.start(1) - 96) : match.start(1)]
            media += MEDIA_TOKENS if image else max(1, encoded * 3 // 4 // MEDIA_BYTES_PER_TOKEN)
    if b"http" in body:
        media += MEDIA_TOKENS * len(_MEDIA_URL.findall(body))
    return -(-size // BYTES_PER_TOKEN) + MESSAGE_TOKENS * messages + media
