"""Pictures made from a text: one answer, or a stream of previews. Passes as it came; Imagen's `predict` is translated.

Priced by the picture, of the size and quality that the provider says it made, or by the tokens it reports.
Source: OpenAI's API reference, "Images"; Google's, "Imagen".
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from sluicegate.errors import BadRequest, DecodeError
from sluicegate.messages import Endpoint, StreamError, Usage
from sluicegate.wire import Bill, StreamCodec, json_edit
from sluicegate.wire.openai_usage import count, with_members
from sluicegate.wire.request_edges import flag, number
from sluicegate.wire.translation import Asked, Notes, PassedAnswer, PassOptions
from sluicegate.wire.unary import JsonAnswer, JsonRequest
from sluicegate.wire.unary.event_stream import EventStream

DEFAULT_MODEL = "dall-e-2"
MAX_IMAGES = 10
MAX_PREVIEWS = 3
SIZE = re.compile(r"auto|[1-9][0-9]{1,4}x[1-9][0-9]{1,4}")
QUALITIES = ("auto", "low", "medium", "high", "standard", "hd")
_RATIOS = {"1:1": 1.0, "3:4": 3 / 4, "4:3": 4 / 3, "9:16": 9 / 16, "16:9": 16 / 9}
"""What Imagen takes."""


class ImagesRequest(JsonRequest):
    """One request as the client sent it."""

    ENDPOINT = "images"
    max_output_tokens: int | None = None  # a model that makes pictures of tokens has its own limit

    def __init__(self, body: bytes) -> None:
        """Read a body. Raises BadRequest."""
        super().__init__(body, DEFAULT_MODEL)
        prompt = self.decoded("prompt")
        if not isinstance(prompt, str) or not prompt:
            if prompt is None:
                raise BadRequest("Missing required parameter: 'prompt'.", param="prompt")
            raise BadRequest("Invalid 'prompt': expected a text.", param="prompt")
        self._prompt = prompt
        self.stream = flag("stream", self.decoded("stream"))
        self.choices = number("n", self.decoded("n"), 1, MAX_IMAGES) or 1
        number("partial_images", self.decoded("partial_images"), 0, MAX_PREVIEWS)
        self.size = self._word("size", SIZE)
        self.quality = self._word("quality", re.compile("|".join(QUALITIES)))
        self.response_format = self._word("response_format", re.compile("url|b64_json"))
        self.units: Usage | None = Usage(
            images=self.choices, image_size=self.size, image_quality=self.quality
        )

    def _word(self, key: str, known: re.Pattern[str]) -> str | None:
        value = self.decoded(key)
        if value is None or value == "auto":
            return None
        if not isinstance(value, str) or known.fullmatch(value) is None:
            raise BadRequest(f"Invalid value for '{key}'.", param=key)
        return value

    def target_of(self, speaks: tuple[str, ...]) -> Endpoint | None:
        """Return OpenAI's shape where the provider has it, else Imagen's."""
        return super().target_of(speaks) or ("gemini_images" if "gemini" in speaks else None)

    def upstream_bodies(self, target: str, model: str, drop: tuple[str, ...], notes: Notes) -> list[bytes]:
        """Return the body of the call. Raises UnsupportedFeature."""
        if target != "gemini_images":
            return super().upstream_bodies(target, model, drop, notes)
        if self.stream:
            notes.reject("stream", "the provider makes pictures in one piece")
        if self.response_format == "url":
            notes.reject("response_format", "the provider keeps no pictures; ask for b64_json")
        parameters: dict[str, Any] = {"sampleCount": self.choices}
        if self.size is not None:
            parameters["aspectRatio"] = _nearest_ratio(self.size)
        for key in ("quality", "style", "background", "moderation", "output_compression", "user"):
            if self.value(key) is not None:
                notes.drop(key)
        kind = self.decoded("output_format")
        if isinstance(kind, str):
            parameters["outputOptions"] = {"mimeType": f"image/{kind}"}
        return [json_edit.dumps({"instances": [{"prompt": self._prompt}], "parameters": parameters})]

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read what the call brought. Raises DecodeError."""
        if target == "gemini_images":
            return PredictedImages(bodies[0], asked, self.size)
        answer = JsonAnswer(self.ENDPOINT, bodies[0], asked, read_usage(bodies[0], self.size, self.quality))
        if answer.error is None and not answer.holds_array("data"):
            raise DecodeError(self.ENDPOINT, None, "the answer holds no pictures")
        return answer

    def pass_stream(self, asked: Asked, options: PassOptions) -> StreamCodec:
        """Return the codec of previews and pictures on their way to the client."""
        return EventStream(options, usage_of_event(self.size, self.quality), (".completed",))


