"""Models as Gemini lists them, as answers to `GET …/models` and `GET …/models/{id}`.

The path's last colon ends a model's name, so ids may hold slashes and colons of their own. Source: wire formats page
README, "Routes"; the vendor's models reference, November 2026.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

_METHODS = ["generateContent", "countTokens"]
_DEFAULT_PAGE = 50
_MAX_PAGE = 1000


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model as clients see it."""

    id: str
    """The public id."""
    display_name: str | None = None
    description: str | None = None
    input_tokens: int | None = None
    """The most it reads."""
    output_tokens: int | None = None
    """The most it writes."""
    thinks: bool | None = None


def model_entry(model: ListedModel) -> dict[str, Any]:
    """Return a model as an object of the list."""
    entry: dict[str, Any] = {
        "name": f"models/{model.id}",
        "version": "001",
        "displayName": model.display_name or model.id,
    }
    optional = {
        "description": model.description,
        "inputTokenLimit": model.input_tokens,
        "outputTokenLimit": model.output_tokens,
        "thinking": model.thinks,
    }
    entry |= {key: value for key, value in optional.items() if value is not None}
    return entry | {"supportedGenerationMethods": _METHODS}


def encode_model(model: ListedModel) -> bytes:
    """Write the answer that describes one model."""
    return msgspec.json.encode(model_entry(model))


def encode_models(
    models: Sequence[ListedModel], page_size: str | None = None, page_token: str | None = None
) -> bytes:
    """Write a page of the list.

    Args:
        page_size, page_token: the query's `pageSize` and `pageToken`; what is no number counts as absent.
    """
    size = min(_number(page_size) or _DEFAULT_PAGE, _MAX_PAGE)
    start = _number(page_token) or 0
    page: dict[str, Any] = {"models": [model_entry(model) for model in models[start : start + size]]}
    if start + size < len(models):
        page["nextPageToken"] = str(start + size)
    return msgspec.json.encode(page)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def model_of_path(rest: str) -> str:
    """Return the model that a path names: `models/ID`, Vertex' longer forms, and paths that leave `models/` out.

    Args:
        rest: of the path, between version and method, still percent-encoded.
    """
    model = unquote(rest)
    if model.startswith("projects/"):  # projects/P/locations/L/publishers/google/models/M
        model = model.partition("/publishers/")[2]
        model = f"publishers/{model}" if model else ""
    if model.startswith("publishers/") and "/models/" in model:
        publisher, _, inner = model.removeprefix("publishers/").partition("/models/")
        model = inner if publisher == "google" else f"{publisher}/{inner}"
    return model.removeprefix("models/")
