"""Makes the probes that the supervisor asks for: a provider's list of models, or a request for one token.

What it means is the supervisor's to say (`probe_desk`); breakers are not touched here. Nobody is charged: where a probe
may have cost something, the operator has a row of it.
"""

import time

from sluicegate.billing.ledger import ProviderCost
from sluicegate.billing.price import charge
from sluicegate.errors import (
    ClientError,
    DecodeError,
    StoreUnavailable,
    UpstreamError,
    UpstreamGarbled,
)
from sluicegate.messages import Usage
from sluicegate.routing.catalog import Deployment, Provider
from sluicegate.routing.probing import finding_of
from sluicegate.routing.retry import may_have_cost
from sluicegate.server.interpreter import Interpreter
from sluicegate.server.kept_questions import call
from sluicegate.server.probe_messages import ProbeAsked, ProbeTold
from sluicegate.server.request_ids import RequestIds
from sluicegate.server.serving.bench import Bench
from sluicegate.wire import json_edit
from sluicegate.wire.anthropic_headers import upstream_headers
from sluicegate.wire.translation import Asked
from sluicegate.wire.upstream_errors import from_response, from_stream_error

SMALLEST = b'{"model":"probe","messages":[{"role":"user","content":"1"}],"max_tokens":1}'
"""The least that can be asked, as chat says it; what a provider's format or model wants otherwise, the codecs know."""
REASON = "probe"
"""Of the operator's row."""


async def probe(bench: Bench, asked: ProbeAsked) -> ProbeTold:
    """Make a probe and say what was found."""
    provider = bench.plan.settings.catalogue.providers.get(asked.provider)
    if provider is None:  # taken out of the configuration
        return ProbeTold(asked.question, "unclear")
    try:
        if asked.kind == "models":
            await _list_models(bench, provider, asked.timeout_s)
        elif not await _ask_for_a_token(bench, provider, asked.models[0], asked.timeout_s):
            return ProbeTold(asked.question, "unclear")
    except UpstreamError as error:
        answering = [model for model in asked.models if bench.deployments.answers(provider.name, model)]
        return ProbeTold(asked.question, finding_of(error), error.kind, answering)
    return ProbeTold(asked.question, "well")


async def _list_models(bench: Bench, provider: Provider, timeout_s: float) -> None:
    """Ask for the provider's list of models. Raises UpstreamError."""
    target = bench.plan.targets.get(provider.name, provider.speaks[0], "")
    lines = upstream_headers(b"{}", (), provider.betas_deny) if target.format == "messages" else b""
    status, headers, body = await call(bench.pool, target.origin, target.models_head(lines), b"", timeout_s)
    if status != 200:
        raise from_response(status, headers, body, provider.api_keys)
    if not json_edit.is_json(body):
        raise UpstreamGarbled("The provider's list of models is no JSON.")


async def _ask_for_a_token(bench: Bench, provider: Provider, upstream_id: str, timeout_s: float) -> bool:
    """Ask a deployment for the least there is; return whether it could be asked.

    Raises:
        UpstreamError
    """
    found = bench.plan.settings.catalogue.serving(provider.name, upstream_id)
    if found is None:
        return False
    model, deployment = found
    request_id = RequestIds(bench.number).new()
    interpreter = Interpreter("chat", SMALLEST, "lenient")
    interpreter.asked = Asked(model=model.id, id=request_id[4:], created=int(time.time()))
    format = interpreter.target_format(provider, deployment)
    try:
        body = interpreter.upstream_body(format, provider, model, deployment, None)
    except ClientError:  # it takes no conversation
        return False
    target = bench.plan.targets.get(provider.name, format, upstream_id)
    head = target.head(len(body), stream=False, lines=interpreter.upstream_lines(format, provider, body, []))
    usage: Usage | None = None
    try:
        status, headers, told = await call(bench.pool, target.origin, head, body, timeout_s)
        if status != 200:
            raise from_response(status, headers, told, provider.api_keys)
        answer = interpreter.plain(format, deployment, told)
        usage = answer.usage
        if answer.error is not None:
            raise from_stream_error(answer.error, provider.api_keys)
    except DecodeError as error:
        _note_cost(bench, request_id, deployment, usage)
        raise UpstreamGarbled(f"The provider's answer broke its format: {error.reason}.") from None
    except UpstreamError as error:
        if may_have_cost(error):
            _note_cost(bench, request_id, deployment, usage)
        raise
    _note_cost(bench, request_id, deployment, usage)
    return True


def _note_cost(bench: Bench, request_id: str, deployment: Deployment, usage: Usage | None) -> None:
    """Write down for the operator what a probe cost; an unknown amount where its usage or its price is not known."""
    known = usage is not None and deployment.cost is not None
    amount_nano = charge(deployment.cost, usage)[0] if usage is not None and known else None
    cost = ProviderCost(
        request_id=request_id,
        attempt=1,
        provider=deployment.provider,
        provider_model=deployment.model,
        at=time.time(),
        amount_nano=amount_nano,
        reason=REASON,
    )
    try:
        bench.till.journal.append(cost)
    except StoreUnavailable:
        return  # it carries no charge
    bench.till.link.wake()
