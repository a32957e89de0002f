"""Videos made from a text: a job that is asked for until it has ended. Priced by the second and size of what was made.

Source: OpenAI's API reference, "Videos".
"""

import re
from typing import Any, ClassVar, Literal, NamedTuple

from sluicegate.errors import BadRequest
from sluicegate.messages import Endpoint, Usage
from sluicegate.wire import StreamCodec, json_edit
from sluicegate.wire.request_edges import needed_text
from sluicegate.wire.translation import Asked, Notes, PassedAnswer, PassOptions
from sluicegate.wire.unary import JsonRequest, TargetModel
from sluicegate.wire.unary.forms import FormRequest
from sluicegate.wire.unary.jobs import JobAnswer, text_of, top_of
from sluicegate.wire.unary.multipart import MODEL, Form

DEFAULT_MODEL = "sora-2"
DEFAULT_SECONDS = 4
MAX_SECONDS = 600
SIZE = re.compile(r"[1-9][0-9]{1,4}x[1-9][0-9]{1,4}")
FILE_ID = "input_reference.file_id"


def _seconds(value: Any) -> int:
    if value is None:
        return DEFAULT_SECONDS
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 6:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SECONDS:
        raise BadRequest(
            f"Invalid 'seconds': must be a whole number from 1 to {MAX_SECONDS}.", param="seconds"
        )
    return value


def _units(seconds: Any, size: Any) -> Usage:
    """Return what a video is held at: of a size that is left out, the dearest."""
    if size is not None and (not isinstance(size, str) or SIZE.fullmatch(size) is None):
        raise BadRequest("Invalid 'size': expected a width and a height, such as 1280x720.", param="size")
    return Usage(media_ms=_seconds(seconds) * 1000, image_size=size)


class _Made:
    """What all ways to ask for a video have in common."""

    background = True
    """Its id must be learned also where the client leaves, or nobody could settle it."""

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read the answer. Raises DecodeError."""
        (body,) = bodies
        return JobAnswer(target, body, asked)

    def pass_stream(self, target: str, asked: Asked, options: PassOptions) -> StreamCodec:
        """Refuse: this endpoint does not stream."""
        raise AssertionError("this endpoint does not stream")


class VideoRequest(_Made, JsonRequest):
    """A request in JSON."""

    ENDPOINT: ClassVar[Endpoint] = "videos"

    def __init__(self, body: bytes) -> None:
        """Read a body. Raises BadRequest."""
        super().__init__(body, DEFAULT_MODEL)
        needed_text("prompt", self.decoded("prompt"))
        self.input_estimate = 0
        self.units: Usage | None = _units(self.decoded("seconds"), self.decoded("size"))
        reference = self.decoded("input_reference")
        if reference is not None and not isinstance(reference, dict):
            raise BadRequest(
                "Invalid type for 'input_reference': expected an object.", param="input_reference"
            )
        self.file_id: str | None = None
        """Of the file that it goes out from, as the client spells it."""
        if reference and reference.get("file_id") is not None:
            self.file_id = needed_text(FILE_ID, reference["file_id"])
            self.names_kept_state = True
        self.keeper = ""
        """The provider that has to be asked, where it names what is kept."""

    def with_file(self, provider: str, id: str) -> None:
        """Put in the provider's own id of the file that is named."""
        self.keeper = provider
        reference = self.value("input_reference")
        assert reference is not None, "it names a file"
        changed = json_edit.changed(reference, {"file_id": json_edit.dumps(id)})
        self.replace(json_edit.changed(self.body, {"input_reference": changed}))


class VideoFormRequest(_Made, FormRequest):
    """A request that comes as a form, as the SDKs send it, with or without a picture to begin with."""

    ENDPOINT: ClassVar[Endpoint] = "videos"
    READ_FIRST = frozenset({MODEL, "seconds", "size", "prompt"})
    FILES: ClassVar[frozenset[str]] = frozenset()
    DEFAULT_MODEL = DEFAULT_MODEL
    max_output_tokens: int | None = 0

    def __init__(self, form: Form, size: int) -> None:
        """Read the fields. Raises BadRequest."""
        super().__init__(form, size)
        needed_text("prompt", self._text("prompt"))
        self.units = _units(self._text("seconds"), self._text("size"))
        for name in form.fields:
            if name.startswith("input_reference") and "file_id" in name:
                raise BadRequest(f"'{FILE_ID}' is taken in a JSON body only.", param=FILE_ID)


class RemixRequest(_Made, JsonRequest):
    """A video to be made anew from another one, of its length and size."""

    ENDPOINT: ClassVar[Endpoint] = "video_remix"
    names_kept_state = True

    def __init__(self, body: bytes, model: str, keeper: str, source_id: str, source: Usage) -> None:
        """Read a body.

        Args:
            model: the public id, of the video that it goes out from.
            keeper: the provider that keeps that one.
            source_id: that one's, the provider's.
            source: length and size of that one.
        Raises:
            BadRequest
        """
        super().__init__(body, model)
        self.model = model
        self.input_estimate = 0
        needed_text("prompt", self.decoded("prompt"))
        self.keeper = keeper
        self.kept_id = source_id
        self.units: Usage | None = source

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return the client's body: the video is named by the path, and names the model."""
        return [json_edit.changed(self.body, {}, {MODEL})]


class VideoState(NamedTuple):
    """What a provider says of a video job."""

    ended: Literal["ok", "failed"] | None
    """None: it goes on."""
    usage: Usage
    """Length and size, where they are told."""
    reason: str | None = None
    """Why it failed: the provider's word."""


def read_state(body: bytes) -> VideoState:
    """Read what a provider says of a video job. Raises DecodeError."""
    top = top_of(body)
    status = text_of(top.get("status"))
    seconds = json_edit.loads(top["seconds"]) if "seconds" in top else None
    if isinstance(seconds, str) and seconds.replace(".", "", 1).isdigit():
        seconds = float(seconds)
    media_ms = None
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 10**6:
        media_ms = round(seconds * 1000)
    usage = Usage(media_ms=media_ms, image_size=text_of(top.get("size")))
    if status == "completed":
        return VideoState("ok", usage)
    if status in ("failed", "cancelled", "expired"):
        error = json_edit.loads(top["error"]) if "error" in top else None
        code = error.get("code") if isinstance(error, dict) else None
        return VideoState("failed", usage, code if isinstance(code, str) and code else status)
    return VideoState(None, usage)
