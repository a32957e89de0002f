"""Videos made from a text: a job that is asked for until it has ended. Priced by the second and size of what was made.

Source: OpenAI's API reference, "Videos".
"""

import re
from typing import Any, ClassVar, Literal, NamedTuple

from sluicegate.errors import BadRequest, DecodeError
from sluicegate.messages import Endpoint, Usage
from sluicegate.wire import StreamCodec, json_edit
from sluicegate.wire.request_edges import needed_text
from sluicegate.wire.translation import Asked, Notes, PassedAnswer, PassOptions
from sluicegate.wire.unary import JsonRequest, TargetModel
from sluicegate.wire.unary.forms import DECIMAL, FormRequest
from sluicegate.wire.unary.jobs import JobAnswer, text_of, top_of
from sluicegate.wire.unary.multipart import MODEL, Form

DEFAULT_MODEL = "sora-2"
"""What SDKs leave `model` out for, or have no argument for. The vendor's own is gone; a gate may have any so named."""
DEFAULT_SECONDS = 4
MAX_SECONDS = 600
SENT_SECONDS = 20
"""What is held for a video that is sent to be changed: as long as the longest that vendors make at once."""
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


class Source(NamedTuple):
    """The video that another one goes out from."""

    model: str
    """The public id."""
    keeper: str
    """The provider that keeps it."""
    id: str
    """That provider's."""
    made: Usage
    """Its length and size."""


class RemixRequest(_Made, JsonRequest):
    """A video to be made anew from another one, of its length and size."""

    ENDPOINT: ClassVar[Endpoint] = "video_remix"
    names_kept_state = True

    def __init__(self, body: bytes, source: Source) -> None:
        """Read a body. Raises BadRequest."""
        super().__init__(body, source.model)
        self.model = source.model
        self.input_estimate = 0
        needed_text("prompt", self.decoded("prompt"))
        self.keeper = source.keeper
        self.kept_id = source.id
        self.units: Usage | None = source.made

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return the client's body: the video is named by the path, and names the model."""
        return [json_edit.changed(self.body, {}, {MODEL})]


class EditRequest(RemixRequest):
    """A video to be changed, of its length and size; the body names it."""

    ENDPOINT: ClassVar[Endpoint] = "video_edit"

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return the client's body with the provider's id of the video, which names the model."""
        video = self.value("video")
        assert video is not None, "it was read before"
        named = json_edit.changed(video, {"id": json_edit.dumps(self.kept_id)})
        return [json_edit.changed(self.body, {"video": named}, {MODEL})]


class ExtensionRequest(EditRequest):
    """A video to be extended by so many seconds."""

    ENDPOINT = "video_extension"

    def __init__(self, body: bytes, source: Source) -> None:
        """Read a body. Raises BadRequest."""
        super().__init__(body, source)
        seconds = self.decoded("seconds")
        if seconds is None:
            raise BadRequest("Missing required parameter: 'seconds'.", param="seconds")
        self.units = Usage(media_ms=_seconds(seconds) * 1000, image_size=source.made.image_size)


class EditFormRequest(_Made, FormRequest):
    """A video that is sent to be changed: how long it is, nobody knows before it is done."""

    ENDPOINT: ClassVar[Endpoint] = "video_edit"
    READ_FIRST = frozenset({MODEL, "prompt", "seconds"})
    FILES: ClassVar[frozenset[str]] = frozenset({"video"})
    DEFAULT_MODEL = DEFAULT_MODEL
    max_output_tokens: int | None = 0

    def __init__(self, form: Form, size: int) -> None:
        """Read the fields. Raises BadRequest."""
        super().__init__(form, size)
        needed_text("prompt", self._text("prompt"))
        self.units = _units(SENT_SECONDS, None)


class ExtensionFormRequest(EditFormRequest):
    """A video that is sent to be extended."""

    ENDPOINT: ClassVar[Endpoint] = "video_extension"

    def __init__(self, form: Form, size: int) -> None:
        """Read the fields. Raises BadRequest."""
        super().__init__(form, size)
        self.units = _units(needed_text("seconds", self._text("seconds")), None)


def source_of(body: bytes) -> str:
    """Return the video that an edit goes out from, as the client spells it. Raises BadRequest."""
    try:
        top = json_edit.decode_top(body, "videos")
        video = json_edit.loads(bytes(top.get("video", b"null")))
    except DecodeError as error:
        raise BadRequest(f"The request body is not a JSON object: {error.reason}.") from None
    if video is None:
        raise BadRequest("Missing required parameter: 'video'.", param="video")
    if not isinstance(video, dict):
        raise BadRequest("Invalid 'video': name one that was made here, by its 'id'.", param="video")
    return needed_text("video.id", video.get("id"))


def json_of(form: Form) -> bytes:
    """Return what a form without files says as JSON; brackets in a name stand for an object. Raises BadRequest."""
    said: dict[str, Any] = {}
    for name, values in form.fields.items():
        if len(values) > 1:
            raise BadRequest(f"The field '{name}' comes twice.", param=name)
        outer, bracket, inner = name.partition("[")
        if not bracket:
            said.setdefault(name, values[0])
        elif isinstance(said.setdefault(outer, {}), dict):
            said[outer][inner.removesuffix("]")] = values[0]
    return json_edit.dumps(said)


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
    if isinstance(seconds, str) and DECIMAL.fullmatch(seconds):
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
