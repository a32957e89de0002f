"""Pictures changed by a text, or like another one: forms with files, or a JSON body that names pictures.

A form passes to a provider of OpenAI's shape as it comes. A Gemini model wants its pictures inside JSON, so for one the
form has to be here whole. Source: OpenAI's API reference, "Images", "Create image edit".
"""

import re
from base64 import b64encode
from typing import Any, ClassVar

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, DecodeError
from sluicegate.messages import Endpoint, Image, Usage
from sluicegate.wire import StreamCodec, json_edit
from sluicegate.wire.inline_media import read_inline
from sluicegate.wire.request_edges import MEDIA_TOKENS, needed_text
from sluicegate.wire.translation import Asked, Notes, PassedAnswer, PassOptions
from sluicegate.wire.unary import JsonAnswer, TargetModel, google_images
from sluicegate.wire.unary.event_stream import EventStream
from sluicegate.wire.unary.forms import FormRequest
from sluicegate.wire.unary.google_images import NATIVE, Wish
from sluicegate.wire.unary.images import (
    MAX_IMAGES,
    QUALITIES,
    SIZE,
    ImagesRequest,
    read_usage,
    usage_of_event,
)
from sluicegate.wire.unary.made_pictures import MadePictures, PictureStream
from sluicegate.wire.unary.multipart import MODEL, Form, parts_of

MAX_SOURCES = 16
"""Pictures that an edit may go out from."""
COMPLETED = "image_edit.completed"
_NUMBER = re.compile(r"[0-9]{1,9}")
_FIELDS = ("image", "image[]")