class _Answer(msgspec.Struct, gc=False):
    data: list[msgspec.Raw] | None = None
    usage: Any = None
    size: Any = None
    quality: Any = None


_decode = msgspec.json.Decoder(_Answer).decode


def read_usage(body: bytes, size: str | None, quality: str | None) -> Usage | None:
    """Return what a plain answer says was made.

    Args:
        size, quality: what was asked for, where the answer does not say.
    """
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if not answer.data:
        return None
    said = {"usage": answer.usage, "size": answer.size, "quality": answer.quality}
    return _usage_of(said, len(answer.data), size, quality)


def _usage_of(said: dict[str, Any], images: int, size: str | None, quality: str | None) -> Usage:
    told = said.get("usage")
    told = told if isinstance(told, dict) else {}
    read, made = told.get("input_tokens_details"), told.get("output_tokens_details")
    read = read if isinstance(read, dict) else {}
    out = count(told.get("output_tokens"))
    pictured = count(made.get("image_tokens")) if isinstance(made, dict) else out  # all of it is pictures
    said_size, said_quality = said.get("size"), said.get("quality")
    return Usage(
        input_tokens=count(told.get("input_tokens")) if told else 0,
        input_image_tokens=count(read.get("image_tokens")),
        output_tokens=out if told else 0,
        output_image_tokens=pictured,
        images=images,
        image_size=said_size if isinstance(said_size, str) else size,
        image_quality=said_quality if isinstance(said_quality, str) else quality,
    )


def usage_of_event(size: str | None, quality: str | None) -> Callable[[dict[str, Any]], Usage | None]:
    """Return what reads the event that brings a picture; size and quality are what was asked for."""
    return lambda event: _usage_of(event, 1, size, quality)


def _nearest_ratio(size: str) -> str:
    width, height = map(int, size.split("x"))
    return min(_RATIOS, key=lambda name: abs(_RATIOS[name] - width / height))


class _Prediction(msgspec.Struct, gc=False):
    bytesBase64Encoded: str | None = None


class _Predictions(msgspec.Struct, gc=False):
    predictions: list[_Prediction] = []


_decode_predictions = msgspec.json.Decoder(_Predictions).decode


class PredictedImages:
    """Imagen's answer in OpenAI's shape. See `PassedAnswer`."""

    error: StreamError | None = None
    finish_reason: str | None = "stop"
    upstream_id: str | None = None
    repaired = False

    def __init__(self, body: bytes, asked: Asked, size: str | None) -> None:
        """Read a body; pictures that a filter held back are left out.

        Raises:
            DecodeError: there is no picture in it.
        """
        try:
            predictions = _decode_predictions(body).predictions
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise DecodeError("gemini_images", None, f"the answer holds no pictures: {error}") from None
        self._pictures = [one.bytesBase64Encoded for one in predictions if one.bytesBase64Encoded]
        if not self._pictures:
            raise DecodeError("gemini_images", None, "the answer holds no pictures")
        self._asked = asked
        self.usage: Usage | None = Usage(
            input_tokens=0, output_tokens=0, images=len(self._pictures), image_size=size
        )

    def texts(self) -> list[str]:
        """Return nothing: no text was produced."""
        return []

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it."""
        data = [{"b64_json": picture} for picture in self._pictures]
        body = json_edit.dumps({"created": self._asked.created, "data": data})
        return with_members(body, bill.beside_usage)
