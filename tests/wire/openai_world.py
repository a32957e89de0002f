"""Stand-ins for the shell around the chat and completions codecs across formats, and the bytes of such providers."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sluicegate.capabilities import Capabilities
from sluicegate.errors import DecodeError, StreamCut, UpstreamGarbled
from sluicegate.messages import ReasoningDelta, Request, StreamEvent, TextDelta, ToolCallDelta, Usage
from sluicegate.wire import Bill, StreamCodec
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.translated import TranslatedStream
from sluicegate.wire.translation import Asked, Notes, PassOptions, Policy
from sluicegate.wire.upstream_errors import from_stream_error
from sluicegate.wire.whole_answer import write_stream
from tests.grammar.narrow_sse import ParsedStream
from tests.grammar.test_grammar import CHECKERS

MODEL = "public/m-1"
ASKED = Asked(model=MODEL, id="0123456789abcdef01234567", created=1_800_000_000, input_estimate=17)
COST = b'"cost":0.000002,"cost_nano_usd":2000'
CAN = Capabilities()
FIXTURES = Path(__file__).parent / "fixtures"


def streams(format: str) -> list[str]:
    """Return the names of a format's fixtures that are whole streams."""
    return sorted(path.stem for path in (FIXTURES / format).glob("*.sse") if "error" not in path.stem)


def fixture(name: str) -> bytes:
    """Return a fixture's bytes."""
    folder = FIXTURES / name.partition("-")[0]
    path = folder / f"{name}.sse"
    return (path if path.exists() else folder / f"{name}.json").read_bytes()


def sse(payload: Any) -> bytes:
    """Return one event."""
    return b"data: " + json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def ch(
    delta: dict[str, Any] | None = None,
    finish: str | None = None,
    *,
    index: int = 0,
    usage: Any = None,
    **more: Any,
) -> bytes:
    """Return one chunk of a chat provider."""
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish, **more}
    top = {"id": "c1", "object": "chat.completion.chunk", "created": 100, "model": "up", "choices": [choice]}
    return sse(top if usage is None else {**top, "usage": usage})


def cp(text: str = "", finish: str | None = None, *, index: int = 0, **more: Any) -> bytes:
    """Return one chunk of a completions provider."""
    choice = {"text": text, "index": index, "logprobs": None, "finish_reason": finish, **more}
    return sse({"id": "c1", "object": "text_completion", "created": 100, "model": "up", "choices": [choice]})


def tail(prompt: int = 9, completion: int = 2, **more: Any) -> bytes:
    """Return a usage chunk."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        **more,
    }
    return sse({"id": "c1", "object": "chat.completion.chunk", "created": 100, "choices": [], "usage": usage})


DONE = b"data: [DONE]\n\n"


class Ran:
    """What became of an answer."""

    def __init__(
        self, raw: bytes, codec: StreamCodec, counted: str, failure: str | None, target: str
    ) -> None:
        self.raw = raw
        self.codec = codec
        self.counted = counted
        self.failure = failure
        self._target = target

    def parsed(self, **checks: Any) -> ParsedStream:
        """Check the client's stream by its grammar and return what it says."""
        checks.setdefault("model", MODEL)
        checks.setdefault("end", "done" if self.failure is None else "error")
        return CHECKERS[self._target](self.raw, **checks)  # type: ignore[index]  # a format's name

    def chunks(self) -> list[dict[str, Any]]:
        """Return the client's events of an OpenAI format, without the end marker."""
        lines = [line.removeprefix(b"data: ") for line in self.raw.split(b"\n\n")]
        return [json.loads(line) for line in lines if line and line != b"[DONE]"]


