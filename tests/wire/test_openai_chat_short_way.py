"""C3, C6, C7: a chunk that is taken in one step leaves as it would in the general way, whatever it holds."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.errors import DecodeError
from sluicegate.messages import Usage
from sluicegate.wire import Bill
from sluicegate.wire.openai_chat import ChatStream
from sluicegate.wire.openai_chat_chunk import Choice, Chunk
from sluicegate.wire.openai_chat_edits import says_nothing_unknown
from sluicegate.wire.openai_chat_identity import Identity
from tests.profiles import examples


def from_source() -> ModuleType:
    """Return the module as plain Python, also where the build that is tested is compiled: that takes no subclass."""
    path = Path(__file__).parents[2] / "src/sluicegate/wire/openai_chat.py"
    spec = spec_from_file_location("plain_openai_chat", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class GeneralStream(from_source().ChatStream):  # type: ignore[misc]
    """Takes every chunk in the general way."""

    __slots__ = ()

    def _take_text(self, payload: bytes, chunk: Chunk, choices: list[Choice]) -> bool:
        return False


odd = st.sampled_from([None, "", 0, 1, 1.0, True, [], {}, "x", "stop", "theirs", 'a"model":"theirs"'])
deltas = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["assistant", None, "", "user"]),
        "content": st.one_of(st.sampled_from(["", "word", "é", '"model":"theirs"', "\ud83d"]), odd),
        "reasoning": odd,
        "reasoning_content": odd,
        "refusal": odd,
        "tool_calls": st.sampled_from(
            [None, [], [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]]
        ),
        "images": odd,
    },
)
choices = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([0, 0, 0, 1, 0.0, None, False]),
        "delta": st.one_of(deltas, st.none()),
        "finish_reason": st.sampled_from([None, None, None, "stop", "length", "eos", "", "error", ["stop"]]),
        "model": st.sampled_from(["theirs", "other"]),
    },
)
usage = st.sampled_from([None, {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}, {}])
chunks = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["c1", "c1", "", None, 7]),
        "object": st.sampled_from(["chat.completion.chunk", "chat.completion.chunk", "other"]),
        "created": st.sampled_from([100, 100, 0, "1", 100.0]),
        "model": st.sampled_from(["theirs", "theirs", "other", "public", None]),
        "system_fingerprint": st.just("fp"),
        "choices": st.one_of(st.lists(choices, max_size=2), st.none()),
        "usage": usage,
        "error": st.sampled_from([None, {}, {"message": "no"}]),
    },
)
regular = st.builds(
    lambda delta, reason, last: {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 100,
        "model": "theirs",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        **last,
    },
    deltas,
    st.sampled_from([None, None, None, "stop"]),
    st.sampled_from([{}, {"usage": None}, {"obfuscation": "ab"}]),
)
separators = st.sampled_from([(",", ":"), (", ", ": ")])


def event(value: dict[str, Any], spelled: tuple[str, str]) -> bytes:
    text = json.dumps(value, separators=spelled, ensure_ascii=not spelled[0].endswith(" "))
    return b"data: " + text.encode(errors="surrogatepass") + b"\n\n"


def told(stream: ChatStream, reads: list[bytes], texts: list[str]) -> list[Any]:
    """Feed a stream as its relay does; return all that it says of itself after each read."""
    seen: list[Any] = []
    failed = False
    for data in reads:
        try:
            stream.feed(data)
            stream.flush()
        except DecodeError as error:
            failed = True
            seen.append(error.reason)
        state = (stream.content, stream.finishing, stream.held, stream.ended, stream.error, stream.repaired)
        seen.append((b"".join(stream.out), *state, stream.upstream_id, stream.finish_reason, stream.usage))
        stream.out.clear()
        if failed or stream.ended or stream.error is not None:
            break
    if not failed and stream.error is None:
        seen.append(stream.farewell(Bill(Usage(input_tokens=3, output_tokens=2))))
    return [*seen, list(texts)]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.one_of(regular, regular, chunks), min_size=1, max_size=8),
    separators,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
)
def test_the_short_way_leads_where_the_general_one_does(
    values: list[dict[str, Any]],
    spelled: tuple[str, str],
    repair: bool,
    hide_provider: bool,
    keep_null_usage: bool,
    at_once: int,
) -> None:
    events = [event(value, spelled) for value in values]
    reads = [b"".join(events[at : at + at_once]) for at in range(0, len(events), at_once)]
    reads.append(b"data: [DONE]\n\n")
    identity = Identity(
        model="public", fallback_id="chatcmpl-0", created=1_800_000_000, hide_provider=hide_provider
    )
    outcomes = []
    for kind in (ChatStream, GeneralStream):
        texts: list[str] = []
        stream = kind(identity, count_text=texts.append, repair=repair, keep_null_usage=keep_null_usage)
        outcomes.append(told(stream, reads, texts))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("delta", "known"),
    [
        ('{"role":"assistant","content":""}', True),
        ('{"role":"assistant","content":"","refusal":null}', True),
        ("{}", True),
        ('{"content":"","images":[1]}', False),
        ('{"content":"","x":null}', False),
        ('{ "content": "" }', False),
        (r'{"content":"","\u0069mages":[1]}', False),
    ],
)
def test_a_quick_look_knows_the_usual_empty_deltas_alone(delta: str, *, known: bool) -> None:
    payload = '{"id":"c","choices":[{"index":0,"delta":%s,"finish_reason":null}]}'
    assert says_nothing_unknown((payload % delta).encode()) is known
    assert not says_nothing_unknown((payload % f'{delta},"more":{{"delta":{{"images":[1]}}}}').encode())
