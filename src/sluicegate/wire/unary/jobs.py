"""Answers that tell of what a provider keeps: work that goes on there, and files. Ids leave as ours.

Source: OpenAI's API reference, "Videos", "Files", "Batch".
"""

from collections.abc import Callable

import msgspec

from sluicegate.errors import DecodeError
from sluicegate.messages import Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.translation import Asked
from sluicegate.wire.unary import JsonAnswer

_IDS = frozenset({"id", "input_file_id", "output_file_id", "error_file_id", "remixed_from_video_id"})
"""Members that name what a provider keeps."""
MAX_ID_BYTES = 2_048
"""Of a provider's id; Postgres takes no much longer one into an index, and an address has no room for it as ours."""


class JobAnswer(JsonAnswer):
    """What a provider says of work that it has taken on. It is not told before it is written down."""

    finish_reason: str | None = None

    def __init__(self, endpoint: str, body: bytes, asked: Asked) -> None:
        """Take an answer. Raises DecodeError where it names no id and no error."""
        super().__init__(endpoint, body, asked, Usage(input_tokens=0, output_tokens=0))
        self.body = body
        if self.error is None and text_of(self._values.get("id")) is None:
            raise DecodeError(endpoint, None, "the answer names no id")

    def encode(self, bill: Bill) -> bytes:
        """Refuse: only `told` knows whose its ids are."""
        raise AssertionError("work that goes on has no bill yet")


def text_of(raw: bytes | None) -> str | None:
    """Return a JSON value that is a string and not too long to be an id; None where it is none."""
    if raw is None or not raw.startswith(b'"'):
        return None
    text: str = msgspec.json.decode(raw, type=str)
    return text if 0 < len(text.encode()) <= MAX_ID_BYTES and "\0" not in text else None


def top_of(body: bytes) -> dict[str, bytes]:
    """Return the top-level members of what a provider says, as they are spelled. Raises DecodeError."""
    return {key: bytes(raw) for key, raw in json_edit.decode_top(body, "jobs").items()}


def told(body: bytes, model: str, close: Callable[[str], str]) -> bytes:
    """Return what a provider says as the client gets it.

    Args:
        model: the public id; empty where it is not known.
        close: turns an id that the provider keeps into ours.
    """
    top = top_of(body)
    wanted: dict[str, bytes] = {}
    for key in _IDS:
        id = text_of(top.get(key))
        if id is not None:
            wanted[key] = json_edit.dumps(close(id))
    if model and "model" in top:
        wanted["model"] = json_edit.dumps(model)
    return json_edit.changed(body, wanted)
