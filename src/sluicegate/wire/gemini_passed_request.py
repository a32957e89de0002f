"""A Gemini request read by its edges: what routing and metering need, and the body a provider gets.

The body is never rebuilt: what has to change (a token limit, a model's name inside) is edited at its offset, in the
spelling it has there. Both spellings of a key are one key, so a second one is a duplicate. What is wrong deeper inside,
a provider of this format says itself. Source: wire formats page `gemini.md`.
"""

import re
from hashlib import blake2b

from sluicegate.errors import BadRequest
from sluicegate.wire import json_edit
from sluicegate.wire.gemini_fields import Fields, camel
from sluicegate.wire.gemini_foreign_state import without_foreign_state
from sluicegate.wire.gemini_request_decoder import MAX_CHOICES
from sluicegate.wire.json_edit import Edit, Member
from sluicegate.wire.kept_ids import may_name_ids
from sluicegate.wire.request_edges import MEDIA_TOKENS, estimate_input, other_models, read_members, tier_named

_CONFIG = "generationConfig"
_LIMIT = "maxOutputTokens"
_FILE_URL = re.compile(rb'"file(?:Uri|_uri)"\s*+:')


class GeminiRequest:
    """One request as the client sent it. Offsets are into `body`. See `PassedRequest`."""

    __slots__ = (
        "_config",
        "_config_at",
        "_files",
        "_members",
        "body",
        "cached_content",
        "choices",
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

    def __init__(self, body: bytes, model: str, *, stream: bool) -> None:
        """Read a body.

        Args:
            model, stream: what the path says.
        Raises:
            BadRequest: what is wrong, and `param` says where.
        """
        if not model:
            raise BadRequest("The path names no model.", param="model")
        self.body = body
        self.model = model
        self.stream = stream
        self._members = read_members(body)
        _refuse_duplicates(self._members, "")
        top = Fields(body, "")
        self.include_usage = True
        self.continuous_usage = False
        self.names_other_models = other_models(
            {member.key for member in self._members}, self.value, ("models",)
        )
        """The field that names models beside the path's: ours, as the format has none."""
        self.cached_content = top.text("cachedContent")
        """The provider's id of a cache, which belongs to the account that made it."""
        contents = _contents(top)
        self._config: list[Member] = []
        self._config_at: int | None = None
        self.choices = 1
        self.max_output_tokens: int | None = None
        self.max_output_key = f"{_CONFIG}.{_LIMIT}"
        self._read_config(top)
        self._files = len(_FILE_URL.findall(body))
        self.input_estimate = estimate_input(body, len(contents)) + MEDIA_TOKENS * self._files
        first = (top.raw("systemInstruction") or b"") + contents[0]
        self.messages_hash = blake2b(first, digest_size=16).digest()

    def _read_config(self, top: Fields) -> None:
        config = top.object(_CONFIG)
        if config is None:
            return
        self._config_at = next(member.start for member in self._members if camel(member.key) == _CONFIG)
        self._config = json_edit.inner_members(self.body, self._config_at)
        _refuse_duplicates(self._config, f"{_CONFIG}.")
        self.choices = config.integer("candidateCount", 1, MAX_CHOICES) or 1
        self.max_output_tokens = config.integer(_LIMIT, 1)

    @property
    def names_kept_state(self) -> bool:
        """Whether it may name what a provider keeps."""
        return self.cached_content is not None or self._files > 0 or may_name_ids(self.body, "gemini")

    def release(self) -> None:
        """Let the body go: there will be no other attempt."""
        self.body = b""
        self._members = []

    def value(self, key: str) -> bytes | None:
        """Return a top-level value's bytes; None where it is absent."""
        for member in self._members:
            if member.key == key:
                return self.body[member.start : member.end]
        return None

    @property
    def service_tier(self) -> str | None:
        """The tier that it asks to be served by, where it names one."""
        return tier_named(Fields(self.body, "").raw("serviceTier"))

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
            model: of no matter: the path says it.
            ask_usage: of no matter: this format always tells usage.
            drop: top-level fields it must not see, in either spelling.
            max_output_tokens: the limit to send instead of the client's, or None.
        """
        unwanted = {camel(key) for key in drop} | {"model"}
        dropped = {member.key for member in self._members if camel(member.key) in unwanted}
        wanted: dict[str, bytes] = {}
        edits = self._state_edits()
        if max_output_tokens is not None:
            limit = b"%d" % max_output_tokens
            if self._config_at is None:
                spelled = _spelled(self._members, _CONFIG)
                wanted[spelled] = b'{"%b":%b}' % (_LIMIT.encode(), limit)
            elif _CONFIG not in unwanted:
                values = {_spelled(self._config, _LIMIT): limit}
                edits += json_edit.edits(self.body, self._config, values, start=self._config_at)
        edits += json_edit.edits(self.body, self._members, wanted, dropped)
        return json_edit.splice(self.body, edits)

    def _state_edits(self) -> list[Edit]:
        member = next(member for member in self._members if member.key == "contents")
        contents = self.body[member.start : member.end]
        cleaned = without_foreign_state(contents)
        return [] if cleaned is contents else [(member.start, member.end, cleaned)]


def _spelled(members: list[Member], name: str) -> str:
    """Return the spelling in which a key stands among members."""
    return next((member.key for member in members if camel(member.key) == name), name)


def _refuse_duplicates(members: list[Member], path: str) -> None:
    seen: set[str] = set()
    for member in members:
        name = camel(member.key)
        if name in seen:
            where = f"{path}{name}"
            raise BadRequest(f"Duplicate key '{where}' (at byte {member.key_at}).", param=where)
        seen.add(name)


def _contents(top: Fields) -> list[bytes]:
    """Return the conversation's contents as they stand."""
    raw = top.raw("contents")
    if raw is None:
        raise BadRequest("contents: missing required field", param="contents")
    if raw.startswith(b"{"):
        return [raw]
    if not raw.startswith(b"["):
        raise BadRequest("contents: expected an array of objects", param="contents")
    found = [raw[start:end] for start, end in json_edit.elements(raw, 0)]
    if not found:
        raise BadRequest("contents: must not be empty", param="contents")
    for place, content in enumerate(found):
        if not content.startswith(b"{"):
            raise BadRequest(f"contents[{place}]: expected an object", param=f"contents[{place}]")
    return found
