"""State that a provider keeps, for its own account alone: ids turned back on the way in, and where they lead.

An id of ours says which provider keeps what it stands for (`wire.sealed_id`), so a request that names some goes there
and nowhere else. What is not ours, or another account's, is unknown: nothing is asked of a provider then. What the
gate keeps itself is `own_responses`'s.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from sluicegate.errors import BadRequest, StateUnknown
from sluicegate.messages import Format
from sluicegate.routing.catalog import Deployment, Provider
from sluicegate.server.choosing import Served
from sluicegate.wire import json_edit
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.json_edit import Edit
from sluicegate.wire.kept_ids import Place, is_reference, places, sealed
from sluicegate.wire.sealed_id import IdSeal, is_sealed
from sluicegate.wire.translation import AdmittedRequest, Asked

_SOUND = ".audio.id"
"""Of an answer that a chat provider has spoken."""
_FILES = re.compile(r"\bfile_ids?\b|\bfileUri\b")
KEEPING = frozenset({"responses", "messages"})
"""Formats whose answers tell ids of what the provider keeps; those of chat do where a sound was asked for."""


def unknown(path: str, id: str) -> StateUnknown:
    """Return the error for an id under which nothing is kept that this account may know of."""
    shown = id if len(id) <= 100 else id[:100] + "…"
    if path == "previous_response_id":
        return StateUnknown(f"{path}: Previous response with id '{shown}' was not found.", param=path)
    return StateUnknown(f"{path}: Nothing with id '{shown}' was found.", param=path)


def turn_back(
    body: bytes, format: Format, account_id: str, seal: IdSeal, speaks: Collection[Format]
) -> tuple[bytes, str | None]:
    """Return a request with the providers' own ids, and the provider that keeps what it names, if it names anything.

    Args:
        body: valid JSON and UTF-8, an object.
        speaks: every format of the model's providers. An unknown id that none of them could be told is left to
            translation, which refuses the field and says why.
    Raises:
        StateUnknown: an id is no account's, or another account's.
        BadRequest: two providers would be needed.
    """
    edits: list[Edit] = []
    keeper: str | None = None
    for place in places(body, format):
        if format == "chat" and place.path.endswith(_SOUND) and "chat" not in speaks:
            continue  # nobody could be told, whoever's it is: translation says what it does without
        refers = not place.item or is_reference(body, place)
        kept = seal.open(account_id, place.id)
        if kept is None:
            if is_sealed(place.id) or (refers and _could_tell(place, format, speaks)):
                raise unknown(place.path, place.id)
            continue
        edits.append((place.start, place.end, json_edit.dumps(kept.id)))
        if refers:
            keeper = _one_keeper(keeper, kept.provider, place)
    return json_edit.splice(body, edits), keeper


def _could_tell(place: Place, format: Format, speaks: Collection[Format]) -> bool:
    """Whether one of these formats has words for what a place names: files any of the vendor, all else its own."""
    if _FILES.search(place.path) is None:
        return format in speaks
    vendor = FORMATS[format].vendor
    return any(FORMATS[spoken].vendor == vendor for spoken in speaks)


def formats_of(served: Sequence[Served], providers: Mapping[str, Provider]) -> set[Format]:
    """Return every format in which one of these can be asked."""
    return {
        spoken
        for one in served
        for deployment in one.deployments
        for spoken in providers[deployment.provider].speaks
    }


def _one_keeper(known: str | None, found: str, place: Place) -> str:
    if known is not None and known != found:
        raise BadRequest(
            f"'{place.path}' is kept by another provider than what else the request names.", param=place.path
        )
    return found


def able(
    served: Sequence[Served], providers: Mapping[str, Provider], keeper: str | None, *, background: bool
) -> tuple[Served, ...]:
    """Return what has all that the request names, and can run it in the background where it asks so.

    Args:
        keeper: the provider that keeps it; None: it names nothing.
    Raises:
        BadRequest: there is nothing.
    """
    if keeper is not None:
        served = _narrowed(served, lambda deployment: deployment.provider == keeper)
        if not served:
            raise BadRequest("The request names what is kept by a provider that does not serve this model.")
    if background:
        served = _narrowed(served, lambda deployment: "responses" in providers[deployment.provider].speaks)
        if not served:
            raise BadRequest(
                "'background' is not supported for this model: its provider does not speak Responses, so that nobody "
                "could ask how the run ends.",
                param="background",
            )
    return tuple(served)


def _narrowed(served: Sequence[Served], fits: Callable[[Deployment], bool]) -> tuple[Served, ...]:
    return tuple(
        one._replace(deployments=theirs)
        for one in served
        if (theirs := tuple(deployment for deployment in one.deployments if fits(deployment)))
    )


def refuse_loose_run(request: AdmittedRequest) -> None:
    """Refuse a run in the background that nobody could ask for, or whose stream could not be taken up again.

    Raises:
        BadRequest
    """
    if request.stream:
        raise BadRequest("'background' cannot be streamed through this gateway.", param="background")
    if not getattr(request, "store", False):
        raise BadRequest(
            "'background' needs the answer to be kept: 'store' must not be false.", param="store"
        )


def queued(body: bytes, asked: Asked, id: str) -> bytes:
    """Return a provider's answer to a run that has only been queued, as the client gets it.

    Args:
        id: the provider's.
    """
    assert asked.close_id is not None, "what runs in the background is kept"
    wanted = {"id": json_edit.dumps(asked.close_id(id)), "model": json_edit.dumps(asked.model)}
    if asked.previous_id is not None:
        wanted["previous_response_id"] = json_edit.dumps(asked.previous_id)
    return sealed(json_edit.changed(body, wanted), "responses", asked.close_id)


def closing(
    seal: IdSeal, request: AdmittedRequest, format: str, account_id: str, provider: str
) -> Callable[[str], str] | None:
    """Return what turns the provider's ids in an answer of its own format into ours; None where it keeps nothing.

    Args:
        format: of client and provider.
    """
    if (
        format == "messages"
        or (format == "responses" and getattr(request, "store", False))
        or (format == "chat" and getattr(request, "asks_sound", False))
    ):
        return partial(seal.close, account_id, provider, model=request.model)
    return None
