"""Each golden transcript of the formats beside chat, told to clients of every format. See `test_transcripts`."""

from itertools import accumulate

import pytest

from sluicegate.messages import Format
from tests.grammar.test_grammar import CHECKERS
from tests.transcripts.crossings import TARGETS, Crossing, load
from tests.wire.openai_world import MODEL
from tests.wire.passing import one_byte, random_cuts

CASES = load()
STREAMS = [case for case in CASES if case.stream is not None]
CELLS = [
    pytest.param(case, target, id=f"{case.name}-{target}") for case in STREAMS for target in case.targets
]


def meaning(case: Crossing, target: Format, raw: bytes) -> tuple[object, ...]:
    said = CHECKERS[target](raw, model=MODEL, end=case.end_for(target))
    error = None if said.error is None else said.error["message"]
    return (
        said.texts,
        said.text,
        said.reasoning,
        said.refusal,
        said.tool_calls,
        said.finish,
        said.usage,
        error,
    )


@pytest.mark.parametrize("format", TARGETS[1:])
def test_there_are_enough(format: Format) -> None:
    streamed = [case for case in CASES if case.format == format and case.stream is not None]
    plain = [case for case in CASES if case.format == format and case.answer is not None]
    assert len(streamed) >= 6
    assert len(plain) >= (4 if format == "completions" else 6)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_clients_get_is_what_was_reviewed(case: Crossing) -> None:
    for name, content in case.expected().items():
        assert (case.folder / name).read_bytes() == content, (
            f"make transcripts, and look at {case.name}/{name}"
        )


@pytest.mark.parametrize(("case", "target"), CELLS)
def test_cuts_change_nothing(case: Crossing, target: Format) -> None:
    reviewed = meaning(case, target, (case.folder / f"to_{target}.sse").read_bytes())
    assert case.stream is not None
    for way in (
        [case.stream],
        list(one_byte(case.stream)),
        *(random_cuts(case.stream, seed) for seed in range(2)),
    ):
        ran = case.play(target, way)
        assert meaning(case, target, ran.raw) == reviewed
        assert (ran.failure is None) == (case.end_for(target) == "done")


@pytest.mark.parametrize(("case", "target"), CELLS)
def test_cut_short_it_never_looks_complete(case: Crossing, target: Format) -> None:
    ends = list(accumulate(len(event) for event in case.events()))
    assert case.stream is not None
    for at in ends[:-1]:
        ran = case.play(target, [case.stream[:at]])
        assert (ran.failure is None) == is_whole(case, target, case.stream[:at]), case.stream[:at][-300:]
        CHECKERS[target](ran.raw, model=MODEL, end="done" if ran.failure is None else "error")


def is_whole(case: Crossing, target: Format, data: bytes) -> bool:
    """Tell, without the codec, whether whole events said that the answer had ended."""
    if case.end_for(target) == "error":
        return False
    match case.format:
        case "messages":
            return b'"message_stop"' in data
        case "responses":
            return any(b'"type":"response.%b"' % word in data for word in (b"completed", b"incomplete"))
        case "gemini":
            return b'"finishReason"' in data or b'"blockReason"' in data
        case _:
            return b"[DONE]" in data or data.count(b'"finish_reason":"') >= case.choices
