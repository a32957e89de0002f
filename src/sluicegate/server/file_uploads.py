"""Files on their way to a provider that keeps them: they pass while they come, but for those that a batch is made of.

Which provider that is, the requests in a batch's file say; of any other file, the client (where it may override), or it
is the first of the configuration that serves files and a model of the key. Nothing is charged for a file.
"""

import time

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.ledger import KeptObject
from sluicegate.errors import (
    BadRequest,
    DecodeError,
    Forbidden,
    SluicegateError,
    TooLarge,
    UnsupportedFeature,
    UpstreamGarbled,
)
from sluicegate.routing.catalog import Catalogue, Provider
from sluicegate.server.batch_files import BatchFile, read_batch_file
from sluicegate.server.choosing import PROVIDER_HEADER, allowed
from sluicegate.server.exchange import Exchange
from sluicegate.server.job_messages import ObjectPut, ObjectsTold
from sluicegate.server.job_poll import serves
from sluicegate.server.plain_relay import PlainRelay
from sluicegate.server.refusals import JSON, answer_headers
from sluicegate.server.serving.bench import Bench
from sluicegate.server.targets import Target
from sluicegate.server.token_counts import NoNotes
from sluicegate.server.upload import Upload
from sluicegate.wire.unary.jobs import text_of, told, top_of
from sluicegate.wire.unary.multipart import MODEL, parts_of

PURPOSE = "purpose"
BATCH = "batch"


class FileUpload(Upload):
    """A form with one file: held whole where a batch is to be made of it, else passed on once its purpose is known."""

    __slots__ = ()

    def _may_pass(self) -> bool:
        form = self.form
        return form.in_file and form.fields.get(PURPOSE, [BATCH]) != [BATCH]

    def _too_large(self) -> TooLarge:
        return TooLarge(
            "A file as large as this must name its 'purpose' before it, and no batch can be made of it."
        )

    def framing(self, model: str, first: bytes) -> bytes:
        """Return the header line that frames the body: nothing of it is changed."""
        if self.complete or self._exchange.chunked:
            return super().framing(model, first)
        return b"content-length: %d\r\n" % self._exchange.content_length

    def first_part(self, model: str) -> bytes:
        """Return what has come so far."""
        named = self.form.fields.get(MODEL, [""])[0].encode()
        return b"".join(named if part is None else part for part in self._held)


async def answer_upload(bench: Bench, exchange: Exchange, key: KeyRecord, request_id: str) -> None:
    """Pass a file to its provider, and tell the client the id under which it is kept.

    Raises:
        SluicegateError: it is wrong, too large, or does not come; or the provider does not take it.
    """
    upload = exchange.body_sink
    assert isinstance(upload, FileUpload), "what takes a form was set when its head came"
    known = bench.limits.known(key)
    ticket = await bench.limits.admit(known.limits, 0, messages=False) if known.limits else None
    try:
        await _pass(bench, exchange, key, request_id, upload)
    finally:
        upload.stop()
        if ticket is not None:
            ticket.release(0)


async def _pass(
    bench: Bench, exchange: Exchange, key: KeyRecord, request_id: str, upload: FileUpload
) -> None:
    await upload.wait_until_ready(frozenset({PURPOSE}))
    purposes, files = upload.form.fields.get(PURPOSE, []), upload.form.files
    if len(purposes) != 1 or not purposes[0]:
        raise BadRequest("Missing required parameter: 'purpose'.", param=PURPOSE)
    if files != ["file"]:
        raise BadRequest("Missing required parameter: 'file', one file.", param="file")
    batch: BatchFile | None = None
    first = upload.first_part("")
    if purposes[0] == BATCH:
        file = next(part for part in parts_of(first, upload.form.boundary) if part.is_file)
        batch = await read_batch_file(bench.plan, key, first[file.start : file.end])
        first = first[: file.start] + batch.content + first[file.end :]
        provider = batch.provider
    else:
        provider = choose_provider(bench.plan.settings.catalogue, key, exchange.header(PROVIDER_HEADER))
    target = bench.plan.targets.get(provider.name, "files", "")
    body = await _send(bench, exchange, upload, target, first)
    try:
        id = text_of(top_of(body).get("id"))
    except DecodeError:
        id = None
    if id is None:
        raise UpstreamGarbled("The provider's answer names no file.")
    model = "" if batch is None else batch.model
    kept = KeptObject(
        kind="file",
        provider=provider.name,
        upstream_id=id,
        account_id=key.account_id,
        model=model,
        created_at=time.time(),
        purpose=purposes[0],
        told=body,
        units=None if batch is None else batch.units,
    )
    await bench.till.link.ask(lambda question: ObjectPut(question, kept), ObjectsTold)
    if not exchange.gone:
        seal = bench.plan.seal
        answer = told(body, "", lambda id: seal.close(key.account_id, provider.name, id, model))
        exchange.respond(200, JSON + answer_headers(request_id), answer)


async def _send(bench: Bench, exchange: Exchange, upload: FileUpload, target: Target, first: bytes) -> bytes:
    """Return what the provider answers.

    Raises:
        SluicegateError: it did not take the file, or the rest of it did not come.
    """
    clocks = bench.plan.settings.clocks
    relay = PlainRelay(
        exchange,
        NoNotes(),
        bench.deadlines,
        clocks,
        total_due_at=bench.deadlines.now + clocks.total_timeout_s,
        secrets=target.provider.api_keys,
        drain_cap_s=None,
    )
    framing = upload.framing("", first)
    content_type = exchange.header(b"content-type") or b""
    connection = await bench.pool.connect(target.origin, clocks.connect_timeout_s)
    if exchange.gone:
        connection.abort()
        return b"{}"
    head = target.upload_head(framing, content_type, stream=False)
    upload.on_failed = relay.stop
    relay.begin(connection, head, upload.framed(first), upload)
    ending = await relay.ended()
    if ending == "gone":
        raise BadRequest("The client left.")
    if relay.error is not None:
        error: SluicegateError = relay.error
        raise error
    return relay.body


def choose_provider(catalogue: Catalogue, key: KeyRecord, named: bytes | None) -> Provider:
    """Return the provider that is to keep a file.

    Args:
        named: value of `x-sluicegate-provider`.
    Raises:
        Forbidden, UnsupportedFeature
    """
    header = PROVIDER_HEADER.decode()
    if named is not None and not key.may_override:
        raise Forbidden(f"'{header}' chooses a provider, which this API key may not do.", param=header)
    models = {**catalogue.models, **{model.id: model for _, model in catalogue.wildcards}}
    reached = {
        deployment.provider
        for name, model in models.items()
        if allowed(key, name, model)
        for deployment in model.deployments
    }
    wanted = None if named is None else named.decode("latin-1").strip()
    for provider in catalogue.providers.values():
        if provider.name in reached and wanted in (None, provider.name) and serves(provider, "files"):
            return provider
    raise UnsupportedFeature("No provider of this API key's models keeps files.", param="file")
