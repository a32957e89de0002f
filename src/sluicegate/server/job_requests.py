"""Requests that may name what a provider keeps, most of them for work that goes on there.

A video is made anew, or goes out from a file; a batch is made of one, pictures are changed. Only the provider that
keeps it is asked then.
"""

from sluicegate.errors import BadRequest
from sluicegate.messages import Usage
from sluicegate.server.kept_objects import Shelf
from sluicegate.server.routes import Route
from sluicegate.wire.unary import UnaryRequest
from sluicegate.wire.unary.batches import BatchRequest, input_file_of
from sluicegate.wire.unary.image_edits import ImageEditJsonRequest
from sluicegate.wire.unary.videos import RemixRequest, VideoRequest, read_state


async def read_job_request(route: Route, body: bytes, shelf: Shelf) -> UnaryRequest:
    """Read a request of one of the endpoints above.

    Raises:
        BadRequest: in the client's own terms.
        StateUnknown: it names what is not kept for its account.
        StoreUnavailable: nobody could say in time.
    """
    if route.endpoint == "video_remix":
        source = await shelf.now(await shelf.find("video", route.id))
        if source.open:
            raise BadRequest("Only a video that is done can be made anew.", param="id")
        made = read_state(source.told).usage
        asked = Usage() if source.job is None else source.job.units
        units = Usage(
            media_ms=made.media_ms or asked.media_ms, image_size=made.image_size or asked.image_size
        )
        return RemixRequest(body, source.model, source.provider, source.upstream_id, units)
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
