"""Asks a provider how work goes on there, and reads what its end costs: for a client that asks, or our own slow poll.

Settling is the supervisor's (`job_desk`). Of a batch all results are read, line by line, and each is charged at the
price that held when the batch was admitted. Source: OpenAI's API reference, "Videos", "Batch".
"""

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from sluicegate.billing.ledger import Job, JobEnd, KeptObject, ObjectKind, UsageRow
from sluicegate.billing.price import charge
from sluicegate.errors import DecodeError, StateUnknown, UpstreamError
from sluicegate.messages import Endpoint, Usage, UsageSource
from sluicegate.routing.catalog import Price, Provider
from sluicegate.server.job_messages import JobTold
from sluicegate.server.kept_questions import ask, read_lines
from sluicegate.server.targets import Targets
from sluicegate.server.upstream_pool import UpstreamPool
from sluicegate.wire import json_edit
from sluicegate.wire.unary import batches, videos
from sluicegate.wire.unary.jobs import JobAnswer, text_of, top_of

SHAPES: Mapping[ObjectKind, Endpoint] = {"video": "videos", "batch": "batches", "file": "files"}
KINDS: Mapping[str, ObjectKind] = {
    "videos": "video",
    "video_remix": "video",
    "video_edit": "video",
    "video_extension": "video",
    "batches": "batch",
}
MAX_LINE_BYTES = 33_554_432


def kept_of(answer: JobAnswer, endpoint: str, row: UsageRow, now: float) -> KeptObject:
    """Return the work that a provider has taken on."""
    assert answer.upstream_id is not None, "an answer without an id is none"
    return KeptObject(
        kind=KINDS[endpoint],
        provider=row.provider or "",
        upstream_id=answer.upstream_id,
        account_id=row.account_id,
        model=row.model,
        created_at=now,
        told=answer.body,
    )


def running(kept: KeptObject) -> bytes:
    """Return what a provider said of work that is not settled: nothing that it has ended."""
    return unsettled(kept.kind, kept.told)


def unsettled(kind: ObjectKind, told: bytes) -> bytes:
    """Return what a provider says of work, as if it had not ended."""
    ended = videos.read_state(told).ended if kind == "video" else batches.read_state(told).ended
    if ended is None:
        return told
    hidden: dict[str, bytes] = {
        name: b"null" for name in ("output_file_id", "error_file_id") if name in top_of(told)
    }
    return json_edit.changed(told, {"status": b'"in_progress"', **hidden})


async def poll(
    pool: UpstreamPool, targets: Targets, kept: KeptObject, question: int, *, polled: bool
) -> JobTold:
    """Ask how a job is. A provider that cannot be asked now leaves it as it is.

    Args:
        question: of the answer that this becomes.
        polled: nobody but ourselves wants to know.
    """
    assert kept.job is not None, "files do not end"
    told = JobTold(question, kept, polled=polled)
    try:
        target = targets.get(kept.provider, SHAPES[kept.kind], "")
        body = await ask(pool, target, "GET", path_of(kept.upstream_id))
        end = (
            _video_end(kept.job, body)
            if kept.kind == "video"
            else await _batch_end(pool, targets, kept, body)
        )
    except StateUnknown:
        gone = JobEnd(status="upstream_error", error="not_found", told=kept.told)
        return msgspec.structs.replace(told, told=kept.told, end=gone)
    except (
        UpstreamError,
        DecodeError,
        KeyError,
    ):  # a provider that was taken out of the configuration may come back
        return told
    return msgspec.structs.replace(told, told=body, end=end)


def _video_end(job: Job, body: bytes) -> JobEnd | None:
    state = videos.read_state(body)
    if state.ended is None:
        return None
    if state.ended == "failed":
        return JobEnd(status="upstream_error", error=state.reason, told=body)
    asked, made_ms = job.units, state.usage.media_ms
    source: UsageSource = "counted" if made_ms is None else "reported"
    if job.row.client_format == "video_extension" and made_ms is not None and asked.media_ms is not None:
        made_ms = min(made_ms, asked.media_ms)  # told is the length of both together
    usage = Usage(
        input_tokens=0,
        output_tokens=0,
        media_ms=asked.media_ms if made_ms is None else made_ms,
        image_size=state.usage.image_size or asked.image_size,
    )
    cost, odd = charge(None if job.price is None else Price(job.price), usage)
    return JobEnd(
        status="ok",
        usage=usage,
        usage_source=source,
        usage_odd=odd,
        list_cost_nano_usd=cost,
        told=body,
    )


async def _batch_end(pool: UpstreamPool, targets: Targets, kept: KeptObject, body: bytes) -> JobEnd | None:
    """Return how a batch ended, with what its results cost; None where it goes on.

    Raises:
        UpstreamError, StateUnknown: its results cannot be read now.
    """
    state = batches.read_state(body)
    if state.ended is None:
        return None
    assert kept.job is not None
    total = Usage(input_tokens=0, output_tokens=0, service_tier=batches.TIER)
    price = None if kept.job.price is None else Price(kept.job.price)
    cost, odd = 0, False
    if state.results is not None:
        target = targets.get(kept.provider, "files", "")
        async for line in read_lines(pool, target, f"{path_of(state.results)}/content", MAX_LINE_BYTES):
            usage = batches.usage_of_line(line)
            if usage is not None:
                batches.add(total, usage)
                more, strange = charge(price, usage, batches.TIER)
                cost, odd = cost + more, odd or strange
    files = [
        KeptObject(
            kind="file",
            provider=kept.provider,
            upstream_id=id,
            account_id=kept.account_id,
            model=kept.model,
            created_at=kept.created_at,
            purpose="batch_output",
            told=json_edit.dumps({"id": id, "object": "file", "purpose": "batch_output"}),
        )
        for id in (state.results, state.errors)
        if id is not None
    ]
    return JobEnd(
        status=state.ended,
        error=None if state.ended == "ok" else (text_of(top_of(body).get("status")) or state.ended),
        usage=total,
        usage_source="reported" if state.results is not None else "none",
        usage_odd=odd,
        list_cost_nano_usd=cost,
        told=body,
        files=files,
    )


def path_of(id: str) -> str:
    """Return what follows an endpoint's path to name one object."""
    return "/" + quote(id, safe="")


def serves(provider: Provider, service: str) -> bool:
    """Whether a provider has an endpoint of OpenAI's that its row does not leave out."""
    openai = any(spoken in ("chat", "completions", "responses") for spoken in provider.speaks)
    return openai and (provider.unary is None or service in provider.unary)
