"""Pictures from a provider of another shape, as OpenAI's clients get them: one answer, or a stream without previews.

Such a provider makes pictures in one piece, so a client that streams gets each as it is whole; the last waits for the
settlement. Source: OpenAI's API reference, "Images".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from sluicegate.errors import DecodeError, SluicegateError
from sluicegate.messages import StreamError, Usage
from sluicegate.wire import Bill, json_edit
from sluicegate.wire.inline_media import media_type
from sluicegate.wire.joined import summed
from sluicegate.wire.openai_errors import error_body
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.sse import frame_named
from sluicegate.wire.translation import Asked
from sluicegate.wire.unary.byte_stream import EndpointStream
from sluicegate.wire.unary.google_images import Call, Wish


class _Event(NamedTuple):
    """One event that brings a picture."""

    told: dict[str, Any]
    """All of it but the picture."""
    picture: str
    """Base64."""


class MadePictures:
    """A plain answer of one or more calls. See `PassedAnswer`."""

    finish_reason: str | None = "stop"
    repaired = False

    def __init__(self, calls: list[Call], wish: Wish, asked: Asked) -> None:
        """Join what the calls brought; one that was refused counts only where none made a picture."""
        self._asked = asked
        self._pictures = [picture for call in calls for picture in call.pictures]
        self.error: StreamError | None = None
        if not self._pictures:
            self.error = next((call.refusal for call in calls if call.refusal is not None), None)
        self.upstream_id: str | None = calls[0].id
        self._tokens = _tokens_of(calls)
        self.usage: Usage | None = _charged(self._tokens, len(self._pictures), wish)

    def texts(self) -> list[str]:
        """Return nothing: no text was produced."""
        return []

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it."""
        answer: dict[str, Any] = {"created": self._asked.created, "usage": _told(self._tokens)}
        kind = _format_of(self._pictures[0])
        if kind is not None:
            answer["output_format"] = kind
        pictures = [{"b64_json": picture} for picture in self._pictures]
        return _with_last(_billed(answer, bill), b"data", json_edit.dumps(pictures))


class PictureStream(EndpointStream):
    """A streamed answer of one or more calls, each of which comes whole. See `StreamCodec`."""

    __slots__ = ("_asked", "_calls", "_held_event", "_kind", "_left", "_made", "_read", "_wish")

    def __init__(
        self, read: Callable[[bytes], Call], kind: str, calls: int, wish: Wish, asked: Asked
    ) -> None:
        """Begin an answer.

        Args:
            read: reads what a call brought; raises DecodeError.
            kind: type of the event that brings a picture.
            calls: how many there are.
        """
        super().__init__()
        self._read = read
        self._kind = kind
        self._left = calls
        self._wish = wish
        self._asked = asked
        self._calls: list[Call] = []
        self._made = 0
        self._held_event: _Event | None = None

    def feed(self, data: bytes) -> None:
        """Refuse: the provider was not asked to stream. Raises DecodeError."""
        raise DecodeError("sse", None, "a stream in the place of an answer")

    def finish(self) -> None:
        """Refuse likewise. Raises DecodeError."""
        raise DecodeError("sse", None, "the answer is missing")

    def next_call(self) -> None:
        """Go on with the next call."""
        self.ended = False

    def feed_whole(self, body: bytes) -> None:
        """Take what a call brought. Raises DecodeError."""
        call = self._read(body)
        self._calls.append(call)
        self._left -= 1
        for picture in call.pictures:
            if self._held_event is not None:
                self.out.append(self._framed(self._held_event, None))
                self.content = True
            self._held_event = self._event(picture, call)
        self._made += len(call.pictures)
        self.usage = _charged(_tokens_of(self._calls), self._made, self._wish)
        if self._left or self._held_event is not None:
            self.ended = True
        else:
            refusals = (one.refusal for one in self._calls if one.refusal is not None)
            self.error = next(refusals, None)

    def _event(self, picture: str, call: Call) -> _Event:
        told = {
            "type": self._kind,
            "created_at": self._asked.created,
            "size": "auto",
            "quality": "auto",
            "background": "auto",
            "output_format": _format_of(picture) or "png",
            "usage": _told(call.usage if picture is call.pictures[-1] else None),
        }
        return _Event(told, picture)

    def _framed(self, event: _Event, bill: Bill | None) -> bytes:
        told = _billed(event.told, bill)
        return frame_named(self._kind.encode(), _with_last(told, b"b64_json", json_edit.dumps(event.picture)))

    def farewell(self, bill: Bill | None) -> bytes:
        """Return the event that brings the last picture, with usage and cost."""
        assert self._held_event is not None, "the stream has ended"
        return self._framed(self._held_event, bill)

    def failure(self, error: SluicegateError) -> bytes:
        """Return the terminal error event."""
        return frame_named(b"error", b'{"type":"error",' + error_body(error)[1:])


def _billed(told: dict[str, Any], bill: Bill | None) -> bytes:
    """Write an object that has a usage object, with what it cost."""
    if bill is None:
        return json_edit.dumps(told)
    usage = with_members(json_edit.dumps(told["usage"]), bill.in_usage)
    return with_members(json_edit.dumps({**told, "usage": msgspec.Raw(usage)}), bill.beside_usage)


def _with_last(object_json: bytes, key: bytes, value: bytes) -> bytes:
    """Give an object that is not empty one more member, which is too large to be looked through."""
    return b'%b,"%b":%b}' % (object_json[:-1], key, value)


def _tokens_of(calls: list[Call]) -> Usage:
    """Return what the calls used together; what one that made pictures does not tell is not known."""
    total = Usage(input_tokens=0, output_tokens=0)
    for call in calls:
        if call.usage is not None or call.refusal is None:
            total = summed(total, call.usage or Usage())
    return total


def _charged(tokens: Usage, made: int, wish: Wish) -> Usage:
    """Return what is charged: tokens, and pictures of the size and quality asked for, but no more than were."""
    charged = summed(tokens, Usage(input_tokens=0, output_tokens=0))
    charged.images = min(made, wish.choices)
    charged.image_size, charged.image_quality = wish.size, wish.quality
    return charged


def _told(usage: Usage | None) -> dict[str, Any]:
    """Return usage as OpenAI spells it for pictures."""
    usage = usage or Usage()
    into, out = usage.input_tokens or 0, usage.output_tokens or 0
    seen, made = usage.input_image_tokens or 0, usage.output_image_tokens or 0
    return {
        "input_tokens": into,
        "input_tokens_details": {"image_tokens": seen, "text_tokens": max(0, into - seen)},
        "output_tokens": out,
        "output_tokens_details": {"image_tokens": made, "text_tokens": max(0, out - made)},
        "total_tokens": into + out,
    }


def _format_of(picture: str) -> str | None:
    """Return the word for a picture's kind, by its first bytes; None where they tell none."""
    try:
        kind = media_type(picture)
    except ValueError:
        return None
    return kind.removeprefix("image/") if kind is not None and kind.startswith("image/") else None
