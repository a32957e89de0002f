"""Across formats: what a codec of each format offers, and how what a target cannot say is told.

A request goes client bytes → `messages.Request` → provider bytes; an answer, streamed or not, goes provider bytes →
`messages.StreamEvent`s → client bytes. One vocabulary for both kinds of answer is why a streamed one and a plain one
cannot differ. `TranslatedStream` joins a decoder and an encoder and keeps the rules that all formats share: when the
finish is held, that a tool call decides the reason, that an error comes before anything else.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.errors import BadRequest, DecodeError, SluicegateError, UnsupportedFeature
from sluicegate.messages import (
    File,
    Format,
    Image,
    Pause,
    Request,
    StreamError,
    StreamEvent,
    TranslationPolicy,
    Usage,
    Vendor,
)
from sluicegate.wire import Bill, StreamCodec
from sluicegate.wire.asked import Asked as Asked
from sluicegate.wire.field_names import spelled
from sluicegate.wire.told_text import Told

Policy = TranslationPolicy


ONE_ANSWER: frozenset[Format] = frozenset({"responses", "messages"})
"""Formats that give one answer a request."""


MAX_CHOICES = 1024
"""No answer has a choice whose index is as high as that: encoders begin choices in order, from the first one on."""


def checked_choice(index: int, format: Format) -> int:
    """Return the index of a choice that a provider begins.

    Raises:
        DecodeError: no request asks for as many.
    """
    if index >= MAX_CHOICES:
        raise DecodeError(format, None, "a choice has an index beyond those asked for")
    return index


class Wanted(NamedTuple):
    """A part whose data a provider wants in the place of its address."""

    part: Image | File
    path: str
    """Where it stands in the client's request."""


class Notes:
    """What a translation left out or weakened, and the policy for it. Entries are `field;reason`."""

    def __init__(self, policy: Policy = "default", client: str | None = None) -> None:
        """Start with none.

        Args:
            client: the format in whose words fields are named that an encoder names in chat's.
        """
        self.policy = policy
        self.dropped: list[str] = []
        self.cut_at: list[str] = []
        """Stop sequences that the provider is not told: the answer is cut here (`stop_cutting`)."""
        self.fetches = False
        """Media that a provider takes only as data may be named by address: whoever sends the request fetches them."""
        self.wanted: list[Wanted] = []
        """These; what was encoded is of no use until they have their data."""
        self._client = client
        self._told: set[str] = set()

    def drop(self, field: str, reason: str = "not supported") -> None:
        """Leave out what only affects cost, speed or bookkeeping; allowed under every policy."""
        self.dropped.append(f"{self._spelled(field)};{reason}")

    def drop_once(self, field: str, reason: str) -> None:
        """Leave out likewise what may come in every turn; it is named once, with the first reason."""
        if field not in self._told:
            self._told.add(field)
            self.drop(field, reason)

    def warn(self, field: str, reason: str) -> None:
        """Leave out or weaken something; `strict` refuses instead.

        Raises:
            UnsupportedFeature: under `strict`.
        """
        field = self._spelled(field)
        if self.policy == "strict":
            raise UnsupportedFeature(f"'{field}' cannot be kept for this model: {reason}.", param=field)
        self.dropped.append(f"{field};{reason}")

    def reject(self, field: str, reason: str, *, lenient_ok: bool = False) -> None:
        """Refuse what would change the answer; `lenient` lets it pass where the matrix says so.

        Raises:
            UnsupportedFeature: names the field.
        """
        field = self._spelled(field)
        if lenient_ok and self.policy == "lenient":
            self.dropped.append(f"{field};{reason}")
            return
        raise UnsupportedFeature(f"'{field}' is not supported for this model: {reason}.", param=field)

    def want(self, part: Image | File, path: str) -> None:
        """Ask for the data of a medium that has an address only.

        Raises:
            UnsupportedFeature: media are not fetched.
        """
        path = self._spelled(path)
        if not self.fetches:
            self.reject(path, "media by address are not fetched for this provider: send their data")
        self.wanted.append(Wanted(part, path))

    def _spelled(self, field: str) -> str:
        return field if self._client is None else spelled(self._client, field)


def bad_field(path: str, message: str) -> BadRequest:
    """Return the error for a field that is wrong in its own format; the path is told in message and `param`."""
    return BadRequest(f"{path}: {message}", param=path)


