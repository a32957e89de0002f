"""The file that a batch is made of: each line a request, said for the one provider that will answer them all.

Every line is read as the request that it is, so that a batch reaches no model, file or conversation that its key could
not reach by single requests, and what it may use is known before it is made. Source: OpenAI's API reference, "Batch".
"""

import asyncio
from typing import Literal, NamedTuple

import msgspec

from sluicegate.billing.accounts import KeyRecord
from sluicegate.errors import BadRequest, ClientError, DecodeError, StateUnknown, UnsupportedFeature
from sluicegate.messages import Format, Usage
from sluicegate.routing.catalog import Deployment, Model, Provider
from sluicegate.server.choosing import find_model
from sluicegate.server.job_poll import serves
from sluicegate.server.kept_state import turn_back
from sluicegate.server.serving.bench import Plan
from sluicegate.wire import json_edit
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.translation import AdmittedRequest
from sluicegate.wire.unary.batches import TIER, URLS
from sluicegate.wire.unary.embedding_requests import EmbeddingsRequest

MAX_REQUESTS = 50_000
LINES_A_TURN = 20
"""Lines read before others get a turn of the loop."""


class BatchFile(NamedTuple):
    """A file as its provider gets it."""

    content: bytes
    provider: Provider
    model: str
    """The public id, as all lines spell it."""
    units: Usage
    """The most that its requests may use."""


class _Line(msgspec.Struct):
    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


_decode_line = msgspec.json.Decoder(_Line).decode


class _Reader:
    """Reads the lines of one file for one key."""

    def __init__(self, plan: Plan, key: KeyRecord) -> None:
        self._plan = plan
        self._key = key
        self._name = ""
        self._url = ""
        self._model: Model
        self._deployment: Deployment
        self.provider: Provider
        self.units = Usage(input_tokens=0, output_tokens=0, service_tier=TIER)

    @property
    def name(self) -> str:
        """The model that the lines ask for; empty before the first."""
        return self._name

    def read(self, line: bytes) -> bytes:
        """Return a line as the provider gets it. Raises ClientError."""
        try:
            asked = _decode_line(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadRequest(f"not a request: {error}") from None
        format = URLS.get(asked.url)
        if format is None or asked.method != "POST":
            raise BadRequest(f"'url' must be one of {', '.join(URLS)}, and 'method' POST.")
        body = bytes(asked.body)
        request = _read(format, body)
        if request.stream or getattr(request, "background", False):
            raise BadRequest("requests of a batch can neither be streamed nor run in the background.")
        if request.names_other_models is not None:
            raise BadRequest(f"'{request.names_other_models}' is not supported in a batch.")
        if not self._name:
            self._choose(request.model, asked.url)
        elif (request.model, asked.url) != (self._name, self._url):
            raise BadRequest("all requests of a batch must be for the same model and 'url'.")
        if format != "embeddings" and request.names_kept_state:
            body, keeper = turn_back(body, format, self._key.account_id, self._plan.seal, {format})
            if keeper not in (None, self.provider.name):
                raise StateUnknown("it names what another provider keeps.")
        output = request.max_output_tokens
        if output is None:
            output = self._model.max_output_tokens
        units, estimate = self.units, request.input_estimate
        units.requests = (units.requests or 0) + 1
        units.input_tokens = (units.input_tokens or 0) + estimate
        units.longest_input_tokens = max(units.longest_input_tokens or 0, estimate)
        units.output_tokens = (units.output_tokens or 0) + output * request.choices
        wanted = {"model": json_edit.dumps(self._deployment.model)}
        return json_edit.changed(line, {"body": json_edit.changed(body, wanted, self.provider.drop_fields)})

    def _choose(self, name: str, url: str) -> None:
        """Take the first of a model's deployments whose provider makes batches of this kind."""
        catalogue = self._plan.settings.catalogue
        self._model = model = find_model(catalogue, self._key, name)
        format = URLS[url]
        for deployment in model.deployments:
            provider = catalogue.providers[deployment.provider]
            spoken = format == "embeddings" or format in provider.speaks
            if spoken and serves(provider, "batches") and serves(provider, "files"):
                self._name, self._url, self._deployment, self.provider = name, url, deployment, provider
                return
        raise UnsupportedFeature(f"the model '{name}' does not serve batches of '{url}'.")


def _read(format: Format | Literal["embeddings"], body: bytes) -> AdmittedRequest:
    if format == "embeddings":
        return EmbeddingsRequest(body)
    return FORMATS[format].read_request(body, None, False)


async def read_batch_file(plan: Plan, key: KeyRecord, content: bytes) -> BatchFile:
    """Read a file of requests.

    Raises:
        ClientError: a line is no request that its key may make; the message says which.
    """
    reader = _Reader(plan, key)
    lines: list[bytes] = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        if len(lines) >= MAX_REQUESTS:
            raise BadRequest(f"The file has more than {MAX_REQUESTS} requests.", param="file")
        try:
            lines.append(reader.read(line))
        except DecodeError as error:
            raise BadRequest(f"line {number}: {error.reason}.", param="file") from None
        except ClientError as error:
            error.message = f"line {number}: {error.message}"
            error.param = "file"
            raise
        if number % LINES_A_TURN == 0:
            await asyncio.sleep(0)
    if not lines:
        raise BadRequest("The file has no requests.", param="file")
    return BatchFile(b"\n".join(lines) + b"\n", reader.provider, reader.name, reader.units)
