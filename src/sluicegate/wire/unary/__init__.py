"""Endpoints whose answer comes in one piece and is no text: embeddings, moderation, rerank and their like.

One module an endpoint. A request is read by its edges, says which bodies a provider gets, and reads what came back;
the shell does with it what it does with any request: admit, reserve, attempt, settle.
"""

from typing import Any, ClassVar, NamedTuple, Protocol

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, DecodeError
from sluicegate.messages import Endpoint, StreamError, Usage
from sluicegate.wire import Bill, StreamCodec, json_edit
from sluicegate.wire.json_edit import Member
from sluicegate.wire.openai_usage import with_members
from sluicegate.wire.request_edges import ReadBody, estimate_input, needed_text
from sluicegate.wire.translation import AdmittedRequest, Asked, Notes, PassedAnswer, PassOptions
from sluicegate.wire.upstream_errors import is_nothing, read_stream_error


class TargetModel(NamedTuple):
    """The model at a provider for which a request is said."""

    id: str
    """The provider's."""
    can: Capabilities
    max_calls: int = 1
    """So many answers of one request may be asked for one by one, where a call gives one."""


class UnaryRequest(AdmittedRequest, Protocol):
    """One client's request to such an endpoint. Where its limit of output is 0, it has no output tokens."""

    units: Usage | None
    """What it is known to be charged for beside tokens: pictures, characters."""
    answer_type: bytes
    """Content type of an answer that is not streamed."""
    background: bool
    """It begins work that goes on by itself, whose id must be learned also where the client leaves."""
    passes_bytes: bool
    """Its answer is a stream of bytes that are no events."""
    splits: bool
    """Where it takes several calls, each has a part of it; else each has all of it."""

    def target_of(self, speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
        """Return how a provider of these formats is asked, or None where it cannot be.

        Args:
            can: of its model.
        """
        ...

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return the bodies of the calls that it takes, in order.

        Raises:
            UnsupportedFeature: the provider's shape cannot say it.
        """
        ...

    def read_answers(self, target: str, asked: Asked, bodies: list[bytes]) -> PassedAnswer:
        """Read what the calls brought. Raises DecodeError."""
        ...

    def pass_stream(self, target: str, asked: Asked, options: PassOptions) -> StreamCodec:
        """Return the codec of a streamed answer, where `stream` is set."""
        ...


class EndpointRequest:
    """What requests to such endpoints say of what only texts have: nothing."""

    SPOKEN_BY: ClassVar[frozenset[str]] = frozenset({"chat", "completions", "responses"})
    """Formats whose providers have the endpoint in OpenAI's shape."""

    stream = False
    choices = 1
    include_usage = True
    continuous_usage = False
    max_output_tokens: int | None = 0
    max_output_key = ""
    names_other_models: str | None = None
    names_kept_state = False
    service_tier: str | None = None
    messages_hash = b""
    units: Usage | None = None
    background = False
    passes_bytes = False
    splits = False
    answer_type = b"application/json"
    model_left_out = False
    """The endpoint's own default stands for it, where the gate has a model of that id."""

    def value(self, key: str) -> bytes | None:
        """Return nothing: no field is about routing."""
        return None

    def pass_stream(self, target: str, asked: Asked, options: PassOptions) -> StreamCodec:
        """Refuse: this endpoint does not stream."""
        raise AssertionError("this endpoint does not stream")


class JsonRequest(ReadBody, EndpointRequest):
    """What requests with a JSON body have in common; passes to a provider of the same shape as it came."""

    ENDPOINT: ClassVar[Endpoint]

    def __init__(self, body: bytes, default_model: str | None = None) -> None:
        """Read a body's top level.

        Args:
            default_model: stands for a model that is left out; None: it has to be there.
        Raises:
            BadRequest: what is wrong, and `param` says where.
        """
        super().__init__(body)
        if len(self._fields) < len(self._all_members):
            raise _duplicate(self._all_members)
        model = self.decoded("model")
        if model is None and default_model:
            self.model, self.model_left_out = default_model, True
        else:
            self.model = needed_text("model", model)
        self.input_estimate = estimate_input(body, 0)

    def replace(self, body: bytes) -> None:
        """Go on with a body in which something was put in another's place."""
        self.body = body
        self._fields = json_edit.decode_top(body, self.ENDPOINT)
        self._listed = json_edit.members_of(body, self._fields)

    def decoded(self, key: str) -> Any:
        """Return a top-level value; None where it is absent. Raises BadRequest."""
        raw = self.value(key)
        if raw is None:
            return None
        try:
            return json_edit.loads(raw)
        except DecodeError:
            raise BadRequest(f"Invalid value for '{key}'.", param=key) from None

    def target_of(self, speaks: tuple[str, ...], can: Capabilities) -> Endpoint | None:
        """Return the endpoint's own shape where the provider speaks a format that goes with it."""
        return self.ENDPOINT if self.SPOKEN_BY.intersection(speaks) else None

    def upstream_bodies(
        self, target: str, model: TargetModel, drop: tuple[str, ...], notes: Notes
    ) -> list[bytes]:
        """Return the client's body with the provider's model in it."""
        notes.dropped += [f"{field};provider" for field in drop if field in self._fields]
        wanted = {"model": json_edit.dumps(model.id)}
        return [json_edit.splice(self.body, json_edit.edits(self.body, self._all_members, wanted, drop))]


class JsonAnswer:
    """A JSON answer that passes as it came, but for the model's id, usage and cost. See `PassedAnswer`."""

    finish_reason: str | None = "stop"
    repaired = False

    def __init__(self, endpoint: str, body: bytes, asked: Asked, usage: Usage | None) -> None:
        """Take an answer whose body was read already.

        Args:
            usage: what it reports, normalised.
        """
        self._members = json_edit.members(body, endpoint)
        self._body = body
        self._asked = asked
        self.usage = usage
        values = {member.key: body[member.start : member.end] for member in self._members}
        self._values = values
        self.error = error_in(values)
        self.upstream_id: str | None = _id_in(values)

    def value(self, key: str) -> bytes | None:
        """Return a top-level value's bytes; None where it is absent."""
        return self._values.get(key)

    def holds_array(self, key: str) -> bool:
        """Whether a top-level value is an array."""
        return self._values.get(key, b"").startswith(b"[")

    def texts(self) -> list[str]:
        """Return nothing: no text was produced."""
        return []

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it."""
        wanted: dict[str, bytes] = {}
        if "model" in self._values:
            wanted["model"] = json_edit.dumps(self._asked.model)
        usage = self._values.get("usage")
        if usage is not None and usage.startswith(b"{"):
            wanted["usage"] = with_members(usage, bill.in_usage)
        if self._asked.hide_provider and self.upstream_id is not None:
            wanted["id"] = json_edit.dumps(self._asked.id)
        body = json_edit.splice(self._body, json_edit.edits(self._body, self._members, wanted))
        return with_members(body, bill.beside_usage)


def _duplicate(members: list[Member]) -> BadRequest:
    """Return the error for a top level that has a key twice: one value could be priced and another be served."""
    seen: set[str] = set()
    for member in members:
        if member.key in seen:
            return BadRequest(f"Duplicate key '{member.key}' (at byte {member.key_at}).", param=member.key)
        seen.add(member.key)
    raise AssertionError("every key is there once")


def _id_in(values: dict[str, bytes]) -> str | None:
    """Return the provider's own id of an answer; None where it is no text that can be read."""
    given = values.get("id", b"")
    try:
        return (json_edit.loads(given) or None) if given.startswith(b'"') else None
    except DecodeError:
        return None


def error_in(values: dict[str, bytes]) -> StreamError | None:
    """Return the error that a provider reports with status 200, by its answer's top-level values."""
    error = values.get("error")
    return None if error is None or is_nothing(error) else read_stream_error(error)
