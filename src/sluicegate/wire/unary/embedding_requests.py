"""What clients ask of the embeddings endpoint, in either shape, for a provider of either.

A client that asks for base64 (the SDKs do, unasked) gets base64, and one that does not gets numbers, whatever the
provider sent: the Node SDK reads a list of numbers as base64 and finds nothing. Batches beyond what a provider takes
are sent in pieces, and joined in order. Source: OpenAI's and Google's API references, "Embeddings".
"""

from typing import Any

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest
from sluicegate.messages import Endpoint
from sluicegate.wire import json_edit
from sluicegate.wire.gemini_fields import Fields
from sluicegate.wire.request_edges import estimate_input, number
from sluicegate.wire.translation import Asked, Notes, PassedAnswer, bad_field
from sluicegate.wire.unary import (
    EndpointRequest,
    JsonRequest,
    TargetModel,
    gemini_embeddings,
    openai_embeddings,
)
from sluicegate.wire.unary.gemini_embeddings import GeminiEmbeddings
from sluicegate.wire.unary.openai_embeddings import OpenAIEmbeddings, PassingEmbeddings
from sluicegate.wire.unary.vectors import Encoding, Input, Inputs, check_number

MAX_INPUTS = 32_768
"""Of one request; it may take several calls."""


class EmbeddingsRequest(JsonRequest):
    """A request in OpenAI's shape."""

    ENDPOINT = openai_embeddings.NAME
    splits = True

    def __init__(self, body: bytes) -> None:
        """Read a body. Raises BadRequest."""
        super().__init__(body)
        encoding = self.decoded("encoding_format")
        if encoding not in (None, "float", "base64"):
            raise BadRequest("Invalid 'encoding_format': use float or base64.", param="encoding_format")
        self.encoding: Encoding = "base64" if encoding == "base64" else "float"
        user = self.decoded("user")
        if user is not None and not isinstance(user, str):
            raise BadRequest("Invalid type for 'user': expected a string.", param="user")
        inputs = _read_inputs(self.decoded("input"))
        self.asked = Inputs(inputs, number("dimensions", self.decoded("dimensions"), 1), user)
        if not any(isinstance(entry, str) for entry in inputs):
            self.input_estimate = sum(map(len, inputs))  # known, not estimated

    def target_of(self, speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
        """Return OpenAI's shape where the provider has it, else Gemini's."""
        return super().target_of(speaks, can) or (gemini_embeddings.NAME if "gemini" in speaks else None)

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return the bodies of as many calls as the inputs take. Raises UnsupportedFeature."""
        if target == gemini_embeddings.NAME:
            return gemini_embeddings.encode_requests(self.asked, model.id, notes)
        return openai_embeddings.split(
            super().upstream_bodies(target, model, drop, notes)[0], self.asked.inputs
        )

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read what the calls brought; one that needs no change passes as it came. Raises DecodeError."""
        wanted = len(self.asked.inputs)
        if target == gemini_embeddings.NAME:
            vectors = gemini_embeddings.decode_answers(bodies)
            check_number(len(vectors.vectors), wanted)
            return OpenAIEmbeddings(vectors, asked, self.encoding)
        if len(bodies) == 1:
            answer = PassingEmbeddings(bodies[0], asked, wanted)
            if answer.error is not None or answer.encoding == self.encoding:
                return answer
        vectors = openai_embeddings.decode_answers(bodies)
        check_number(len(vectors.vectors), wanted)
        return OpenAIEmbeddings(vectors, asked, self.encoding)


def _read_inputs(value: Any) -> list[Input]:
    if value is None:
        raise BadRequest("Missing required parameter: 'input'.", param="input")
    single = isinstance(value, str) or (isinstance(value, list) and bool(value) and _is_token(value[0]))
    inputs = [value] if single else value
    if not isinstance(inputs, list):
        raise BadRequest("Invalid type for 'input': expected a string or an array.", param="input")
    if not 1 <= len(inputs) <= MAX_INPUTS:
        raise BadRequest(f"Invalid 'input': must hold between 1 and {MAX_INPUTS} inputs.", param="input")
    for at, entry in enumerate(inputs):
        path = "input" if single else f"input[{at}]"
        if not isinstance(entry, str) and not (isinstance(entry, list) and all(map(_is_token, entry))):
            raise BadRequest(f"Invalid type for '{path}': expected a string or token ids.", param=path)
        if not entry:
            raise BadRequest(f"Invalid '{path}': must not be empty.", param=path)
    return inputs


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class GeminiEmbeddingsRequest(EndpointRequest):
    """A request in Gemini's shape, of one text or a batch."""

    splits = True

    def __init__(self, body: bytes, path_model: str, *, batch: bool) -> None:
        """Read a body.

        Args:
            batch: the path says `batchEmbedContents`.
        Raises:
            BadRequest: `param` is the path of the field at fault.
        """
        self.body = body
        self.model = path_model
        self._batch = batch
        self.input_estimate = estimate_input(body, 0)
        top = Fields(body, "")
        self._requests = list(top.objects("requests")) if batch else [top]
        if not 1 <= len(self._requests) <= MAX_INPUTS:
            raise bad_field("requests", f"must hold between 1 and {MAX_INPUTS} requests")
        self._inputs = len(self._requests)
        for request in self._requests:
            if request.object("content") is None:
                raise bad_field(request.at("content"), "missing required field")

    def release(self) -> None:
        """Let the body go: there will be no other attempt."""
        self.body = b""
        self._requests = []

    def target_of(self, speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
        """Return Gemini's shape where the provider has it, else OpenAI's."""
        if "gemini" in speaks:
            return gemini_embeddings.NAME
        return openai_embeddings.NAME if self.SPOKEN_BY.intersection(speaks) else None

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return the bodies of as many calls as the inputs take. Raises UnsupportedFeature."""
        if target == gemini_embeddings.NAME:
            return self._batches(model.id)
        dimensions: set[int | None] = set()
        texts: list[Input] = []
        for request in self._requests:
            texts.append(_text_of(request))
            dimensions.add(request.integer("outputDimensionality", 1))
            for name in request.beyond(("model", "content", "outputDimensionality")):
                notes.drop(request.at(name))
        if len(dimensions) > 1:
            notes.reject("requests", "one call there has one outputDimensionality")
        return openai_embeddings.encode_requests(Inputs(texts, dimensions.pop()), model.id)

    def _batches(self, model: str) -> list[bytes]:
        """Return Gemini's own batches, with the provider's model in each request and all else as it came."""
        name = json_edit.dumps(model if "/" in model else f"models/{model}")
        requests: list[bytes] = []
        for request in self._requests:
            others = b"".join(
                b",%b:%b" % (json_edit.dumps(key), request.raw(key) or b"null")
                for key in request.names()
                if key != "model"
            )
            requests.append(b'{"model":%b%b}' % (name, others))
        most = gemini_embeddings.MAX_INPUTS
        return [
            b'{"requests":[%b]}' % b",".join(requests[at : at + most]) for at in range(0, len(requests), most)
        ]

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read what the calls brought. Raises DecodeError."""
        codec = gemini_embeddings if target == gemini_embeddings.NAME else openai_embeddings
        vectors = codec.decode_answers(bodies)
        check_number(len(vectors.vectors), self._inputs)
        return GeminiEmbeddings(vectors, single=not self._batch)


def _text_of(request: Fields) -> str:
    content = request.object("content")
    assert content is not None, "it was read before"
    parts = list(content.objects("parts"))
    if not parts:
        raise bad_field(content.at("parts"), "must not be empty")
    texts = []
    for part in parts:
        text = part.text("text")
        if text is None:
            raise bad_field(part.path, "only text can be embedded by this model")
        texts.append(text)
    joined = "\n".join(texts)
    if not joined:
        raise bad_field(content.at("parts"), "must not be empty")
    return joined
