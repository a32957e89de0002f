"""Whatever a model answers, the simulator says it grammatically in all five formats, with the true counts."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from sluicegate.messages import Format
from sluicegate.simulator.answer import Answer
from tests.grammar.test_grammar import CHECKERS, stream_of
from tests.profiles import examples
from tests.strategies import answers


def total_output(format: Format, usage: dict[str, Any]) -> int:
    """Return the output count, reasoning included, out of a format's usage."""
    match format:
        case "chat" | "completions":
            count = usage["completion_tokens"]
        case "gemini":
            count = usage["totalTokenCount"] - usage["promptTokenCount"]
        case _:
            count = usage["output_tokens"]
    return int(count)


@pytest.mark.parametrize("format", sorted(CHECKERS))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answer=answers())
def test_any_answer(format: Format, answer: Answer) -> None:
    parsed = CHECKERS[format](stream_of(format, answer), model="m")
    truth = answer.truth()
    assert parsed.usage is not None
    assert total_output(format, parsed.usage) == truth.output_tokens
    assert parsed.text + parsed.refusal == "".join(answer.text + answer.refusal)
    if format != "completions":
        assert [call.name for call in parsed.tool_calls] == [call.name for call in answer.tool_calls]
