"""Pictures made from a text: one answer, or a stream of previews. Passes as it came; Google's models are asked anew.

Priced by the picture, of the size and quality that the provider says it made, or by the tokens it reports.
Source: OpenAI's API reference, "Images".
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, DecodeError
from sluicegate.messages import Endpoint, Usage
from sluicegate.wire import StreamCodec
from sluicegate.wire.openai_usage import count
from sluicegate.wire.request_edges import flag, number
from sluicegate.wire.translation import Asked, Notes, PassedAnswer, PassOptions
from sluicegate.wire.unary import JsonAnswer, JsonRequest, TargetModel, google_images
from sluicegate.wire.unary.event_stream import EventStream
from sluicegate.wire.unary.google_images import NATIVE, PREDICT, Wish
from sluicegate.wire.unary.made_pictures import MadePictures, PictureStream

MAX_IMAGES = 10
MAX_PREVIEWS = 3
SIZE = re.compile(r"auto|[1-9][0-9]{1,4}x[1-9][0-9]{1,4}")
QUALITIES = ("auto", "low", "medium", "high", "xhigh", "max", "standard", "hd")


class ImagesRequest(JsonRequest):
    """One request as the client sent it."""

    ENDPOINT: ClassVar[Endpoint] = "images"
    EVENTS: ClassVar[str] = "image_generation"
    """What the types of streamed events begin with."""
    max_output_tokens: int | None = None  # a model that makes pictures of tokens has its own limit

    def __init__(self, body: bytes) -> None:
        """Read a body. Raises BadRequest."""
        super().__init__(body)
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

    def target_of(self, speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
        """Return OpenAI's shape where the provider has it, else the one in which Google's model is asked."""
        return super().target_of(speaks, can) or google_images.target_of(speaks, can)

    def _wish(self) -> Wish:
        return Wish(self._prompt, self.choices, self.size, self.quality)

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return the bodies of the calls. Raises UnsupportedFeature."""
        if target not in (PREDICT, NATIVE):
            return super().upstream_bodies(target, model, drop, notes)
        google_images.refuse_address(notes, self.response_format)
        names = [key for key in self._fields if key not in drop]
        notes.dropped += [f"{field};provider" for field in drop if field in self._fields]
        if target == NATIVE:
            google_images.settle_fields(notes, names, self.decoded)
            return google_images.encode_native(self._wish(), model, notes)
        kind = self.decoded("output_format")
        google_images.settle_fields(notes, names, self.decoded, ("output_format",))
        return google_images.encode_predict(self._wish(), model, kind if isinstance(kind, str) else None)

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read what the calls brought. Raises DecodeError."""
        if target in (PREDICT, NATIVE):
            return MadePictures(list(map(google_images.reader_of(target), bodies)), self._wish(), asked)
        answer = JsonAnswer(self.ENDPOINT, bodies[0], asked, read_usage(bodies[0], self.size, self.quality))
        if answer.error is None and not answer.holds_array("data"):
            raise DecodeError(self.ENDPOINT, None, "the answer holds no pictures")
        return answer

    def pass_stream(self, target: str, asked: Asked, options: PassOptions) -> StreamCodec:
        """Return the codec of previews and pictures on their way to the client."""
        if target in (PREDICT, NATIVE):
            calls = self.choices if target == NATIVE else 1
            kind = f"{self.EVENTS}.completed"
            return PictureStream(google_images.reader_of(target), kind, calls, self._wish(), asked)
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
