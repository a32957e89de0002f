"""What providers keep, by its id: video jobs, files, batches. Each account sees its own and no others.

An id of ours says which provider to ask (`wire.sealed_id`); what there is in all, the supervisor knows (`job_desk`). A
job's end is told only when it has been settled. Nothing here is charged but what a job costs when it has ended.
"""

import contextlib
import re
from urllib.parse import parse_qsl, urlencode

import msgspec

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.ledger import KeptObject, ObjectKind
from sluicegate.errors import BadRequest, ClientError, StateUnknown
from sluicegate.messages import Endpoint
from sluicegate.server.download import Download
from sluicegate.server.exchange import Exchange
from sluicegate.server.job_messages import JobTold, ObjectDropped, ObjectsAsked, ObjectsTold
from sluicegate.server.job_poll import SHAPES, path_of, poll, running
from sluicegate.server.kept_questions import ask
from sluicegate.server.refusals import JSON, answer_headers
from sluicegate.server.routes import Route
from sluicegate.server.serving.bench import Bench
from sluicegate.store import ObjectQuery
from sluicegate.wire import json_edit
from sluicegate.wire.sealed_id import Kept
from sluicegate.wire.unary.jobs import told

_KINDS: dict[Endpoint, ObjectKind] = {"videos": "video", "files": "file", "batches": "batch"}
_NUMBER = re.compile(r"[0-9]{1,9}")
MAX_FILES_ASKED = 10_000
"""What a client may ask for at once, as at OpenAI; a page holds fewer."""
_PAGES: dict[ObjectKind, tuple[int, int]] = {"video": (20, 100), "batch": (20, 100), "file": (1000, 1000)}
"""Items of a page where the client does not say, and the most that a page holds."""
_VARIANTS = frozenset({"video", "thumbnail", "spritesheet"})


