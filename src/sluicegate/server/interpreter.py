"""Between a client and a provider of any two formats: says the request in the provider's, the answer in the client's.

On the same format bytes pass with edits at their offsets; across formats everything goes through the vocabulary of
`messages`. Which of the two it is, is decided for each attempt; nothing else of the shell has to know.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

import msgspec

from sluicegate.errors import SluicegateError
from sluicegate.messages import (
    End,
    Format,
    Request,
    Shape,
    StreamError,
    StreamEvent,
    Text,
)
from sluicegate.routing.catalog import Deployment, Model, Provider
from sluicegate.server.media_fetch import MediaFetcher
from sluicegate.server.pausable_answer import PausableAnswer
from sluicegate.server.refusals import JSON
from sluicegate.server.thoughts import ThoughtMemory, Turn, restore
from sluicegate.wire import StreamCodec, json_edit
from sluicegate.wire.anthropic_cache_marks import without_lifetimes
from sluicegate.wire.anthropic_headers import upstream_headers
from sluicegate.wire.anthropic_passed_request import AnthropicRequest
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.gemini_passed_request import GeminiRequest
from sluicegate.wire.joined import joined_events
from sluicegate.wire.joined_stream import JoinedStream
from sluicegate.wire.json_elements import is_array_of_several
from sluicegate.wire.openai_request import OpenAIRequest
from sluicegate.wire.openai_responses_envelope import REPEATED
from sluicegate.wire.openai_responses_searches import SEARCH_SOURCES
from sluicegate.wire.openai_responses_tools import namespaces
from sluicegate.wire.resumed_stream import ResumedStream
from sluicegate.wire.sse import BOM
from sluicegate.wire.stop_cutting import StopCutter, cut_answer
from sluicegate.wire.translated import TranslatedStream, of_one_choice
from sluicegate.wire.translated_answer import TranslatedAnswer
from sluicegate.wire.translation import (
    ONE_ANSWER,
    Asked,
    Codec,
    Notes,
    PassedAnswer,
    PassOptions,
    Policy,
    StreamDecoder,
    Wanted,
)

EVENT_STREAM = (
    b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
)
ARRAY = b"content-type: application/json\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
_FORGETFUL: Final[frozenset[Format]] = frozenset({"chat", "responses", "gemini"})
"""Formats whose clients need not send back what a model thought before a call."""
_STREAM_MARKS: Final = (b"data:", b"event:", b":", b"id:", b"retry:")


TextRequest = OpenAIRequest | AnthropicRequest | GeminiRequest
"""All that a `PassedRequest` may be: what compiled code knows only by a protocol it looks up by name."""
AttemptState = tuple[Asked, Sequence[str], Sequence[str], Sequence[str], Turn | None, PausableAnswer | None]


class Interpreter:
    """One request of one client, for as many attempts as it takes."""

    __deletable__ = ("asked",)
    __slots__ = (
        "_account_id",
        "_body",
        "_brought",
        "_cut_at",
        "_decoded",
        "_fetches",
        "_joined",
        "_path_model",
        "_pausables",
        "_policy",
        "_split_bytes",
        "_thoughts",
        "answer_line",
        "array",
        "asked",
        "calls",
        "client",
        "client_name",
        "dropped",
        "first_part",
        "passes_bytes",
        "pausable",
        "request",
        "spent",
        "turn",
        "units",
        "untold",
        "upload",
        "wanted",
    )

    def __init__(
        self,
        format: Format,
        body: bytes,
        policy: Policy,
        path_model: str | None = None,
        stream: bool = False,
        array: bool = False,
        *,
        thoughts: ThoughtMemory | None = None,
        account_id: str = "",
        fetches: bool = False,
    ) -> None:
        """Read the request's edges.

        Args:
            policy: what becomes of what a provider's format cannot say.
            path_model, stream, array: what the path of a Gemini request says.
            thoughts: remembers for the account what clients of some formats do not carry.
            fetches: media that a provider takes only as data may come by address.
        Raises:
            BadRequest: in the client's own terms.
        """
        self.client: Codec = FORMATS[format]
        self.client_name: Format = format
        """What rows call the client's format."""
        self.request = self._read(body, path_model, stream)
        self.array = array
        self.asked: Asked
        """Set before the first attempt."""
        # Empty ones are shared: thousands of streams may be open, and hardly any needs them.
        self.dropped: Sequence[str] = ()
        """What the last attempt's provider was not told."""
        self._body = body
        self._path_model = path_model
        self._policy: Policy = policy
        self._decoded: tuple[Request, list[str]] | None = None
        self._cut_at: Sequence[str] = ()
        """Stop sequences that the provider is not told: the answer is cut here."""
        self._thoughts = thoughts if format in _FORGETFUL else None
        self._account_id = account_id
        self._fetches = fetches
        self.calls: Sequence[bytes] = ()
        """Bodies of the attempt's calls beyond its first, where one call cannot answer all that was asked."""
        self.first_part = 1.0
        """How much of what the client asked the first call reads."""
        self._split_bytes = 0
        """Of the calls' bodies together, each prompt's once, where each asks one prompt."""
        self._brought: Sequence[tuple[bytes, PausableAnswer | None]] = ()
        """What the calls brought that were made, of an answer that is not streamed."""
        self._pausables: Sequence[PausableAnswer] = ()
        """Of the calls that are still to make, where they may be paused."""
        self._joined: JoinedStream | None = None
        """Of an answer that is."""
        self.pausable: PausableAnswer | None = None
        """The answer at hand, where its provider may break it off."""
        self.wanted: Sequence[Wanted] = ()
        """Media to be fetched before the body that was made is of use: then it is to be made anew."""
        self.untold: Sequence[str] = ()
        """What the answer at hand brought that the client's format has no word for."""
        self.turn: Turn | None = None
        """What the answer at hand tells of thoughts and calls, where somebody has to remember it."""
        # The same for all texts, and yet each has them: what a class has is looked up by its name.
        self.answer_line = JSON
        """Says what a plain answer is."""
        self.upload: None = None
        self.spent = False
        """A text is held until its answer begins, and can be sent again."""
        self.units: None = None
        """A text is charged by the token."""
        self.passes_bytes = False

    def _read(self, body: bytes, path_model: str | None, stream: bool) -> TextRequest:
        return cast(TextRequest, self.client.read_request(body, path_model, stream))

    def note_type(self, kind: bytes) -> None:
        """Take what the provider calls an answer of bytes; a text is none."""

    @property
    def stream_lines(self) -> bytes:
        """Return the header lines that say what a streamed answer is."""
        return ARRAY if self.array else EVENT_STREAM

    @property
    def keepalive(self) -> bytes:
        """What breaks a long silence of a stream."""
        return b"\n" if self.array else self.client.keepalive

    def reads_arrays(self, target: Shape) -> bool:
        """Whether a stream of the provider's may come as a JSON array that grows."""
        return FORMATS[target].reads_arrays

    def keep(self, body: bytes) -> None:
        """Keep what a call brought that is not the last."""
        self._brought = (*self._brought, (body, self.pausable))

    def next_answer(self) -> None:
        """Go on with the call that answers after the one at hand."""
        if self._pausables:
            self.pausable, *self._pausables = self._pausables
            self.pausable.stream = self._joined
        if self._joined is not None:
            self._joined.next_answer()

    def take_out(self, field: str) -> None:
        """Forget a top-level field that was meant for us alone; before the first attempt."""
        self.replace_body(json_edit.changed(self._body, {}, {field}))

    def replace_body(self, body: bytes) -> None:
        """Go on with a body in which something was put in another's place. Raises BadRequest."""
        self._body = body
        self.request = self._read(body, self._path_model, self.request.stream)

    def release(self) -> None:
        """Let the request's body go: there will be no other attempt."""
        self._body = b""
        self.request.release()
        del self.asked  # the codecs at work hold what they need of it
        self._decoded = None

    def let_go(self) -> None:
        """Part from streams of several calls, which hold this: the request is over."""
        self._joined = None
        if self.pausable is not None:
            self.pausable.let_go()

    def attempt(self) -> AttemptState:
        """Return what is known of the attempt at hand, for `resume`."""
        return self.asked, self.dropped, self._cut_at, self.untold, self.turn, self.pausable

    def resume(self, attempt: AttemptState) -> None:
        """Go on with another attempt of two that run at once, each of one call."""
        if self.calls:
            self._forget_attempt()
        self.asked, self.dropped, self._cut_at, self.untold, self.turn, self.pausable = attempt

    async def fill(self, media: MediaFetcher) -> None:
        """Have what is wanted fetched. Raises BadRequest."""
        await media.fill(self.wanted)

    def target_format(self, provider: Provider, deployment: Deployment) -> Format:
        """Return the client's own format where the provider speaks it, else the provider's first."""
        name = self.client_name
        return name if name in provider.speaks else provider.speaks[0]

    def upstream_body(
        self, target: Shape, provider: Provider, model: Model, deployment: Deployment, limit: int | None
    ) -> bytes:
        """Return the body for a provider; `dropped` then says what it leaves out.

        Args:
            limit: the output tokens to allow instead of the client's own limit; None: the client's.
        Raises:
            BadRequest: wrong in its own format in a way that only translation sees.
            UnsupportedFeature: the provider's format cannot say it.
        """
        if self._cut_at or self.wanted or self.untold or self.turn is not None or self.calls or self.pausable:
            self._forget_attempt()
        if target == self.client_name:
            self.dropped = ()
            if provider.drop_fields:
                self.dropped = [
                    f"{field};provider" for field in provider.drop_fields if _has(self._body, field)
                ]
            body = self.request.upstream_body(
                deployment.model,
                ask_usage=self.request.stream and provider.stream_options,
                drop=provider.drop_fields,
                max_output_tokens=limit,
            )
            return body if provider.cache_ttl or target != "messages" else self._without_lifetimes(body)
        if self._decoded is None:
            notes = Notes(self._policy)
            self._decoded = (self.decode(notes), notes.dropped)
        request, dropped = self._decoded
        if self.asked.kept:
            dropped = [entry for entry in dropped if not entry.startswith("store;")]
        notes = Notes(self._policy, self.client_name)
        notes.dropped = list(dropped)
        notes.fetches = self._fetches
        self.note_request(request, target)
        repeats = 1
        if 1 < request.choices <= model.max_calls and target in ONE_ANSWER:
            repeats = request.choices
            notes.warn("n", f"{repeats} calls")
            request = msgspec.structs.replace(request, choices=1)
        if limit is not None or (request.max_output_tokens is None and target == "messages"):
            request = msgspec.structs.replace(request, max_output_tokens=limit or model.max_output_tokens)
        body = FORMATS[target].encode_request(request, deployment.model, deployment.capabilities, notes)
        self.dropped = notes.dropped
        self._cut_at = notes.cut_at
        self.wanted = notes.wanted
        body = self.for_provider(body, target, provider)
        self.calls = [body] * (repeats - 1)
        if request.others:
            self._encode_others(body, request, repeats, target, provider, deployment)
        begin, often = FORMATS[target].resumption, model.max_continuations
        if begin is not None and often:
            resumption = begin(body, request)
            if resumption is not None:
                self.pausable = PausableAnswer(body, resumption, often)
                if self.calls:
                    further = [(one, begin(one, request)) for one in self.calls]
                    self._pausables = [
                        PausableAnswer(one, how, often) for one, how in further if how is not None
                    ]
        return body

    def part_of(self, call: bytes) -> float:
        """Return how much of what the client asked one of the further calls reads."""
        return len(call) / self._split_bytes if self._split_bytes else 1.0

    def _encode_others(
        self,
        first: bytes,
        request: Request,
        repeats: int,
        target: Shape,
        provider: Provider,
        deployment: Deployment,
    ) -> None:
        """Say what the first call cannot ask beside: each of the other conversations, so many times."""
        split_bytes = len(first)
        for messages in request.others:
            one = msgspec.structs.replace(request, messages=messages, others=[])
            notes = Notes(self._policy, self.client_name)  # the first call has told all of it
            body = FORMATS[target].encode_request(one, deployment.model, deployment.capabilities, notes)
            body = self.for_provider(body, target, provider)
            split_bytes += len(body)
            self.calls = [*self.calls, *([body] * repeats)]
        self._split_bytes = split_bytes
        self.first_part = len(first) / split_bytes

    def decode(self, notes: Notes) -> Request:
        """Return the request in no format. Raises BadRequest, UnsupportedFeature."""
        request = self.client.decode_request(self._body, notes, self._path_model)
        request.stream = self.request.stream  # a Gemini path says it, not the body
        if self._thoughts is not None:
            now = time.monotonic()
            request.messages = restore(request.messages, self._thoughts, self._account_id, now)
        return request

    def note_request(self, request: Request, target: Shape) -> None:
        """Keep what the writer of an answer across formats has to know of the request.

        Args:
            target: how the provider is asked.
        """
        asked = self.asked
        asked.tool_names = FORMATS[target].tool_names(request)
        asked.legacy_functions = request.legacy_functions
        asked.echo = _echo_of(request)
        asked.custom_tools = frozenset(tool.name for tool in request.tools if tool.custom)
        asked.namespaces = namespaces(request)
        asked.search_tool = next((tool.name for tool in request.tools if tool.searches), "")
        if not asked.raw:
            top = json_edit.decode_top(self._body, self.client_name)
            # Copies: a view would keep the whole body as long as the answer runs.
            asked.raw = {key: msgspec.Raw(bytes(top[key])) for key in REPEATED if key in top}
            asked.search_sources = "include" in top and SEARCH_SOURCES in bytes(top["include"])

    def for_provider(self, body: bytes, target: Shape, provider: Provider) -> bytes:
        """Return a translated body without what its provider does not take."""
        unwanted = set(provider.drop_fields)
        if not provider.stream_options:
            unwanted.add("stream_options")
        if unwanted:
            body = json_edit.changed(body, {}, unwanted)
        return body if provider.cache_ttl or target != "messages" else self._without_lifetimes(body)

    def _forget_attempt(self) -> None:
        """Begin anew: what a failed attempt at another target brought, or asked for, means nothing to this one."""
        self._cut_at = self.wanted = self.untold = ()
        self.turn = self.pausable = None
        self.calls = self._brought = self._pausables = ()
        self.first_part, self._split_bytes = 1.0, 0
        self._joined = None

    def _without_lifetimes(self, body: bytes) -> bytes:
        shorter = without_lifetimes(body)
        if shorter != body:
            self.dropped = [*self.dropped, "cache_control.ttl;provider"]
        return shorter

    def upstream_lines(
        self, target: Shape, provider: Provider, body: bytes, client_headers: list[tuple[bytes, bytes]]
    ) -> bytes:
        """Return the header lines a provider of this format wants beside its key."""
        if target != "messages":
            return b""
        own = client_headers if self.client_name == "messages" else None
        return upstream_headers(body, own, provider.betas_deny)

    def stream(self, target: Shape, deployment: Deployment, options: PassOptions) -> StreamCodec:
        """Return the codec of one attempt at a streamed answer."""
        if target == self.client_name:
            return self.client.pass_stream(self.asked, options)
        stream = self._translated(target, deployment, options)
        stream.tells_searches = self.client.tells_searches
        self.untold = stream.untold
        return stream

    def _translated(self, target: Shape, deployment: Deployment, options: PassOptions) -> TranslatedStream:
        make_decoder = partial(self._decoder, target, deployment, options)
        encoder = self.client.stream_encoder(self.asked)
        decode_whole: Callable[[bytes], list[StreamEvent]]
        decode_whole = partial(FORMATS[target].decode_answer, can=deployment.capabilities)
        if self.pausable is not None:
            decode_whole = partial(self._read_pausable, decode_whole)
        joins_usage = self.client.joins_usage
        if self.calls:
            self._joined = JoinedStream(
                make_decoder,
                encoder,
                decode_whole,
                options.count_text,
                joins_usage=joins_usage,
                choices=options.choices,
                calls=1 + len(self.calls),
                follow=self.new_turn(),
            )
            if self.pausable is not None:
                self.pausable.stream = self._joined
            return self._joined
        if self.pausable is not None:
            self.pausable.stream = ResumedStream(
                make_decoder,
                encoder,
                decode_whole,
                options.count_text,
                joins_usage=joins_usage,
                follow=self.new_turn(),
            )
            return self.pausable.stream
        return TranslatedStream(
            make_decoder(),
            encoder,
            decode_whole,
            options.count_text,
            joins_usage=joins_usage,
            choices=options.choices,
            follow=self.new_turn(),
        )

    def _read_pausable(self, read: Callable[[bytes], list[StreamEvent]], body: bytes) -> list[StreamEvent]:
        """Read what came whole although a stream was asked for. Raises DecodeError."""
        assert self.pausable is not None, "looked at before"
        return self.pausable.read_whole(read, body)

    def _decoder(self, target: Shape, deployment: Deployment, options: PassOptions) -> StreamDecoder:
        def decoder(count_text: Callable[[str], None]) -> StreamDecoder:
            read = FORMATS[target].stream_decoder(
                deployment.capabilities, count_text, options.max_event_bytes
            )
            return read if self.pausable is None else self.pausable.watched(read)

        count_text = options.count_text
        return StopCutter(decoder, self._cut_at, count_text) if self._cut_at else decoder(count_text)

    def plain(self, target: Shape, deployment: Deployment, body: bytes) -> PassedAnswer:
        """Read a plain answer, also one that came as a stream although none was asked for.

        Raises:
            DecodeError: it is none.
        """
        bare = body.removeprefix(BOM).lstrip()
        streamed = bare.startswith(_STREAM_MARKS) or (self.client.reads_arrays and is_array_of_several(bare))
        if target == self.client_name and not streamed:
            return self.client.pass_answer(self.asked, body)
        answers: list[list[StreamEvent]] = []
        for one, pausable in (*self._brought, (body, self.pausable)):
            events, upstream_id = self.events_of(target, deployment, one)
            if self.request.choices == 1 + len(self._brought):
                events = of_one_choice(events)
            answers.append(events if pausable is None else pausable.joined(events))
        if len(answers) > 1:
            events = joined_events(answers, self.request.choices // len(answers))
        else:
            (events,) = answers
        return self._told(events, upstream_id)

    def events_of(
        self, target: Shape, deployment: Deployment, body: bytes
    ) -> tuple[list[StreamEvent], str | None]:
        """Return what a call's body says, and the provider's id of it where the events do not tell that."""
        codec = FORMATS[target]
        can = deployment.capabilities
        upstream_id = None
        if body.removeprefix(BOM).lstrip().startswith(_STREAM_MARKS):
            decoder = codec.stream_decoder(can, _ignore)
            events = decoder.feed(body)
            if not any(isinstance(event, End | StreamError) for event in events):
                events += decoder.finish()
            upstream_id = decoder.upstream_id
        else:
            events = codec.decode_answer(body, can)
        return (cut_answer(events, self._cut_at) if self._cut_at else events), upstream_id

    def _told(self, events: list[StreamEvent], upstream_id: str | None) -> TranslatedAnswer:
        follow = self.new_turn()
        if follow is not None:
            for event in events:
                follow(event)
        answer = TranslatedAnswer(self.client, self.asked, events, upstream_id)
        self.untold = answer.untold
        return answer

    def new_turn(self) -> Callable[[StreamEvent], None] | None:
        """Return who takes down what an answer tells of thoughts and calls; None where nobody has to."""
        self.turn = None if self._thoughts is None else Turn()
        return None if self.turn is None else self.turn.take

    def remember(self) -> None:
        """Keep what the whole answer told, for the turn that follows it."""
        if self.turn is not None and self._thoughts is not None:
            self.turn.keep(self._thoughts, self._account_id, time.monotonic())

    def error(self, error: SluicegateError, request_id: str) -> tuple[int, bytes]:
        """Return status and body of an error answer in the client's format."""
        return self.client.encode_error(error, request_id)


def _echo_of(request: Request) -> tuple[str, ...]:
    """Return by choice the prompt that a client of legacy completions wants repeated."""
    if not request.echo:
        return ()
    firsts = [messages[0].parts[0] for messages in (request.messages, *request.others)]
    prompts = [first.text if isinstance(first, Text) else "" for first in firsts]
    return tuple(prompt for prompt in prompts for _ in range(request.choices))


def _has(body: bytes, key: str) -> bool:
    return b'"%b"' % key.encode() in body


def _ignore(text: str) -> None:
    """The plain path counts an answer's texts itself."""
