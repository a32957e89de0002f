"""Pictures of Google's models, asked for in OpenAI's words: by `predict` (Imagen), or as parts of an answer (Gemini).

What becomes of the fields that Google has no word for, and what a call brought, is said here; `made_pictures` tells the
client. A model that makes pictures as parts makes one a call, so several take several calls.
Source: Google's API reference, "Imagen" and "Image generation" (`generateContent`, `imageConfig`).
"""

from collections.abc import Callable, Container, Iterable, Sequence
from math import log2
from typing import Any, Literal, NamedTuple

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError
from sluicegate.messages import Endpoint, Image, StreamError, Usage
from sluicegate.wire import json_edit
from sluicegate.wire.gemini_finish import read_finish_reason
from sluicegate.wire.gemini_usage import read_usage
from sluicegate.wire.inline_media import media_type
from sluicegate.wire.translation import Notes
from sluicegate.wire.unary import TargetModel
from sluicegate.wire.upstream_errors import is_nothing, read_stream_error

PREDICT: Literal["gemini_images"] = "gemini_images"
NATIVE: Literal["gemini_native_images"] = "gemini_native_images"
"""How rows and targets call the two ways."""
_UNDERSTOOD = frozenset(
    {"model", "prompt", "n", "size", "image", "image[]", "images", "response_format", "stream"}
)
_WEAKENED = frozenset(
    {
        "quality",
        "style",
        "background",
        "input_fidelity",
        "output_format",
        "output_compression",
        "partial_images",
    }
)
"""Fields without which a picture is another one, or comes in another way."""
_POINTED = frozenset({"mask", "markup"})
"""Fields that say where a picture is to be changed."""
_USUAL = ("auto", "standard", "opaque", "0")
"""Values that ask for nothing beyond what is made anyway."""
_EDGES = {"512": 512, "1K": 1024, "2K": 2048, "4K": 4096}
"""Google's words for how many pixels a square picture has on each side."""
_UNEXPLAINED = frozenset({"NO_IMAGE", "IMAGE_OTHER"})
_MAX_QUOTED_CHARS = 500


class Wish(NamedTuple):
    """What pictures are asked for."""

    prompt: str
    choices: int = 1
    size: str | None = None
    """Width and height, `1024x1024`; None: the model chooses."""
    quality: str | None = None
    sources: Sequence[tuple[str, Image]] = ()
    """Pictures to go out from, each with its place in the request."""


class Call(NamedTuple):
    """What one call brought."""

    pictures: list[str]
    """Base64."""
    usage: Usage | None
    """Tokens; None: not reported."""
    refusal: StreamError | None = None
    """Why there are no pictures."""
    id: str | None = None
    """The provider's."""


def target_of(speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
    """Return how a provider is asked for pictures made from a text; None where it speaks another format."""
    if "gemini" not in speaks:
        return None
    return NATIVE if can.native_images else PREDICT


def settle_fields(
    notes: Notes, names: Iterable[str], value_of: Callable[[str], Any], understood: Container[str] = ()
) -> None:
    """Say what becomes of fields that Google has no word for.

    Args:
        names: of the request's fields.
        value_of: returns one's value; of a file any.
        understood: names beside the common ones that are said.
    Raises:
        UnsupportedFeature: without one of them the answer would be another.
    """
    for name in names:
        if name in _UNDERSTOOD or name in understood:
            continue
        value = value_of(name)
        if value is None:
            continue
        if name in _POINTED:
            notes.reject(name, "the model changes the whole picture", lenient_ok=True)
        elif name not in _WEAKENED:
            notes.drop(name)
        elif str(value) not in _USUAL:
            notes.warn(name, "the model has no such setting")


def refuse_address(notes: Notes, response_format: str | None) -> None:
    """Refuse pictures by address. Raises UnsupportedFeature."""
    if response_format == "url":
        notes.reject("response_format", "the provider keeps no pictures; ask for b64_json")


def encode_predict(wish: Wish, model: TargetModel, output_format: str | None) -> list[bytes]:
    """Write the call for Imagen."""
    parameters: dict[str, Any] = {"sampleCount": wish.choices}
    if wish.size is not None:
        parameters["aspectRatio"] = nearest_ratio(wish.size, model.can.image_ratios)
    if output_format is not None:
        parameters["outputOptions"] = {"mimeType": f"image/{output_format}"}
    return [json_edit.dumps({"instances": [{"prompt": wish.prompt}], "parameters": parameters})]


def encode_native(wish: Wish, model: TargetModel, notes: Notes) -> list[bytes]:
    """Write a call for each picture that a model makes as part of its answer.

    Pictures that have only an address are wanted of `notes`: what is written without them is of no use.

    Raises:
        UnsupportedFeature: more pictures than calls are allowed, or an address where media are not fetched.
    """
    if wish.choices > 1:
        if wish.choices > model.max_calls:
            notes.reject(
                "n", f"it makes one picture a call, and may be called {model.max_calls}× for a request"
            )
        notes.warn("n", f"{wish.choices} calls")
    parts: list[dict[str, Any]] = [{"text": wish.prompt}]
    for path, picture in wish.sources:
        if picture.data is None:
            notes.want(picture, path)
            continue
        kind = media_type(picture.data) or picture.media_type or ""
        if not kind.startswith("image/"):
            notes.reject(path, "it is no picture of a kind that is known")
        parts.append({"inlineData": {"mimeType": kind, "data": picture.data}})
    config: dict[str, Any] = {"responseModalities": ["IMAGE"]}
    if wish.size is not None:
        config["imageConfig"] = image = {"aspectRatio": nearest_ratio(wish.size, model.can.image_ratios)}
        if model.can.image_sizes:
            image["imageSize"] = _nearest_size(wish.size, model.can.image_sizes)
    body = json_edit.dumps({"contents": [{"role": "user", "parts": parts}], "generationConfig": config})
    return [body] * wish.choices


def nearest_ratio(size: str, ratios: Sequence[str]) -> str:
    """Return the aspect ratio that differs least from a size's."""
    wanted = _shape(size, "x")
    return min(ratios, key=lambda ratio: abs(_shape(ratio, ":") - wanted))


def _shape(spelled: str, between: str) -> float:
    width, height = map(int, spelled.split(between))
    return log2(width / height)


def _nearest_size(size: str, sizes: Sequence[str]) -> str:
    """Return the resolution whose number of pixels differs least from a size's."""
    width, height = map(int, size.split("x"))
    wanted = log2(width * height) / 2
    return min(sizes, key=lambda name: abs(log2(_EDGES[name]) - wanted))


# ---- what calls bring ------------------------------------------------------------------------------------------------


class _Prediction(msgspec.Struct, gc=False):
    bytesBase64Encoded: str | None = None
    raiFilteredReason: str | None = None


class _Predictions(msgspec.Struct, gc=False):
    predictions: list[_Prediction] = []
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Inline(msgspec.Struct, gc=False):
    data: str | None = None


class _Part(msgspec.Struct, gc=False):
    text: Any = None
    thought: Any = None
    inlineData: _Inline | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False):
    content: _Content | None = None
    finishReason: Any = None