class Shelf:
    """One request of one account about what is kept for it."""

    def __init__(self, bench: Bench, exchange: Exchange, key: KeyRecord, request_id: str) -> None:
        self._bench = bench
        self._plan = bench.plan
        self._link = bench.till.link
        self._exchange = exchange
        self._account_id = key.account_id
        self._request_id = request_id

    async def answer(self, route: Route) -> None:
        """Answer the request.

        Raises:
            StateUnknown: nothing of this id, or another account's.
            ClientError, UpstreamError, StoreUnavailable
        """
        assert route.endpoint is not None
        kind = _KINDS[route.endpoint]
        if route.part == "list":
            self._respond(await self._list(kind))
            return
        kept = await self.find(kind, route.id)
        if route.part == "content":
            await self._download(kept)
            return
        if route.part == "cancel":
            self._respond(await self._cancel(kept))
        elif self._exchange.method == "DELETE":
            self._respond(await self._delete(kept, route.id))
        else:
            self._respond(self._told(await self.now(kept)))

    async def find(self, kind: ObjectKind, id: str) -> KeptObject:
        """Return what an id of ours stands for. Raises StateUnknown, StoreUnavailable."""
        opened = self._plan.seal.open(self._account_id, id)
        if opened is None or opened.provider not in self._plan.settings.catalogue.providers:
            raise unknown(kind, id)
        query = ObjectQuery(
            account_id=self._account_id, kind=kind, provider=opened.provider, upstream_id=opened.id
        )
        found = await self._ask_for(query)
        if not found:
            return self._unlisted(kind, id, opened)
        return found[0]

    async def now(self, kept: KeptObject) -> KeptObject:
        """Return an object as it is by now; a job that has ended is settled first."""
        if kept.kind == "file":
            return await self._file_now(kept)
        if not kept.open:
            return kept
        told = await poll(self._bench.pool, self._plan.targets, kept, 0, polled=False)
        body = kept.told if told.told is None else told.told
        if told.end is not None:
            await self._link.ask(lambda question: JobTold(question, kept, told.told, told.end), ObjectsTold)
        return _as_told(kept, body, open=told.end is None)

    async def _file_now(self, kept: KeptObject) -> KeptObject:
        target = self._plan.targets.get(kept.provider, "files", "")
        try:
            body = await ask(self._bench.pool, target, "GET", path_of(kept.upstream_id))
        except StateUnknown:
            raise unknown("file", self._id(kept, kept.upstream_id)) from None
        return _as_told(kept, body, open=False)

    # ---- what is asked for ------------------------------------------------------------------------------------------

    async def _list(self, kind: ObjectKind) -> bytes:
        query = dict(parse_qsl(self._exchange.query))
        usual, most = _PAGES[kind]
        limit = query.get("limit", str(usual))
        allowed = MAX_FILES_ASKED if kind == "file" else most
        if not _NUMBER.fullmatch(limit) or not 1 <= int(limit) <= allowed:
            raise BadRequest(f"Invalid 'limit': must be between 1 and {allowed}.", param="limit")
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise BadRequest("Invalid 'order': use asc or desc.", param="order")
        after = None
        if "after" in query:
            after = (await self.find(kind, query["after"])).number
        shown = min(int(limit), most)
        found = await self._ask_for(
            ObjectQuery(
                account_id=self._account_id,
                kind=kind,
                purpose=query.get("purpose") if kind == "file" else None,
                after=after,
                ascending=order == "asc",
                limit=shown + 1,
            )
        )
        page = [self._told(kept) for kept in found[:shown]]
        ids = [self._id(kept, kept.upstream_id) for kept in found[:shown]]
        first, last = (json_edit.dumps(ids[0]), json_edit.dumps(ids[-1])) if ids else (b"null", b"null")
        more = b"true" if len(found) > shown else b"false"
        return b'{"object":"list","data":[%b],"first_id":%b,"last_id":%b,"has_more":%b}' % (
            b",".join(page),
            first,
            last,
            more,
        )

    async def _download(self, kept: KeptObject) -> None:
        query: list[tuple[str, str]] = []
        if kept.kind == "video":
            variant = dict(parse_qsl(self._exchange.query)).get("variant")
            if variant is not None:
                if variant not in _VARIANTS:
                    raise BadRequest(
                        f"Invalid 'variant': use one of {', '.join(sorted(_VARIANTS))}.", param="variant"
                    )
                query.append(("variant", variant))
            if (await self.now(kept)).open:
                raise BadRequest("The video is not ready yet.", param="id")
        target = self._plan.targets.get(kept.provider, SHAPES[kept.kind], "")
        download = Download(
            self._exchange,
            target,
            self._bench.deadlines,
            self._plan.settings.clocks,
            answer_headers(self._request_id),
        )
        await download.run(self._bench.pool, path_of(kept.upstream_id) + "/content", urlencode(query))

    async def _delete(self, kept: KeptObject, id: str) -> bytes:
        if kept.kind != "file" and (await self.now(kept)).open:
            raise BadRequest("A video cannot be deleted before it is done.", param="id")
        target = self._plan.targets.get(kept.provider, SHAPES[kept.kind], "")
        with contextlib.suppress(StateUnknown):  # it is gone already
            await ask(self._bench.pool, target, "DELETE", path_of(kept.upstream_id))
        await self._link.ask(lambda question: ObjectDropped(question, kept), ObjectsTold)
        what = "file" if kept.kind == "file" else "video.deleted"
        return json_edit.dumps({"id": id, "object": what, "deleted": True})

    async def _cancel(self, kept: KeptObject) -> bytes:
        """Cancel a batch; what was answered by then is charged when it has ended."""
        if not kept.open:
            raise BadRequest("The batch has ended already.", param="id")
        target = self._plan.targets.get(kept.provider, "batches", "")
        await ask(self._bench.pool, target, "POST", path_of(kept.upstream_id) + "/cancel")
        return self._told(await self.now(kept))

    # ---- parts ------------------------------------------------------------------------------------------------------

    async def _ask_for(self, query: ObjectQuery) -> list[KeptObject]:
        return (await self._link.ask(lambda question: ObjectsAsked(question, query), ObjectsTold)).found

    def _unlisted(self, kind: ObjectKind, id: str, opened: Kept) -> KeptObject:
        """Return a file that nobody has written down: some answer told of it. Jobs are always written down."""
        if kind != "file":
            raise unknown(kind, id)
        return KeptObject(
            kind=kind,
            provider=opened.provider,
            upstream_id=opened.id,
            account_id=self._account_id,
            model=opened.model,
        )

    def _id(self, kept: KeptObject, id: str) -> str:
        return self._plan.seal.close(kept.account_id, kept.provider, id, kept.model)

    def _told(self, kept: KeptObject) -> bytes:
        """Return what a provider says of an object, as the client gets it."""
        body = running(kept) if kept.open else kept.told
        return told(body, kept.model, lambda id: self._id(kept, id))

    def _respond(self, body: bytes) -> None:
        if not self._exchange.gone:
            self._exchange.respond(200, JSON + answer_headers(self._request_id), body)


def unknown(kind: ObjectKind, id: str) -> ClientError:
    """Return the error for an id under which an account has nothing."""
    return StateUnknown(f"No {kind} with id '{id[:100]}' was found.", param="id")


def _as_told(kept: KeptObject, body: bytes, *, open: bool) -> KeptObject:
    return msgspec.structs.replace(kept, told=body, open=open)
