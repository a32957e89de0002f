"""What requests of chat and completions share: a body read by its edges, and the body a provider gets.

The body is never rebuilt: what has to change (the model, options that are ours, a token limit) is edited at its offset.
Source: wire formats pages `chat-completions.md` and `completions.md`.
"""

from typing import Any, Final

import msgspec

from sluicegate.errors import BadRequest
from sluicegate.wire import json_edit
from sluicegate.wire.json_text import quoted_name
from sluicegate.wire.kept_ids import may_name_ids
from sluicegate.wire.request_edges import ReadBody, other_models, tier_named

MAX_CHOICES: Final = 128
_OTHER_MODELS = ("models", "fallbacks")
_ASKING_USAGE: Final = (b'{"include_usage":true}', b'{"include_usage": true}')
"""How clients spell options that ask for usage and nothing else: a provider may have them as they are."""


class OpenAIRequest(ReadBody):
    """One request as the client sent it. Offsets are into `body`."""

    __slots__ = (
        "choices",
        "continuous_usage",
        "include_usage",
        "input_estimate",
        "max_output_key",
        "max_output_tokens",
        "model",
        "stream",
    )
    model: str
    stream: bool
    choices: int
    continuous_usage: bool
    include_usage: bool
    input_estimate: int
    max_output_key: str
    max_output_tokens: int | None

    @property
    def messages_hash(self) -> bytes:
        """Hash of the first messages, as each of the formats has them."""
        raise NotImplementedError

    @property
    def service_tier(self) -> str | None:
        """The tier that it asks to be served by, where it names one."""
        return tier_named(self.value("service_tier"))

    @property
    def names_kept_state(self) -> bool:
        """Whether it may name what a provider keeps."""
        return may_name_ids(self.body, "chat")

    @property
    def asks_sound(self) -> bool:
        """Whether it wants an answer to be spoken, which the provider keeps for the turns that follow."""
        return "audio" in self._fields

    @property
    def names_other_models(self) -> str | None:
        """The field that names models beside `model`, where there is one."""
        fields = self._fields
        if "models" in fields or "fallbacks" in fields:
            return other_models(fields, self.value, _OTHER_MODELS)
        return None

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
        named = quoted_name(model)
        if not drop and max_output_tokens is None:
            options = self.value("stream_options")
            if options in _ASKING_USAGE if ask_usage else options is None:
                start, end = self._place("model")  # nothing else changes
                return b"%b%b%b" % (body[:start], named, body[end:])
        wanted = {"model": named}
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

    def _read_stream_options(self) -> None:
        """Read whether the client wants usage. Raises BadRequest."""
        raw = self.value("stream_options")
        if raw is None or (raw in _ASKING_USAGE and self.stream):  # nearly always
            self.continuous_usage = False
            self.include_usage = raw is not None
            return
        options = self._stream_options()
        self.continuous_usage = options.get("continuous_usage_stats", False)
        self.include_usage = options.get("include_usage", False) or self.continuous_usage

    def _stream_options(self) -> dict[str, bool]:
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
