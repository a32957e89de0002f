"""`GET /v1/generations/{x-request-id}`: usage, cost, provider, times and state of a request of the same key.

A running one too, and for clients whose SDK does not show the cost. Another key's request is unknown. Where it is found
is `generation_desk`'s; here is what the client is told of it. Source: the streaming contract, X2.
"""

import msgspec

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.ledger import UsageRow
from sluicegate.errors import StateUnknown
from sluicegate.money import format_usd
from sluicegate.server.generation_messages import GenerationAsked, GenerationTold
from sluicegate.server.request_ids import read_request_id
from sluicegate.server.serving.bench import Bench
from sluicegate.server.supervisor_link import SupervisorLink

_COUNTS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
_ABOUT = ("model", "stream", "client_format", "finish_reason", "error", "client_request_id")
_TIMES = ("started_at", "ttft_ms", "duration_ms", "tokens_per_s")
_PROVIDER = ("provider", "provider_model", "provider_format", "attempts", "upstream_id")


async def answer_generation(bench: Bench, link: SupervisorLink, key: KeyRecord, request_id: str) -> bytes:
    """Return the body that tells how a request stands.

    Raises:
        StateUnknown: there is none of this id, or it is another key's.
        StoreUnavailable: nobody who knows answered in time.
    """
    shows_provider = bench.plan.settings.server.expose_provider
    if read_request_id(request_id) is None:
        raise _unknown(request_id)
    row = bench.running_row(key.id, request_id)
    if row is not None:
        return _encode(row, running=True, shows_provider=shows_provider)
    told = await link.ask(lambda question: GenerationAsked(question, key.id, request_id), GenerationTold)
    if told.row is None:
        raise _unknown(request_id)
    return _encode(told.row, running=told.running, shows_provider=shows_provider)


def _unknown(request_id: str) -> StateUnknown:
    return StateUnknown(f"No request with id '{request_id[:100]}' of this key was found.", param="id")


def _encode(row: UsageRow, *, running: bool, shows_provider: bool) -> bytes:
    told: dict[str, object] = {
        "id": row.request_id,
        "object": "generation",
        "state": "running" if running else "done",
        "status": None if running else row.status,
    }
    names = (*_ABOUT, *_PROVIDER) if shows_provider else _ABOUT
    told |= {name: getattr(row, name) for name in names}
    told["usage"] = {name: getattr(row.usage, name) for name in _COUNTS}
    told["usage_source"] = row.usage_source
    told["cost"] = msgspec.Raw(format_usd(row.cost_nano_usd).encode())
    told["cost_nano_usd"] = row.cost_nano_usd
    told |= {name: getattr(row, name) for name in _TIMES}
    return msgspec.json.encode(told)