class RequestDecoder(Protocol):
    """Reads a client's request in one format."""

    def __call__(self, body: bytes, notes: Notes, path_model: str | None = None) -> Request:
        """Decode a body.

        Args:
            path_model: the model's id where the format has it in the path (Gemini).
        Raises:
            BadRequest: `param` is the path of the field at fault.
            UnsupportedFeature: refused by policy.
        """
        ...


class RequestEncoder(Protocol):
    """Writes a provider's request in one format."""

    def __call__(self, request: Request, model: str, can: Capabilities, notes: Notes) -> bytes:
        """Encode a body for the provider's model, which asks for usage where that is an option.

        Raises:
            UnsupportedFeature: the format, or this model, cannot say what the client asked for.
        """
        ...


class StreamDecoder(Protocol):
    """Reads one provider's stream in one format."""

    @property
    def upstream_id(self) -> str | None:
        """The provider's id of the answer."""
        ...

    @property
    def repaired(self) -> bool:
        """Whether anything broke the format and was put right."""
        ...

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes and return what they mean. Raises DecodeError."""
        ...

    def finish(self) -> list[StreamEvent]:
        """Take the end of the body. Raises DecodeError where the answer was cut; `left` has what came before that."""
        ...

    def left(self) -> list[StreamEvent]:
        """Return what the end of a body that was cut still brought, once: an event without its blank line.

        It is told as any other, since it was produced and counted.
        """
        ...


class StreamDecoderMaker(Protocol):
    """Begins to read a stream of one format."""

    def __call__(
        self, can: Capabilities, count_text: Callable[[str], None], max_event_bytes: int = ..., /
    ) -> StreamDecoder:
        """Return the decoder of one answer.

        Args:
            can: of the model that answers.
            count_text: given every piece of output text.
            max_event_bytes: longer events are refused: DecodeError.
        """
        ...


class AnswerDecoder(Protocol):
    """Reads a plain answer of one format as the events that a stream of it would have brought, End last."""

    def __call__(self, body: bytes, can: Capabilities) -> list[StreamEvent]:
        """Decode a body; an error inside a 200 becomes the only event. Raises DecodeError."""
        ...


class StreamEncoder(Protocol):
    """Writes one client's stream in one format. It is given no Finish, UsageReport, StreamError or End."""

    def start(self, usage: Usage | None = None) -> bytes:
        """Return the start-up events, framed; empty where the format has none.

        Args:
            usage: what the provider has said of the input already.
        """
        ...

    def take_over(self, told: Told) -> None:
        """Take over an answer whose beginning another has written: what follows stands behind it."""
        ...

    def event(self, event: StreamEvent) -> bytes:
        """Return the framed events for one content event; may be empty."""
        ...

    def finish(self, reasons: dict[int, tuple[str, str | None]]) -> bytes:
        """Return what can leave once the finish is known and usage is not; empty where the format joins the two.

        Args:
            reasons: by choice, the finish reason and the matched stop string.
        """
        ...

    def farewell(self, reasons: dict[int, tuple[str, str | None]], bill: Bill | None) -> bytes:
        """Return all that completes the answer, less what `finish` has returned already."""
        ...

    def failure(self, error: SluicegateError) -> bytes:
        """Return the format's terminal error event, and no end marker."""
        ...


class AnswerEncoder(Protocol):
    """Writes a plain answer in one format."""

    def __call__(self, events: list[StreamEvent], asked: Asked, bill: Bill) -> bytes:
        """Encode a body from the events of a whole answer."""
        ...


class ErrorEncoder(Protocol):
    """Writes an error answer in one format."""

    def __call__(self, error: SluicegateError, request_id: str) -> tuple[int, bytes]:
        """Return the status the format tells, and the JSON body."""
        ...


class PassOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a stream passes on its own format."""

    count_text: Callable[[str], None]
    """Given every piece of text, reasoning, refusal and arguments that the provider sends."""
    usage_shown: bool = True
    """The client gets usage where its format makes it optional."""
    repair: bool = True
    """Put right what SDKs stumble over beyond id, model, finish, usage and end."""
    choices: int = 1
    max_event_bytes: int = 16_777_216
    array: bool = False
    """Gemini without `alt=sse`: the client gets a JSON array, written as it grows."""


class AdmittedRequest(Protocol):
    """A client's request as admission and routing read it, of any format or endpoint."""

    body: bytes
    model: str
    stream: bool
    choices: int
    include_usage: bool
    """The client wants usage, where its format makes that an option; True where it does not."""
    continuous_usage: bool
    input_estimate: int
    """Tokens, estimated from above without a tokenizer."""
    max_output_tokens: int | None
    """The client's limit for one choice."""
    max_output_key: str
    """How the limit is spelled."""

    @property
    def service_tier(self) -> str | None:
        """The tier that it asks to be served by, where it names one, in lower case."""
        ...

    @property
    def names_kept_state(self) -> bool:
        """Whether it may name what a provider keeps; `kept_ids.places` finds it."""
        ...

    @property
    def names_other_models(self) -> str | None:
        """The field that names other models than the one asked for, where there is one."""
        ...

    def value(self, key: str) -> bytes | None:
        """Return a top-level value's bytes; None where it is absent."""
        ...

    @property
    def messages_hash(self) -> bytes:
        """Hash of the first messages: requests of one conversation share it."""
        ...

    def release(self) -> None:
        """Let the body go: there will be no other attempt."""
        ...


class PassedRequest(AdmittedRequest, Protocol):
    """A request for text read by its edges, for a provider of the same format."""

    def upstream_body(
        self, model: str, *, ask_usage: bool, drop: tuple[str, ...] = (), max_output_tokens: int | None = None
    ) -> bytes:
        """Return the body for a provider of the same format, edited at its offsets."""
        ...


class PassedAnswer(Protocol):
    """A plain answer on its way through its own format."""

    error: StreamError | None
    usage: Usage | None
    finish_reason: str | None
    upstream_id: str | None
    repaired: bool

    def texts(self) -> list[str]:
        """Return every text the model produced, for counting."""
        ...

    def encode(self, bill: Bill) -> bytes:
        """Return the body as the client gets it."""
        ...


def no_tool_names(request: Request) -> dict[str, str]:
    """Say that a format takes every name as it is."""
    return {}


class Resumption(Protocol):
    """How one attempt's provider is asked to go on with an answer that it has paused."""

    records: bool
    """Every byte of a streamed answer is to be shown to it."""
    shares_limit: bool
    """All calls together stay within the request's limit of output."""

    def take(self, data: bytes) -> None:
        """See the next bytes of a stream."""
        ...

    def take_whole(self, body: bytes) -> None:
        """See an answer that is not streamed."""
        ...

    def next_body(self, pause: Pause, output_tokens: int) -> bytes | None:
        """Return the body of the call that goes on; None where there can be none.

        Args:
            output_tokens: that the calls so far brought, as far as they told.
        """
        ...


class UsageMark(NamedTuple):
    """Where the events of one format tell usage so far, for clients that ask for it on every event."""

    key: bytes
    """Of the member that holds it."""
    write: Callable[[Usage], bytes]
    takes: Callable[[bytes], bool]
    """Whether a framed event has it."""


class Codec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one format offers; the table of them is `wire.codecs`."""

    name: Format
    vendor: Vendor
    tells_searches: bool = False
    """Searches that a vendor's own tool made have a place in an answer."""
    joins_usage: bool
    """Finish and usage share an event: the finish waits for usage."""
    decode_request: RequestDecoder
    encode_request: RequestEncoder
    stream_decoder: StreamDecoderMaker
    decode_answer: AnswerDecoder
    stream_encoder: Callable[[Asked], StreamEncoder]
    encode_answer: AnswerEncoder
    read_request: Callable[[bytes, str | None, bool], PassedRequest]
    """Reads a request's edges: the body, and for Gemini the model and whether it streams, which its path says.
    Raises BadRequest."""
    pass_stream: Callable[[Asked, PassOptions], StreamCodec]
    pass_answer: Callable[[Asked, bytes], PassedAnswer]
    """Raises DecodeError."""
    encode_error: ErrorEncoder
    error_event: Callable[[SluicegateError, str], bytes]
    """The terminal error event as the very first one of a stream."""
    usage_mark: UsageMark
    keepalive: bytes
    """What breaks a long silence, between events."""
    reads_arrays: bool = False
    """A provider's stream may come as a JSON array that grows: it is read piece by piece."""
    resumption: Callable[[bytes, Request], Resumption | None] | None = None
    """Of a provider's format: how an answer to this body is resumed, where it may be paused."""
    tool_names: Callable[[Request], dict[str, str]] = no_tool_names
    """Of a provider's format: names that `encode_request` has to change, as sent, to the client's."""
