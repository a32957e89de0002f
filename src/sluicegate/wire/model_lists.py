"""What can be asked for, told in the shape of the vendor whose client asks: `GET /v1/models[/{id}]` and the like.

Three vendors share the path `/v1/models`; the headers tell them apart. Which models a key may see is decided elsewhere,
and so is what serves an id that stands in no list. Source: wire formats page README, "Routes"; the official SDKs'
model types, November 2026.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec

from sluicegate.errors import BadRequest, ModelNotFound
from sluicegate.wire.gemini_models import ListedModel, encode_model, encode_models

Shape = Literal["chat", "messages", "gemini"]
"""Whose shape an answer has, by the vendor's format; errors are told in the same one."""

OWNER = "sluicegate"
MAX_PAGE = 1000

_GEMINI_HEADERS = frozenset({b"x-goog-api-key", b"x-goog-api-client"})


def shape_of(version: str, headers: Iterable[tuple[bytes, bytes]]) -> Shape:
    """Choose the shape that a client reads.

    Args:
        version: of the path; only `v1` is shared.
        headers: names in lower case.
    """
    names = {name for name, _ in headers}
    if version != "v1" or names & _GEMINI_HEADERS:
        return "gemini"
    return "messages" if b"anthropic-version" in names else "chat"


def encode_list(shape: Shape, models: Sequence[ListedModel], created: int, query: str = "") -> bytes:
    """Write the list, or the page of it that the query asks for; chat's has no pages.

    Args:
        created: seconds since 1970, told of every model: when the gate came to know them.
        query: `limit`, `after_id` and `before_id`, or `pageSize` and `pageToken`, as the vendor has them.
    Raises:
        BadRequest: the query's words for a page make no sense.
    """
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    if shape == "gemini":
        return encode_models(models, asked.get("pageSize"), asked.get("pageToken"))
    if shape == "messages":
        return msgspec.json.encode(_page(models, created, asked))
    return msgspec.json.encode({"object": "list", "data": [_openai(model, created) for model in models]})


def encode_one(shape: Shape, model_id: str, find: Callable[[str], ListedModel | None], created: int) -> bytes:
    """Write one model.

    Args:
        model_id: as the path has it; Gemini's clients may put `models/` before it once more.
        find: looks a public id up.
    Raises:
        ModelNotFound: there is none, or the key may not use it.
    """
    model = find(model_id) or find(model_id.removeprefix("models/"))
    if model is None:
        raise ModelNotFound(f"there is no model {model_id}", param="model")
    if shape == "gemini":
        return encode_model(model)
    return msgspec.json.encode(_anthropic(model, created) if shape == "messages" else _openai(model, created))


def _openai(model: ListedModel, created: int) -> dict[str, Any]:
    return {"id": model.id, "object": "model", "created": created, "owned_by": OWNER}


def _anthropic(model: ListedModel, created: int) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.display_name or model.id,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": model.input_tokens,
        "max_tokens": model.output_tokens,
        "capabilities": None,
    }


def _page(models: Sequence[ListedModel], created: int, asked: dict[str, str]) -> dict[str, Any]:
    """Return a page as Messages has it; one without a limit holds as much as a page can."""
    limit = _limit(asked.get("limit"))
    ids = [model.id for model in models]
    if "after_id" in asked:
        start = _place(ids, "after_id", asked) + 1
        end = min(start + limit, len(ids))
        has_more = end < len(ids)
    elif "before_id" in asked:
        end = _place(ids, "before_id", asked)
        start = max(end - limit, 0)
        has_more = start > 0
    else:
        start, end = 0, min(limit, len(ids))
        has_more = end < len(ids)
    page = models[start:end]
    return {
        "data": [_anthropic(model, created) for model in page],
        "has_more": has_more,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }


def _limit(text: str | None) -> int:
    if text is None:
        return MAX_PAGE
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_PAGE):
        raise BadRequest(f"limit must be a number of 1 to {MAX_PAGE}", param="limit")
    return int(text)


def _place(ids: list[str], cursor: str, asked: dict[str, str]) -> int:
    try:
        return ids.index(asked[cursor])
    except ValueError:
        raise BadRequest(f"{cursor}: there is no model {asked[cursor]}", param=cursor) from None