def run(
    pieces: Iterable[bytes],
    source: str,
    target: str,
    *,
    asked: Asked = ASKED,
    can: Capabilities = CAN,
    choices: int = 1,
    bill: Bill | None = None,
    release_after: int | None = None,
    usage_shown: bool = True,
) -> Ran:
    """Bring an answer to a client as `server.relay` does; the same format passes.

    Args:
        pieces: the provider's body, one piece a read.
        bill: what the farewell says; None: what the provider reported.
        release_after: the hold clock runs out after this read.
    """
    counted: list[str] = []
    provider, client = FORMATS[source], FORMATS[target]
    codec: StreamCodec
    if source == target:
        options = PassOptions(count_text=counted.append, choices=choices, usage_shown=usage_shown)
        codec = client.pass_stream(asked, options)
    else:
        codec = TranslatedStream(
            provider.stream_decoder(can, counted.append),
            client.stream_encoder(asked),
            lambda body: provider.decode_answer(body, can),
            counted.append,
            joins_usage=client.joins_usage,
            choices=choices,
        )
    out: list[bytes] = []
    error: DecodeError | None = None
    try:
        for place, piece in enumerate(pieces):
            codec.feed(piece)
            if not codec.ended and codec.held:
                codec.flush()
                if place == release_after:
                    codec.release()
            if codec.content:
                out += codec.out
                codec.out.clear()
            if codec.ended or codec.error is not None:
                break
        if not codec.ended and codec.error is None:
            codec.finish()
    except DecodeError as garbled:
        error = garbled
    failure = None
    if codec.content or (codec.error is None and error is None):
        out += codec.out  # else start-up events go with the attempt
    if codec.error is not None:
        failure = codec.error.message
        out.append(codec.failure(from_stream_error(codec.error)))
    elif error is not None:
        failure = error.reason
        out.append(codec.failure((StreamCut if codec.content else UpstreamGarbled)(failure)))
    else:
        usage = codec.usage or Usage(input_tokens=3, output_tokens=5)
        out.append(codec.farewell((bill or Bill(usage, in_usage=COST)) if usage_shown else None))
    return Ran(b"".join(out), codec, "".join(counted), failure, target)


def told(events: list[StreamEvent], target: str, asked: Asked = ASKED) -> Ran:
    """Write an answer's events for a client."""
    raw = write_stream(events, FORMATS[target].stream_encoder(asked))
    return Ran(raw, None, "", None, target)  # type: ignore[arg-type]  # there was none


def plain(
    events: list[StreamEvent], target: str, asked: Asked = ASKED, usage: Usage | None = None
) -> dict[str, Any]:
    """Write a plain answer for a client."""
    bill = Bill(usage or Usage(input_tokens=9, output_tokens=2), in_usage=COST)
    body: dict[str, Any] = json.loads(FORMATS[target].encode_answer(events, asked, bill))
    return body


def decoded(pieces: Iterable[bytes], source: str, can: Capabilities = CAN) -> list[StreamEvent]:
    """Return the events of a stream, neighbouring deltas joined: where they are cut means nothing.

    Raises:
        DecodeError: as the decoder does.
    """
    decoder = FORMATS[source].stream_decoder(can, lambda text: None)
    events: list[StreamEvent] = []
    for piece in pieces:
        events += decoder.feed(piece)
    return joined(events + decoder.finish())


def joined(events: list[StreamEvent]) -> list[StreamEvent]:
    """Join deltas that stand beside each other and belong to the same thing."""
    out: list[StreamEvent] = []
    for event in events:
        before = out[-1] if out else None
        match before, event:
            case (TextDelta(), TextDelta()) | (ReasoningDelta(), ReasoningDelta()) if (
                before.choice == event.choice
            ):
                out[-1] = type(event)(before.text + event.text, event.choice)
            case ToolCallDelta(), ToolCallDelta() if (before.index, before.choice) == (
                event.index,
                event.choice,
            ):
                out[-1] = ToolCallDelta(event.index, before.arguments + event.arguments, event.choice)
            case _:
                out.append(event)
    return out


def read(format: str, body: dict[str, Any], policy: Policy = "default") -> tuple[Request, Notes]:
    """Decode a client's request."""
    notes = Notes(policy)
    raw = json.dumps(body, ensure_ascii=False).encode()
    return FORMATS[format].decode_request(raw, notes), notes


def write(
    format: str, request: Request, can: Capabilities = CAN, policy: Policy = "default"
) -> tuple[dict[str, Any], list[str]]:
    """Encode a provider's request; return it and what is named as left out."""
    notes = Notes(policy)
    return json.loads(FORMATS[format].encode_request(request, "up", can, notes)), notes.dropped
