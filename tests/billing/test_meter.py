"""What an answer used: the provider's report, else our own count, and the row says which."""

import pytest

from sluicegate.billing import meter as meter_module
from sluicegate.billing.meter import InputRatios, Meter
from sluicegate.billing.tokens import count_tokens
from sluicegate.messages import Usage

REPORT = Usage(input_tokens=100, output_tokens=20, cache_read_tokens=40)


def meter(ratios: InputRatios | None = None, body_bytes: int = 400) -> Meter:
    made = Meter(ratios or InputRatios(), "key", "m", body_bytes)
    made.restart()
    made.headed = True
    return made


def test_before_any_attempt_nothing_was_used() -> None:
    assert Meter(InputRatios(), "key", "m", 400).final() == (Usage(), "none")


def test_a_whole_report_is_taken_as_it_is() -> None:
    one = meter()
    one.add("other text")
    one.reported = REPORT
    assert one.final() == (REPORT, "reported")


def test_before_the_providers_head_nothing_was_used() -> None:
    one = meter()
    one.headed = False
    one.add("never")
    assert one.final() == (Usage(), "none")


def test_without_a_report_text_is_counted_and_input_estimated() -> None:
    one = meter()
    one.add("Hello ")
    one.add("world")
    usage, source = one.final()
    assert source == "counted"
    assert usage == Usage(input_tokens=100, output_tokens=count_tokens("Hello world"))


@pytest.mark.parametrize(
    "report",
    [Usage(input_tokens=7), Usage(output_tokens=9, reasoning_tokens=3)],
    ids=["no output", "no input"],
)
def test_half_a_report_is_filled_up_and_called_counted(report: Usage) -> None:
    one = meter()
    one.add("Hello world")
    one.reported = report
    usage, source = one.final()
    assert source == "counted"
    assert usage.input_tokens == (report.input_tokens or 100)
    assert usage.output_tokens == (report.output_tokens or count_tokens("Hello world"))
    assert usage.reasoning_tokens == report.reasoning_tokens
    assert report in (Usage(input_tokens=7), Usage(output_tokens=9, reasoning_tokens=3)), (
        "the report is not changed"
    )


def test_a_report_of_nothing_is_a_report() -> None:
    one = meter()
    one.reported = Usage(input_tokens=0, output_tokens=0)
    assert one.final() == (Usage(input_tokens=0, output_tokens=0), "reported")


def test_a_new_attempt_forgets_the_last() -> None:
    one = meter()
    one.add("lost " * 1000)
    one.reported = REPORT
    one.restart()
    assert one.final() == (Usage(), "none")
    one.headed = True
    one.add("kept")
    assert one.final()[0].output_tokens == count_tokens("kept")


def test_progress_is_told_also_after_a_new_attempt() -> None:
    told: list[int] = []
    one = Meter(InputRatios(), "key", "m", 400, told.append)
    one.restart()
    one.add("some words " * 500)
    assert told
    assert 0 < told[-1] <= one.counted_running()


def test_input_is_estimated_by_what_was_last_reported() -> None:
    ratios = InputRatios()
    assert ratios.estimate("key", "m", 1000) == (250, None)
    assert ratios.estimate("key", "m", 0) == (1, None)
    first = meter(ratios, body_bytes=500)
    first.reported = REPORT
    first.final()
    assert ratios.estimate("key", "m", 1000) == (200, 80)
    assert ratios.estimate("another key", "m", 1000) == (200, 80)  # the model's
    assert ratios.estimate("key", "another model", 1000) == (250, None)
    ratios.learn("another key", "m", 1000, Usage(input_tokens=100))
    assert ratios.estimate("key", "m", 1000) == (200, 80)
    assert ratios.estimate("another key", "m", 1000) == (100, None)
    assert ratios.estimate("third key", "m", 1000) == (100, None)


def test_odd_reports_teach_nothing_impossible() -> None:
    ratios = InputRatios()
    ratios.learn("key", "m", 0, REPORT)
    ratios.learn("key", "m", 100, Usage(output_tokens=5))
    ratios.learn("key", "m", 100, Usage(input_tokens=0, output_tokens=5))
    assert ratios.estimate("key", "m", 1000) == (250, None)
    ratios.learn("key", "m", 100, Usage(input_tokens=50_000, output_tokens=5))  # of a kept conversation
    assert ratios.estimate("key", "m", 1000) == (250, None)
    ratios.learn("key", "m", 300, Usage(input_tokens=200))
    assert ratios.estimate("key", "m", 1000) == (667, None)
    ratios.learn("key", "m", 400, Usage(input_tokens=100, cache_read_tokens=900))
    tokens, cached = ratios.estimate("key", "m", 1000)
    assert cached is not None
    assert cached <= tokens


def test_memory_of_ratios_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_module, "MAX_RATIOS", 10)
    ratios = InputRatios()
    for number in range(50):
        ratios.learn(f"key{number}", f"m{number}", 400, REPORT)
        ratios.learn("busy", "busy", 400, REPORT)
    assert ratios.estimate("busy", "busy", 400) == (100, 40)
    assert ratios.estimate("new", "m49", 400) == (100, 40)
    assert ratios.estimate("key0", "m0", 4000) == (1000, None)


def test_a_cut_answer_is_what_was_reported_and_what_came_after_it() -> None:
    one = meter()
    one.add("Hello world, ")
    one.report(Usage(input_tokens=30, output_tokens=40, reasoning_tokens=38))
    one.add("how are you?")
    usage, source = one.produced()
    assert source == "counted"
    more = count_tokens("Hello world, how are you?") - count_tokens("Hello world, ")
    assert usage == Usage(input_tokens=30, output_tokens=40 + more, reasoning_tokens=38)
    assert one.final() == (Usage(input_tokens=30, output_tokens=40, reasoning_tokens=38), "reported")


def test_a_cut_answer_whose_last_report_covers_all_is_reported() -> None:
    one = meter()
    one.add("Hello world")
    report = Usage(input_tokens=30, output_tokens=7)
    one.report(report)
    one.report(report)
    assert one.produced() == (report, "reported")
    one.add(" and")
    one.report(report)  # the same object: nothing new was said
    assert one.produced()[0].output_tokens == 8


def test_a_cut_answer_without_a_total_of_the_output_is_counted_whole() -> None:
    one = meter()
    one.report(Usage(input_tokens=30))
    one.add("Hello world")
    assert one.produced() == (Usage(input_tokens=30, output_tokens=2), "counted")
    one.headed = False
    assert one.produced() == (Usage(), "none")


def test_text_that_comes_too_fast_is_counted_in_turns() -> None:
    told: list[str] = []
    one = Meter(InputRatios(), "key", "m", 400, on_late=lambda: told.append("late"))
    one.restart()
    one.headed = True
    one.add("some words " * 50_000)
    one.add("and more " * 500)
    assert told == ["late"]
    assert one.late
    turns = 0
    while one.catch_up():
        turns += 1
    assert turns >= 550_000 // 16_384
    assert not one.late
    assert one.final()[0].output_tokens == pytest.approx(
        count_tokens("some words " * 50_000 + "and more " * 500), rel=0.001
    )
