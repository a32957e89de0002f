"""The translation matrix as tables: what a client says, what a provider of another format is asked, what is named.

A row is one line of the wire formats page `translation-matrix.md`. Bodies are written and read as JSON alone; between
them runs what the gate runs: the client format's decoder, the provider format's encoder, one `Notes` each.
"""

import json
from typing import Any, NamedTuple

import pytest

from sluicegate.capabilities import Capabilities
from sluicegate.errors import UnsupportedFeature
from sluicegate.messages import Format
from sluicegate.routing.families import FORMATS as EXPECTED
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.translation import Notes, Policy

Body = dict[str, Any]
SPEAKERS: tuple[Format, ...] = ("chat", "responses", "messages", "gemini")
"""The formats that hold conversations."""
ABSENT = object()
"""The place must not be there."""

PLAIN: dict[str, Body] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "completions": {"model": "m", "prompt": "Hi"},
    "responses": {"model": "m", "input": "Hi"},
    "messages": {"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}


class Row(NamedTuple):
    """One line of the matrix."""

    client: Format
    said: Body
    """Beside a plain request."""
    provider: Format
    asked: Body | str
    """Place and value in the provider's request; or the field that the 400 names."""
    named: tuple[str, ...] = ()
    """Fields in `x-sluicegate-dropped`."""
    can: Body | None = None
    """Capabilities beside what any server of the provider's format can."""
    policy: Policy = "default"

    @property
    def id(self) -> str:
        """What the row is about, short."""
        said = json.dumps(self.said, separators=(",", ":"), default=str).replace('"', "")
        return f"{self.client}>{self.provider}:{said[:60]}"


class Asked(NamedTuple):
    """What came of a request."""

    body: Body
    named: list[str]
    reasons: list[str]
    cut_at: list[str]


def translate(
    client: Format, body: Body, provider: Format, can: Body | None = None, policy: Policy = "default"
) -> Asked:
    """Say a client's request in a provider's format. Raises UnsupportedFeature."""
    read = Notes(policy)
    request = FORMATS[client].decode_request(json.dumps(body).encode(), read, "m")
    notes = Notes(policy, client)
    notes.dropped = list(read.dropped)
    able: Capabilities = EXPECTED[provider]
    if can:
        able = Capabilities(**{name: getattr(able, name) for name in able.__struct_fields__} | can)
    raw = FORMATS[provider].encode_request(request, "up", able, notes)
    named = [entry.partition(";") for entry in notes.dropped]
    return Asked(json.loads(raw), [one[0] for one in named], [one[2] for one in named], notes.cut_at)


def look(body: Any, place: str) -> Any:
    """Return what stands at a place such as `messages.0.content`; ABSENT where nothing does."""
    for step in place.split("."):
        if isinstance(body, list) and step.lstrip("-").isdigit() and -len(body) <= int(step) < len(body):
            body = body[int(step)]
        elif isinstance(body, dict) and step in body:
            body = body[step]
        else:
            return ABSENT
    return body


def check(row: Row) -> None:
    """Hold one line against the code."""
    said = PLAIN[row.client] | row.said
    if isinstance(row.asked, str):
        with pytest.raises(UnsupportedFeature) as refusal:
            translate(row.client, said, row.provider, row.can, row.policy)
        assert refusal.value.param == row.asked
        assert row.asked in str(refusal.value)
        return
    told = translate(row.client, said, row.provider, row.can, row.policy)
    for place, value in row.asked.items():
        found = look(told.body, place)
        assert found is value or found == value, f"{place}: {told.body}"
    expected = set(row.named) | ({"prompt"} if row.client == "completions" else set())
    expected |= {"messages"} if row.provider == "completions" else set()
    assert set(told.named) == expected, told
    assert len(told.named) == len(set(told.named)), f"named twice: {told}"
    assert all(told.reasons), told


CHAT, RESPONSES, MESSAGES, GEMINI = SPEAKERS
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 1}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL = {"name": "f", "description": "d", "parameters": SCHEMA}
TOOLS: dict[str, Any] = {
    CHAT: [{"type": "function", "function": TOOL}],
    RESPONSES: [{"type": "function", "strict": False, **TOOL}],
    MESSAGES: [{"name": "f", "description": "d", "input_schema": SCHEMA}],
    GEMINI: [{"functionDeclarations": [{"name": "f", "description": "d", "parametersJsonSchema": SCHEMA}]}],
}


def config(**fields: Any) -> Body:
    """Return what a Gemini client says in `generationConfig`."""
    return {"generationConfig": fields}


def with_tools(client: Format, **more: Any) -> Body:
    """Return a client's one tool, `f`, and more."""
    return {"tools": TOOLS[client], **more}