class _Feedback(msgspec.Struct, gc=False):
    blockReason: Any = None


class _Answer(msgspec.Struct, gc=False):
    candidates: list[_Candidate] | None = None
    promptFeedback: _Feedback | None = None
    usageMetadata: msgspec.Raw = msgspec.Raw(b"null")
    responseId: Any = None
    error: msgspec.Raw = msgspec.Raw(b"null")


_decode_predictions = msgspec.json.Decoder(_Predictions).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode


def reader_of(target: str) -> Callable[[bytes], Call]:
    """Return what reads a call of one of the two ways. It raises DecodeError."""
    return _read_native if target == NATIVE else _read_predict


def _read_predict(body: bytes) -> Call:
    """Read what Imagen made; pictures that its filter held back are left out."""
    try:
        answer = _decode_predictions(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DecodeError(PREDICT, None, f"the answer holds no pictures: {error}") from None
    failure = _failure_in(answer.error)
    if failure is not None:
        return Call([], None, failure)
    pictures = [one.bytesBase64Encoded for one in answer.predictions if one.bytesBase64Encoded]
    if pictures:
        return Call(pictures, Usage(input_tokens=0, output_tokens=0))
    reason = next((one.raiFilteredReason for one in answer.predictions if one.raiFilteredReason), None)
    if reason is None:
        raise DecodeError(PREDICT, None, "the answer holds no pictures")
    return Call([], None, _blocked(reason))


def _read_native(body: bytes) -> Call:
    """Read what a model made as parts of its answer; what belongs to its thoughts is left out."""
    try:
        answer = _decode_answer(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DecodeError(NATIVE, None, f"the answer holds no pictures: {error}") from None
    failure = _failure_in(answer.error)
    if failure is not None:
        return Call([], None, failure)
    id = answer.responseId if isinstance(answer.responseId, str) else None
    usage = _usage_of(answer.usageMetadata)
    parts = [
        part
        for candidate in answer.candidates or ()
        if candidate.content is not None
        for part in candidate.content.parts or ()
        if part.thought is not True
    ]
    pictures = [
        part.inlineData.data for part in parts if part.inlineData is not None and part.inlineData.data
    ]
    if pictures:
        return Call(pictures, usage, id=id)
    said = "".join(part.text for part in parts if isinstance(part.text, str)).strip()
    return Call([], usage, _refusal(answer, said), id)


def _usage_of(raw: msgspec.Raw) -> Usage | None:
    """Return the tokens; where their kinds are not told, all that was made but thoughts is taken for pictures."""
    usage = read_usage(raw)
    if usage is not None and usage.output_tokens is not None and usage.output_image_tokens is None:
        usage.output_image_tokens = max(0, usage.output_tokens - (usage.reasoning_tokens or 0))
    return usage


def _failure_in(raw: msgspec.Raw) -> StreamError | None:
    return None if is_nothing(bytes(raw)) else read_stream_error(bytes(raw))


def _refusal(answer: _Answer, said: str) -> StreamError:
    """Return why an answer has no picture. Raises DecodeError where the model failed, rather than refused."""
    if answer.promptFeedback is not None and answer.promptFeedback.blockReason:
        return _blocked(str(answer.promptFeedback.blockReason))
    if not answer.candidates:
        raise DecodeError(NATIVE, None, "the answer holds nothing")
    reason = answer.candidates[0].finishReason
    reason = reason if isinstance(reason, str) else "STOP"
    word = read_finish_reason(reason, called=False, content=bool(said))
    if word is None:
        raise DecodeError(NATIVE, None, f"the model failed ({reason[:64]})")
    if word == "content_filter" and reason not in _UNEXPLAINED:
        return _blocked(reason)
    if said:
        return _refused(f"The model answered without a picture: {said[:_MAX_QUOTED_CHARS]}")
    return _refused(f"The model made no picture ({reason[:64]}).")


def _blocked(reason: str) -> StreamError:
    message = f"The provider's filter held the picture back ({reason[:_MAX_QUOTED_CHARS]})."
    return StreamError(400, message, "content_policy_violation", "invalid_request_error")


def _refused(message: str) -> StreamError:
    return StreamError(400, message, None, "invalid_request_error")
