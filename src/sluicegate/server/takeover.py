"""What another provider is asked when a stream broke off, and how its stream becomes the rest of the first one's.

Made only then, from the request that was kept for it. Whether a request and its text so far allow it is told by
`wire.partial_turn` and `wire.told_text`; who is asked, and what follows from it, is `serving.midstream`'s.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import ClientError, DecodeError
from sluicegate.messages import Format, Request
from sluicegate.routing.catalog import Deployment, Model, Provider
from sluicegate.routing.catalog_shapes import resolve_capabilities
from sluicegate.server.interpreter import Interpreter
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.partial_turn import body_with_text, marked, may_be_taken_over, takes_over, with_turn
from sluicegate.wire.seam import given
from sluicegate.wire.told_text import Told
from sluicegate.wire.translation import Notes
from sluicegate.wire.two_part_stream import TakenOverStream


class _LateNotes(Notes):
    """Leaves out and weakens what the client has been told of already, in the answer's head, and nothing else."""

    def __init__(self, told: Collection[str], client: str | None = None) -> None:
        super().__init__("strict", client)
        self._may_be_weak = told

    def warn(self, field: str, reason: str) -> None:
        """Weaken something. Raises UnsupportedFeature where the client has not been told."""
        if f"{self._spelled(field)};{reason}" not in self._may_be_weak:
            super().warn(field, reason)


class Asking(NamedTuple):
    """How one deployment is asked to go on."""

    format: Format
    can: Capabilities
    body: bytes


class Takeover:
    """One answer that broke off."""

    __slots__ = ("_interpreter", "_produced", "_request", "_told")

    def __init__(self, interpreter: Interpreter, request: Request, told: Told, produced: int) -> None:
        self._interpreter = interpreter
        self._request = request
        self._told = told
        self._produced = produced

    @classmethod
    def of(cls, interpreter: Interpreter, told: Told, produced: int) -> "Takeover | None":
        """Return it, or None where nobody may go on with this answer.

        Args:
            told: what the client has.
            produced: output tokens so far, which count against the request's limit.
        """
        limit = interpreter.request.max_output_tokens
        if limit is not None and limit <= produced:
            return None
        if interpreter.asked.close_id is not None and interpreter.client_name != "messages":
            return None  # the provider keeps the answer, and has half of it
        try:
            request = interpreter.decode(Notes("lenient"))
        except ClientError:
            return None
        return cls(interpreter, request, told, produced) if may_be_taken_over(request) else None

    def ask(self, provider: Provider, model: Model, deployment: Deployment) -> Asking | None:
        """Return how a deployment is asked, or None where it cannot be, or not for all that the client asked for."""
        own = self._interpreter.target_format(provider, deployment)
        for target in dict.fromkeys((own, provider.speaks[0])):
            can = deployment.capabilities
            if target != provider.speaks[0]:
                can = resolve_capabilities(deployment.model, target, deployment.said)
            if takes_over(target, can):
                body = self._body(target, provider, model, deployment, can)
                if body is not None:
                    self._interpreter.note_request(self._request, target)
                    return Asking(target, can, marked(body, target, can))
        return None

    def _body(
        self, target: Format, provider: Provider, model: Model, deployment: Deployment, can: Capabilities
    ) -> bytes | None:
        interpreter = self._interpreter
        text, limit = given(self._told.text), interpreter.request.max_output_tokens
        left = None if limit is None else limit - self._produced
        try:
            if target == interpreter.client.name:
                longer = body_with_text(interpreter.request.body, target, text)
                if longer is None:
                    return None
                passed = interpreter.client.read_request(longer, interpreter.request.model, True)
                body = passed.upstream_body(
                    deployment.model, ask_usage=provider.stream_options, max_output_tokens=left
                )
            else:
                told = interpreter.dropped
                request = with_turn(interpreter.decode(_LateNotes(told)), text)
                if left is None and target == "messages":
                    left = max(1, model.max_output_tokens - self._produced)
                request = msgspec.structs.replace(request, max_output_tokens=left)
                body = FORMATS[target].encode_request(
                    request, deployment.model, can, _LateNotes(told, interpreter.client.name)
                )
        except (ClientError, DecodeError):
            return None
        return interpreter.for_provider(body, target, provider)

    def stream(
        self, asking: Asking, count_text: Callable[[str], None], max_event_bytes: int
    ) -> TakenOverStream:
        """Return what reads the deployment's stream and writes it behind what the client has."""
        interpreter, codec, can = self._interpreter, FORMATS[asking.format], asking.can
        stream = TakenOverStream(
            lambda count: codec.stream_decoder(can, count, max_event_bytes),
            interpreter.client.stream_encoder(interpreter.asked),
            partial(codec.decode_answer, can=can),
            count_text,
            self._told,
            stop=[sequence for sequence in self._request.stop if sequence],
            repeats=can.continuation == "prefix",
            joins_usage=interpreter.client.joins_usage,
            follow=interpreter.new_turn(),
        )
        interpreter.untold = stream.untold
        return stream
