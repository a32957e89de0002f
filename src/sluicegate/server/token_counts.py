"""How many tokens a request would have: asked of the provider where it speaks the client's format, else counted here.

Counting is free and holds no reservation. A count of our own is exact for OpenAI's o200k families and near for others;
pictures, sounds and PDFs are counted as their vendors say, other media estimated as a reservation does. Source: wire
formats page `README.md`, routes.
"""

import asyncio
import binascii
from functools import partial

import msgspec

from sluicegate.billing.accounts import KeyRecord
from sluicegate.billing.image_tokens import UNKNOWN, image_tokens
from sluicegate.billing.media_lengths import PdfPages, page_tokens, sound_tokens
from sluicegate.billing.tokens import PIECE_CHARS, count_tokens
from sluicegate.errors import BadRequest, Forbidden, ModelNotFound, UpstreamError
from sluicegate.messages import (
    Audio,
    File,
    Format,
    Image,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from sluicegate.routing.catalog import Deployment, Model
from sluicegate.server.choosing import Served, allowed
from sluicegate.server.exchange import Exchange
from sluicegate.server.kept_state import able, formats_of, turn_back
from sluicegate.server.plain_relay import PlainRelay
from sluicegate.server.routes import Route
from sluicegate.server.serving.bench import Bench
from sluicegate.wire import anthropic_request_decoder, gemini_counting, json_edit
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.request_edges import read_members
from sluicegate.wire.translation import Notes, RequestDecoder

MESSAGE_TOKENS = 4
"""What a turn costs beside its text."""
MEDIA_BYTES_PER_TOKEN = 40
TURN_CHARS = 16 * PIECE_CHARS
"""How much is counted before other streams get their turn; about 2 ms."""
DOCUMENT_TURN_CHARS = 262_144
"""Likewise of a document; about 3 ms."""
PDF = "JVBERi"
"""How the base64 of a PDF begins."""

_DECODERS: dict[Format, RequestDecoder] = {
    "messages": partial(anthropic_request_decoder.decode_request, counting=True),
    "gemini": gemini_counting.decode_count_request,
}


class NoNotes:
    """A question beside generation has no life to take notes of."""

    def headed(self) -> None: ...
    def begun(self) -> None: ...
    def usage_came(self, usage: Usage | None) -> None: ...
    def finish_leaves(self) -> None: ...
    def head_lines(self) -> bytes:
        return b""


async def answer_count(bench: Bench, exchange: Exchange, key: KeyRecord, route: Route) -> bytes:
    """Return the body that tells how many tokens the request has, in the client's format.

    Raises:
        BadRequest, ModelNotFound, Forbidden: as for the request itself.
    """
    body, format = exchange.body, route.format
    read_members(body)  # refuses what is no whole object
    model_id = route.model or _model_of(body, format)
    model = bench.plan.settings.catalogue.find(model_id)
    if model is None:
        raise ModelNotFound(
            f"The model '{model_id}' does not exist or you do not have access to it.", param="model"
        )
    if not allowed(key, model_id, model):
        raise Forbidden("This API key may not use this model.", param="model")
    providers = bench.plan.settings.catalogue.providers
    served: tuple[Served, ...] = (Served(model_id, model, model.deployments),)
    speaks = formats_of(served, providers)
    body, keeper = turn_back(body, format, key.account_id, bench.plan.seal, speaks)
    decode = _DECODERS.get(format, FORMATS[format].decode_request)
    request = None if keeper is not None else decode(body, Notes("lenient"), model_id)
    for deployment in able(served, providers, keeper, background=False)[0].deployments:
        told = await _ask(bench, exchange, model, deployment, format, body)
        if told is not None:
            return told
    if request is None:
        raise UpstreamError("The provider that keeps what the request names does not count its tokens.")
    asked = providers[model.deployments[0].provider]
    tokens = await count_request(request, asked.speaks[0])
    if format == "gemini":
        return gemini_counting.encode_count_answer(tokens)
    if format == "responses":
        return b'{"object":"response.input_tokens","input_tokens":%d}' % tokens
    return b'{"input_tokens":%d}' % tokens


def _model_of(body: bytes, format: Format) -> str:
    """Return the model that a body names. Raises BadRequest."""
    try:
        model = msgspec.json.decode(json_edit.decode_top(body, format).get("model", msgspec.Raw(b"null")))
    except msgspec.DecodeError:
        model = None
    if not isinstance(model, str) or not model:
        raise BadRequest("Missing required parameter: 'model'.", param="model")
    return model


async def _ask(
    bench: Bench, exchange: Exchange, model: Model, deployment: Deployment, format: Format, body: bytes
) -> bytes | None:
    """Return the provider's own answer; None where it does not count in the format, or not well."""
    provider = bench.plan.settings.catalogue.providers[deployment.provider]
    counts = provider.unary is None or "count_tokens" in provider.unary
    if format not in provider.speaks or not counts:
        return None
    target = bench.plan.targets.get(provider.name, format, deployment.model)
    if format != "gemini":
        body = json_edit.changed(body, {"model": json_edit.dumps(deployment.model)}, provider.drop_fields)
    clocks = bench.plan.clocks(model, deployment)
    loop = asyncio.get_running_loop()
    relay = PlainRelay(
        exchange,
        NoNotes(),
        bench.deadlines,
        clocks,
        total_due_at=loop.time() + clocks.connect_timeout_s * 4,
        secrets=provider.api_keys,
        drain_cap_s=None,
    )
    try:
        connection = bench.pool.take(target.origin) or await bench.pool.connect(
            target.origin, clocks.connect_timeout_s
        )
    except UpstreamError:
        return None
    relay.begin(connection, target.count_head(len(body)), body)
    if await relay.ended() != "complete":
        return None
    return relay.body if json_edit.is_json(relay.body) else None


async def count_request(request: Request, format: Format) -> int:
    """Count a request's tokens without holding up other streams.

    Args:
        format: of the provider that would be asked: its vendor's formula counts pictures.
    """
    texts: list[str] = []
    documents: list[str] = []
    media = 0
    for message in request.messages:
        for part in message.parts:
            media += _collect(part, texts, documents, format)
    for document in documents:
        media += await _count_document(document, format)
    for tool in request.tools:
        texts.append(msgspec.json.encode(tool.parameters or {}).decode())
        texts += (tool.name, tool.description or "")
    tokens = media + MESSAGE_TOKENS * len(request.messages)
    for text in texts:
        for at in range(0, len(text), TURN_CHARS):
            tokens += count_tokens(text[at : at + TURN_CHARS])
            if len(text) > TURN_CHARS:
                await asyncio.sleep(0)
    return max(1, tokens)


async def _count_document(base64: str, format: Format) -> int:
    """Count a PDF by its pages, a piece of it in each turn; by its bytes where none can be found."""
    pages = PdfPages()
    try:
        for at in range(0, len(base64), DOCUMENT_TURN_CHARS):
            pages.feed(binascii.a2b_base64(base64[at : at + DOCUMENT_TURN_CHARS]))
            if len(base64) > DOCUMENT_TURN_CHARS:
                await asyncio.sleep(0)
    except binascii.Error:
        return _by_bytes(base64)
    found = pages.finish()
    return page_tokens(found, format) if found else _by_bytes(base64)


def _by_bytes(base64: str) -> int:
    return len(base64) * 3 // 4 // MEDIA_BYTES_PER_TOKEN


def _collect(part: Part, texts: list[str], documents: list[str], format: Format) -> int:
    """Gather the texts and the documents of a part, and return the tokens of what is neither."""
    match part:
        case Text() | Refusal() | Reasoning():
            texts.append(part.text)
        case ToolCall():
            texts += (part.name, part.arguments)
        case ToolResult():
            return sum(_collect(inner, texts, documents, format) for inner in part.parts)
        case Image():
            return image_tokens(part.data, format, part.detail)
        case File(text=str() as text):
            texts.append(text)
        case Audio(data=data):
            return sound_tokens(data, format) or _by_bytes(data)
        case File(data=str() as data):
            if not data.startswith(PDF):
                return sound_tokens(data, format) or _by_bytes(data)
            documents.append(data)
        case File():
            return UNKNOWN
    return 0
