"""Requests that come as forms, and of them speech to text. The form itself passes; see `multipart`.

Source: OpenAI's API reference, "Audio".
"""

import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, DecodeError
from sluicegate.messages import Endpoint, StreamError, Usage
from sluicegate.wire import Bill, StreamCodec, json_edit
from sluicegate.wire.openai_usage import count
from sluicegate.wire.translation import Asked, Notes, PassedAnswer, PassOptions
from sluicegate.wire.unary import EndpointRequest, JsonAnswer, TargetModel
from sluicegate.wire.unary.event_stream import EventStream
from sluicegate.wire.unary.multipart import MODEL, Form

MIN_AUDIO_BYTES_PER_S = 2_000
"""A recording of so many bytes is taken to be no longer than this says, when money is held for it."""
AUDIO_TOKENS_PER_S = 10
CHARACTERS_PER_S = 16
"""How fast somebody speaks, where a transcript is all that tells."""
_CUE_END = re.compile(rb"--> *(?:([0-9]{1,3}):)?([0-9]{2}):([0-9]{2})[,.]([0-9]{3})")
DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?")
"""Seconds, as a provider or a client spells them."""
_TEXT_FORMATS = frozenset({"text", "srt", "vtt"})
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class FormRequest(EndpointRequest, ABC):
    """What requests with a form have in common."""

    ENDPOINT: ClassVar[Endpoint]
    READ_FIRST: ClassVar[frozenset[str]]
    """Fields that have to come before a large file."""
    FILES: ClassVar[frozenset[str]]
    """Fields of which one has to be there, with a file; empty: none has to."""
    DEFAULT_MODEL: ClassVar[str | None] = None
    """Stands for a model that is left out, where the gate has one of that id; None: it has to be there."""

    max_output_tokens: int | None = None
    body = b""

    def __init__(self, form: Form, size: int) -> None:
        """Read the fields that have come.

        Args:
            size: of the whole body, as far as it is known.
        Raises:
            BadRequest: `param` is the field at fault.
        """
        self._form = form
        self.units: Usage | None = None
        self.input_estimate = 0
        named = self._text(MODEL)
        model = named or self.DEFAULT_MODEL
        if not model:
            raise BadRequest("Missing required parameter: 'model'.", param=MODEL)
        self.model, self.model_left_out = model, not named
        for name in self.READ_FIRST.intersection(form.files):
            raise BadRequest(f"The field '{name}' must not be a file.", param=name)
        if self.FILES and not self.FILES.intersection(form.files):
            name = min(self.FILES)
            raise BadRequest(f"Missing required parameter: '{name}', with a file.", param=name)

    def _text(self, name: str) -> str | None:
        values = self._form.fields.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise BadRequest(f"The field '{name}' comes twice.", param=name)
        return values[0]

    def _word(self, name: str, known: frozenset[str]) -> str | None:
        value = self._text(name)
        if value is not None and value not in known:
            raise BadRequest(f"Invalid '{name}': use one of {', '.join(sorted(known))}.", param=name)
        return value

    def _flag(self, name: str) -> bool:
        value = self._text(name)
        if value is None:
            return False
        flag = _FLAGS.get(value.lower())
        if flag is None:
            raise BadRequest(f"Invalid '{name}': expected true or false.", param=name)
        return flag

    def release(self) -> None:
        """Do nothing: the form is the upload's."""
        return

    def resize(self, size: int) -> None:
        """Expect what a form of this size may cost; of most it is not the size that does."""
        return

    def target_of(self, speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
        """Return the endpoint's own shape where the provider speaks a format that goes with it."""
        return self.ENDPOINT if self.SPOKEN_BY.intersection(speaks) else None

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return nothing to send: the form passes by itself."""
        return [b""]

    @abstractmethod
    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read the answer. Raises DecodeError."""

    @abstractmethod
    def pass_stream(self, target: str, asked: Asked, options: PassOptions) -> StreamCodec:
        """Return the codec of a streamed answer."""


class TranscriptionRequest(FormRequest):
    """A recording to be written down."""

    ENDPOINT: ClassVar[Endpoint] = "transcription"
    READ_FIRST = frozenset({MODEL, "stream", "response_format"})
    FILES = frozenset({"file"})
    FORMATS: ClassVar = frozenset({"json", "verbose_json", "diarized_json", *_TEXT_FORMATS})

    def __init__(self, form: Form, size: int) -> None:
        """Read the fields. Raises BadRequest."""
        super().__init__(form, size)
        self.stream = self._flag("stream")
        self._format = self._word("response_format", self.FORMATS) or "json"
        if self._format in _TEXT_FORMATS:
            self.answer_type = b"text/plain; charset=utf-8"
        self.resize(size)

    def resize(self, size: int) -> None:
        """Take the recording to be as long as a form of this size may hold."""
        self._most_ms = size * 1000 // MIN_AUDIO_BYTES_PER_S
        self.units = Usage(media_ms=self._most_ms)
        self.input_estimate = self._most_ms * AUDIO_TOKENS_PER_S // 1000

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read the answer. Raises DecodeError."""
        (body,) = bodies
        if self._format in _TEXT_FORMATS:
            return TextAnswer(body, self._most_ms)
        top = json_edit.decode_top(body, self.ENDPOINT)
        answer = Transcript(self.ENDPOINT, body, asked, _usage_of(_decoded(top)))
        if answer.error is None and "text" not in top:
            raise DecodeError(self.ENDPOINT, None, "the answer holds no text")
        return answer

    def pass_stream(self, target: str, asked: Asked, options: PassOptions) -> StreamCodec:
        """Return the codec of a transcript on its way to the client."""
        return EventStream(options, _usage_of, ("transcript.text.done",))


class AudioTranslationRequest(TranscriptionRequest):
    """A recording to be written down in English."""

    ENDPOINT = "audio_translation"


def _decoded(top: dict[str, msgspec.Raw]) -> dict[str, Any]:
    return {key: json_edit.loads(bytes(top[key])) for key in ("usage", "duration") if key in top}


class Transcript(JsonAnswer):
    """A transcript as JSON; where its tokens were not reported, its text is counted."""

    def texts(self) -> list[str]:
        """Return the text, for counting."""
        text = json_edit.loads(self.value("text") or b"null")
        return [text] if isinstance(text, str) else []


def _usage_of(said: dict[str, Any]) -> Usage | None:
    """Return what an answer reports: tokens, or how long the recording is.

    The client may choose which of the two an answer tells, and the price may know only the other: that one is worked
    out then.
    """
    told = said.get("usage")
    told = told if isinstance(told, dict) else {}
    seconds = told.get("seconds", said.get("duration"))
    if isinstance(seconds, str):
        seconds = float(seconds) if DECIMAL.fullmatch(seconds) else None
    media_ms = None
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 10**9:
        media_ms = round(seconds * 1000)
    into, out = count(told.get("input_tokens")), count(told.get("output_tokens"))
    if into is None and out is None:
        if media_ms is None:
            return None
        tokens = media_ms * AUDIO_TOKENS_PER_S // 1000
        return Usage(input_tokens=tokens, input_audio_tokens=tokens, media_ms=media_ms)
    details = told.get("input_token_details", told.get("input_tokens_details"))
    heard = count(details.get("audio_tokens")) if isinstance(details, dict) else None
    if media_ms is None and (heard or into):
        media_ms = (heard or into or 0) * 1000 // AUDIO_TOKENS_PER_S
    return Usage(input_tokens=into, input_audio_tokens=heard, output_tokens=out, media_ms=media_ms)


def _spoken_ms(body: bytes) -> int:
    """Return how long a recording was by its subtitles' last end, else by its text at a fast speaker's pace."""
    ends = _CUE_END.findall(body)
    if ends:
        hours, minutes, seconds, ms = (int(part or b"0") for part in ends[-1])
        return ((hours * 60 + minutes) * 60 + seconds) * 1000 + ms
    return len(body.decode("utf-8", "replace").strip()) * 1000 // CHARACTERS_PER_S


class TextAnswer:
    """An answer that is plain text, or subtitles: it passes as it came. See `PassedAnswer`."""

    error: StreamError | None = None
    finish_reason: str | None = "stop"
    upstream_id: str | None = None
    repaired = False

    def __init__(self, body: bytes, most_ms: int) -> None:
        """Take a body; nobody reports how long the recording was, so subtitles tell, or how much text it gave.

        Args:
            most_ms: the recording is not longer.
        """
        self._body = body
        media_ms = min(_spoken_ms(body), most_ms)
        heard = media_ms * AUDIO_TOKENS_PER_S // 1000
        self.usage: Usage | None = Usage(input_tokens=heard, input_audio_tokens=heard, media_ms=media_ms)

    def texts(self) -> list[str]:
        """Return the text, for counting."""
        return [self._body.decode("utf-8", "replace")]

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it."""
        return self._body
