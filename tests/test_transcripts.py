"""Each golden transcript, run whole, event by event, byte by byte, at random cuts, and cut short everywhere."""

import json
from itertools import accumulate

import pytest

from sluicegate.errors import DecodeError
from sluicegate.wire.sse import EventReader
from tests.grammar.chat import check_chat_stream
from tests.transcripts.cases import Case, load
from tests.wire.passing import one_byte, random_cuts

CASES = load()
pytestmark = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def meaning(case: Case, raw: bytes) -> tuple[object, ...]:
    said = check_chat_stream(raw, model=case.request.model, end=None)
    return said.texts, said.reasoning, said.refusal, said.tool_calls, said.finish, said.usage, said.error


def test_what_the_client_gets_is_what_was_reviewed(case: Case) -> None:
    for name, content in case.expected().items():
        assert (case.folder / name).read_bytes() == content, (
            f"make transcripts, and look at {case.name}/{name}"
        )


def test_what_was_reviewed_is_good_grammar(case: Case) -> None:
    raw = (case.folder / "to_chat.sse").read_bytes()
    usage = case.request.include_usage if case.end == "done" else None
    check_chat_stream(raw, model=case.request.model, usage=usage, end=case.end)


def test_cuts_change_nothing(case: Case) -> None:
    reviewed = meaning(case, (case.folder / "to_chat.sse").read_bytes())
    told = json.loads((case.folder / "usage.json").read_bytes())
    ways = [
        [case.stream],
        list(one_byte(case.stream)),
        *(random_cuts(case.stream, seed) for seed in range(10)),
    ]
    for way in ways:
        passed = case.play(way)
        assert meaning(case, passed.raw) == reviewed
        assert passed.counted == told["counted_text"]
        assert passed.failure == told["failure"]
        assert passed.codec.finish_reason == told["finish_reason"]


def test_cut_short_it_never_looks_complete(case: Case) -> None:
    """After each event, and in the middle of each: complete only where the provider had said how it ends."""
    ends = list(accumulate(len(event) for event in case.events()))
    for at in [0, *ends, *(end - 3 for end in ends), *(end - 25 for end in ends if end > 25)]:
        short = case.stream[:at]
        passed = case.play([short] if short else [])
        meaning(case, passed.raw)
        assert passed.complete == is_whole(short, case.request.choices), short[-200:]


def is_whole(data: bytes, choices: int) -> bool:
    """Tell, without the codec, whether a stream had ended: by its marker after output, or by all finish reasons."""
    reader = EventReader()
    finished: set[int] = set()
    output = False
    for _, payload in reader.feed(data) + reader.finish():
        if payload.strip() == b"[DONE]":
            return output
        try:
            chunk = json.loads(payload)
        except ValueError:
            continue
        if chunk.get("error"):
            return False
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            has_text = any(value for key, value in delta.items() if key != "role")
            output = output or has_text
            if has_text:
                finished.discard(choice.get("index", 0))
            if choice.get("finish_reason"):
                finished.add(choice.get("index", 0))
                output = True
    return len(finished) >= choices


def test_any_byte_may_be_damaged(case: Case) -> None:
    for at in range(0, len(case.stream), 7):
        damaged = bytearray(case.stream)
        damaged[at] ^= 0x15
        try:
            passed = case.play([bytes(damaged)])
        except DecodeError:  # pragma: no cover
            pytest.fail("a decode error reached the shell unhandled")
        for event in passed.raw.split(b"\n\n")[:-1]:
            payload = event.removeprefix(b"data: ")
            assert payload == b"[DONE]" or isinstance(json.loads(payload), dict)
