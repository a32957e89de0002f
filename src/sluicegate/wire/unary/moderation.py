"""Moderation: texts and images judged by their kind of harm. Passes as it came.

Source: OpenAI's API reference, "Moderations".
"""

from typing import Any

from sluicegate.errors import BadRequest, DecodeError
from sluicegate.wire.translation import Asked, PassedAnswer
from sluicegate.wire.unary import JsonAnswer, JsonRequest

DEFAULT_MODEL = "omni-moderation-latest"
_PARTS = frozenset({"text", "image_url"})


class ModerationRequest(JsonRequest):
    """One request as the client sent it."""

    ENDPOINT = "moderation"

    def __init__(self, body: bytes) -> None:
        """Read a body. Raises BadRequest."""
        super().__init__(body, DEFAULT_MODEL)
        value = self.decoded("input")
        if value is None:
            raise BadRequest("Missing required parameter: 'input'.", param="input")
        if isinstance(value, list):
            if not value:
                raise BadRequest("Invalid 'input': must not be empty.", param="input")
            for at, entry in enumerate(value):
                if not isinstance(entry, str):
                    _check_part(entry, f"input[{at}]")
        elif not isinstance(value, str):
            raise BadRequest("Invalid type for 'input': expected a string or an array.", param="input")

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read the answer, which reports no usage. Raises DecodeError."""
        answer = JsonAnswer(self.ENDPOINT, bodies[0], asked, None)
        if answer.error is None and not answer.holds_array("results"):
            raise DecodeError(self.ENDPOINT, None, "the answer holds no results")
        return answer


def _check_part(entry: Any, path: str) -> None:
    kind = entry.get("type") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or kind not in _PARTS:
        raise BadRequest(
            f"Invalid '{path}': expected a string, or a part of type text or image_url.", param=path
        )
    value = entry.get(kind)
    if kind == "image_url":
        value = value.get("url") if isinstance(value, dict) else None
        kind = "image_url.url"
    if not isinstance(value, str):
        raise BadRequest(f"Missing required parameter: '{path}.{kind}'.", param=f"{path}.{kind}")
