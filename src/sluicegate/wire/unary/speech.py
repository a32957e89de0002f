"""Text spoken aloud: bytes of sound that pass as they come, or events that hold them.

Priced by the character of what is spoken, or by the tokens that the events report. Source: OpenAI's API reference,
"Audio", "Create speech".
"""

from typing import Any

from sluicegate.errors import BadRequest
from sluicegate.messages import Usage
from sluicegate.wire import StreamCodec
from sluicegate.wire.openai_usage import count
from sluicegate.wire.request_edges import needed_text
from sluicegate.wire.translation import Asked, PassedAnswer, PassOptions
from sluicegate.wire.unary import JsonRequest
from sluicegate.wire.unary.byte_stream import ByteStream
from sluicegate.wire.unary.event_stream import EventStream

MAX_CHARACTERS = 4096
FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
MIN_SPEED, MAX_SPEED = 0.25, 4.0


class SpeechRequest(JsonRequest):
    """One request as the client sent it. Its answer is always a stream."""

    ENDPOINT = "speech"
    stream = True

    def __init__(self, body: bytes) -> None:
        """Read a body. Raises BadRequest."""
        super().__init__(body)
        text = needed_text("input", self.decoded("input"))
        if len(text) > MAX_CHARACTERS:
            raise BadRequest(f"Invalid 'input': longer than {MAX_CHARACTERS} characters.", param="input")
        voice = self.decoded("voice")
        if voice is None:
            raise BadRequest("Missing required parameter: 'voice'.", param="voice")
        if not voice or not isinstance(voice, str | dict):
            raise BadRequest("Invalid 'voice': expected a name.", param="voice")
        if self.decoded("response_format") not in (None, *FORMATS):
            raise BadRequest(
                f"Invalid 'response_format': use one of {', '.join(FORMATS)}.", param="response_format"
            )
        speed = self.decoded("speed")
        if speed is not None and (
            isinstance(speed, bool)
            or not isinstance(speed, int | float)
            or not MIN_SPEED <= speed <= MAX_SPEED
        ):
            raise BadRequest(f"Invalid 'speed': must be between {MIN_SPEED} and {MAX_SPEED}.", param="speed")
        form = self.decoded("stream_format")
        if form not in (None, "audio", "sse"):
            raise BadRequest("Invalid 'stream_format': use audio or sse.", param="stream_format")
        self._events = form == "sse"
        self.passes_bytes = not self._events
        self.units: Usage | None = Usage(characters=len(text))

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Refuse: the answer is a stream."""
        raise AssertionError("speech is streamed")

    def pass_stream(self, target: str, asked: Asked, options: PassOptions) -> StreamCodec:
        """Return the codec of the sound on its way to the client."""
        if self._events:
            return EventStream(options, self._usage_of_event, ("speech.audio.done",))
        return ByteStream(self._spoken(Usage(output_tokens=0)))

    def _usage_of_event(self, event: dict[str, Any]) -> Usage | None:
        told = event.get("usage")
        told = told if isinstance(told, dict) else {}
        out = count(told.get("output_tokens"))
        usage = Usage(
            input_tokens=count(told.get("input_tokens")), output_tokens=out or 0, output_audio_tokens=out
        )
        return self._spoken(usage)

    def _spoken(self, usage: Usage) -> Usage:
        assert self.units is not None
        usage.characters = self.units.characters
        return usage