class ImageEditRequest(FormRequest):
    """Pictures to be changed by a text, as a form."""

    ENDPOINT: ClassVar[Endpoint] = "image_edits"
    READ_FIRST = frozenset({MODEL, "stream", "n", "size", "quality", "response_format"})
    FILES = frozenset(_FIELDS)

    def __init__(self, form: Form, size: int) -> None:
        """Read the fields. Raises BadRequest."""
        super().__init__(form, size)
        self.stream = self._flag("stream")
        number = self._text("n") or "1"
        if _NUMBER.fullmatch(number) is None or not 1 <= int(number) <= MAX_IMAGES:
            raise BadRequest(f"Invalid 'n': must be between 1 and {MAX_IMAGES}.", param="n")
        self.choices = int(number)
        self._size = self._text("size")
        if self._size is not None and SIZE.fullmatch(self._size) is None:
            raise BadRequest("Invalid value for 'size'.", param="size")
        self._size = None if self._size == "auto" else self._size
        quality = self._word("quality", frozenset(QUALITIES))
        self._quality = None if quality == "auto" else quality
        self._response_format = self._word("response_format", frozenset({"url", "b64_json"}))
        self.units = Usage(images=self.choices, image_size=self._size, image_quality=self._quality)
        self.input_estimate = MEDIA_TOKENS * len(form.files)
        self._wish: Wish | None = None
        """What the whole form says; None: it is not here."""

    def target_of(self, speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
        """Return OpenAI's shape where the provider has it, else the one in which a Gemini model is asked."""
        return super().target_of(speaks, can) or _native(speaks, can)

    def take_form(self, form: bytes) -> None:
        """Take the whole form, for a provider that wants it said anew. Raises BadRequest."""
        prompt = needed_text("prompt", self._text("prompt"))
        sources = [
            (
                part.name,
                Image(
                    data=b64encode(form[part.start : part.end]).decode(),
                    media_type=part.content_type.decode("latin-1"),
                ),
            )
            for part in parts_of(form, self._form.boundary)
            if part.is_file and part.name in self.FILES
        ]
        if len(sources) > MAX_SOURCES:
            raise BadRequest(f"At most {MAX_SOURCES} pictures may be given.", param=sources[-1][0])
        empty = next((name for name, picture in sources if not picture.data), None)
        if empty is not None:
            raise BadRequest(f"The field '{empty}' holds an empty file.", param=empty)
        self._wish = Wish(prompt, self.choices, self._size, self._quality, sources)

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return nothing to send where the form passes by itself, else the calls. Raises UnsupportedFeature."""
        if target != NATIVE:
            return super().upstream_bodies(target, model, drop, notes)
        assert self._wish is not None, "the form was waited for"
        google_images.refuse_address(notes, self._response_format)
        fields, files = self._form.fields, self._form.files
        google_images.settle_fields(
            notes, [*fields, *files], lambda name: fields[name][-1] if name in fields else name
        )
        return google_images.encode_native(self._wish, model, notes)

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read what the calls brought. Raises DecodeError."""
        if target == NATIVE:
            assert self._wish is not None, "it was encoded"
            return MadePictures(list(map(google_images.reader_of(target), bodies)), self._wish, asked)
        (body,) = bodies
        answer = JsonAnswer(self.ENDPOINT, body, asked, read_usage(body, self._size, self._quality))
        if answer.error is None and not answer.holds_array("data"):
            raise DecodeError(self.ENDPOINT, None, "the answer holds no pictures")
        return answer

    def pass_stream(self, target: str, asked: Asked, options: PassOptions) -> StreamCodec:
        """Return the codec of previews and pictures on their way to the client."""
        if target == NATIVE:
            assert self._wish is not None, "it was encoded"
            return PictureStream(google_images.reader_of(target), COMPLETED, self.choices, self._wish, asked)
        return EventStream(options, usage_of_event(self._size, self._quality), (".completed",))


class ImageVariationRequest(ImageEditRequest):
    """Pictures like another one."""

    ENDPOINT = "image_variations"
    FILES = frozenset({"image"})

    def target_of(self, speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
        """Return OpenAI's shape where the provider has it: without a text nothing else can be asked."""
        return FormRequest.target_of(self, speaks, can)


class ImageEditJsonRequest(ImagesRequest):
    """Pictures to be changed by a text, in JSON: they are named by address or file, or stand in data URLs."""

    ENDPOINT = "image_edits"
    EVENTS = "image_edit"

    def __init__(self, body: bytes) -> None:
        """Read a body. Raises BadRequest."""
        super().__init__(body)
        images = self.decoded("images")
        if images is None:
            raise BadRequest("Missing required parameter: 'images'.", param="images")
        if not isinstance(images, list) or not 1 <= len(images) <= MAX_SOURCES:
            raise BadRequest(
                f"Invalid 'images': expected an array of 1 to {MAX_SOURCES} pictures.", param="images"
            )
        self._sources = [(f"images[{at}]", _reference(f"images[{at}]", one)) for at, one in enumerate(images)]
        mask = self.decoded("mask")
        named = list(self._sources)
        if mask is not None:
            named.append(("mask", _reference("mask", mask)))
        self.file_ids = {f"{path}.file_id": picture.file_id for path, picture in named if picture.file_id}
        """Of the files that it names, as the client spells them, by their place in the request."""
        self.names_kept_state = bool(self.file_ids)
        self.keeper = ""
        """The provider that has to be asked, where it names what is kept."""

    def with_files(self, provider: str, ids: dict[str, str]) -> None:
        """Put in the provider's own ids of the files that are named, by their place in the request."""
        self.keeper = provider
        images, mask = self.decoded("images"), self.decoded("mask")
        places = [(f"images[{at}]", image) for at, image in enumerate(images)]
        for path, named in [*places, ("mask", mask)]:
            id = ids.get(f"{path}.file_id")
            if id is not None:
                named["file_id"] = id
        wanted = {"images": json_edit.dumps(images)}
        if mask is not None:
            wanted["mask"] = json_edit.dumps(mask)
        self.replace(json_edit.changed(self.body, wanted))

    def target_of(self, speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
        """Return OpenAI's shape where the provider has it, else the one in which a Gemini model is asked."""
        return self.ENDPOINT if self.SPOKEN_BY.intersection(speaks) else _native(speaks, can)

    def _wish(self) -> Wish:
        sources = [(f"{path}.image_url", picture) for path, picture in self._sources]
        return Wish(self._prompt, self.choices, self.size, self.quality, sources)


def _native(speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
    return NATIVE if google_images.target_of(speaks, can) == NATIVE else None


def _reference(path: str, given: Any) -> Image:
    """Read what names a picture. Raises BadRequest."""
    if not isinstance(given, dict):
        raise BadRequest(f"Invalid type for '{path}': expected an object.", param=path)
    url, id = given.get("image_url"), given.get("file_id")
    if (url is None) == (id is None):
        raise BadRequest(f"Invalid '{path}': give either 'image_url' or 'file_id'.", param=path)
    if id is not None:
        return Image(file_id=needed_text(f"{path}.file_id", id))
    at = f"{path}.image_url"
    text = needed_text(at, url)
    if text.startswith(("https://", "http://")):
        return Image(url=text)
    inline = read_inline(text) if text[:5].lower() == "data:" else None
    if inline is None:
        raise BadRequest(f"Invalid '{at}': expected a web address or a data URL in base64.", param=at)
    kind, data = inline
    return Image(data=data, media_type=kind)
