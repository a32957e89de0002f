"""Requests that may name what a provider keeps, most of them for work that goes on there.

A video is made anew, or goes out from a file; a batch is made of one, pictures are changed. Only the provider that
keeps it is asked then.
"""

from sluicegate.errors import BadRequest
from sluicegate.messages import Usage
from sluicegate.server.kept_objects import Shelf
from sluicegate.server.routes import Route
from sluicegate.server.upload import Upload
from sluicegate.wire.unary import UnaryRequest
from sluicegate.wire.unary.batches import BatchRequest, input_file_of
from sluicegate.wire.unary.image_edits import ImageEditJsonRequest
from sluicegate.wire.unary.multipart import MODEL
from sluicegate.wire.unary.videos import (
    EditFormRequest,
    EditRequest,
    ExtensionFormRequest,
    ExtensionRequest,
    RemixRequest,
    Source,
    VideoRequest,
    json_of,
    read_state,
    source_of,
)

REWORKS = frozenset({"video_edit", "video_extension"})
"""Endpoints whose requests come as JSON, or as a form that says the same: the SDKs send forms."""


class ReworkForm(Upload):
    """A form that asks for another video: it names the first one, or holds it and passes then."""

    __slots__ = ()

    def _may_pass(self) -> bool:
        return self.form.in_file

    def framing(self, model: str, first: bytes) -> bytes:
        """Return the header line that frames the body: a model that is left out stays so."""
        if MODEL in self.form.fields or self.complete or self._exchange.chunked:
            return super().framing(model, first)
        return b"content-length: %d\r\n" % self._exchange.content_length

    def first_part(self, model: str) -> bytes:
        """Return what has come so far, with the provider's model in it where the client names one."""
        if MODEL in self.form.fields:
            return super().first_part(model)
        return b"".join(part for part in self._held if part is not None)


async def read_rework(route: Route, upload: ReworkForm, size: int, shelf: Shelf) -> tuple[UnaryRequest, bool]:
    """Read a request for another video that comes as a form; return it, and whether the form passes.

    Args:
        size: of its body, as far as it is known.
    Raises:
        SluicegateError: it is wrong, too large, or does not come.
    """
    await upload.wait_until_ready(EditFormRequest.READ_FIRST)
    if not upload.form.files:
        return await read_job_request(route, json_of(upload.form), shelf), False
    kind = ExtensionFormRequest if route.endpoint == "video_extension" else EditFormRequest
    return kind(upload.form, size), True


async def read_job_request(route: Route, body: bytes, shelf: Shelf) -> UnaryRequest:
    """Read a request of one of the endpoints above.

    Raises:
        BadRequest: in the client's own terms.
        StateUnknown: it names what is not kept for its account.
        StoreUnavailable: nobody could say in time.
    """
    if route.endpoint == "video_remix":
        return RemixRequest(body, await _source(shelf, route.id, "id"))
    if route.endpoint == "video_edit":
        return EditRequest(body, await _source(shelf, source_of(body), "video.id"))
    if route.endpoint == "video_extension":
        return ExtensionRequest(body, await _source(shelf, source_of(body), "video.id"))
    if route.endpoint == "batches":
        id = input_file_of(body)
        file = await shelf.find("file", id)
        if file.units is None:
            raise BadRequest(
                "Invalid 'input_file_id': the file was not uploaded here with the purpose 'batch'.",
                param="input_file_id",
            )
        return BatchRequest(body, file.model, file.provider, file.upstream_id, file.units)
    if route.endpoint == "image_edits":
        return await _with_pictures(ImageEditJsonRequest(body), shelf)
    request = VideoRequest(body)
    if request.file_id is not None:
        file = await shelf.find("file", request.file_id)
        request.with_file(file.provider, file.upstream_id)
    return request


async def _source(shelf: Shelf, id: str, param: str) -> Source:
    """Return the video that another one goes out from. Raises BadRequest, StateUnknown, StoreUnavailable."""
    video = await shelf.now(await shelf.find("video", id))
    if video.open:
        raise BadRequest("Only from a video that is done another one can be made.", param=param)
    made = read_state(video.told).usage
    asked = Usage() if video.job is None else video.job.units
    units = Usage(media_ms=made.media_ms or asked.media_ms, image_size=made.image_size or asked.image_size)
    return Source(video.model, video.provider, video.upstream_id, units)


async def _with_pictures(request: ImageEditJsonRequest, shelf: Shelf) -> ImageEditJsonRequest:
    """Put the provider's own ids in the place of those of files. Raises BadRequest, StateUnknown, StoreUnavailable."""
    ids: dict[str, str] = {}
    keeper: str | None = None
    for path, id in request.file_ids.items():
        file = await shelf.find("file", id)
        if keeper not in (None, file.provider):
            raise BadRequest(
                f"'{path}' is kept by another provider than what else the request names.", param=path
            )
        keeper, ids[path] = file.provider, file.upstream_id
    if keeper is not None:
        request.with_files(keeper, ids)
    return request
