"""Usage and cost of an answer that still runs: floors that never fall. Contract C8."""

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.billing.meter import InputRatios, Meter
from sluicegate.billing.running_usage import RunningUsage
from sluicegate.messages import Usage


def cost_of(usage: Usage) -> int:
    cached = usage.cache_read_tokens or 0
    return ((usage.input_tokens or 0) - cached) * 10 + cached + (usage.output_tokens or 0) * 20


def running(ratios: InputRatios | None = None) -> tuple[Meter, RunningUsage]:
    meter = Meter(ratios or InputRatios(), "key", "m", 400)
    meter.restart()
    meter.headed = True
    return meter, RunningUsage(meter, cost_of)


def test_what_nobody_reported_is_told_at_four_fifths() -> None:
    meter, usage = running()
    meter.add(" word" * 50)
    assert usage.so_far(None) == (Usage(input_tokens=80, output_tokens=40), 80 * 10 + 40 * 20)


def test_what_was_reported_is_told_as_it_is_and_what_came_since_at_four_fifths() -> None:
    meter, usage = running()
    meter.add(" word" * 50)
    report = Usage(input_tokens=90, output_tokens=70, reasoning_tokens=20)
    assert usage.so_far(report)[0] == report
    meter.add(" word" * 10)
    assert usage.so_far(report)[0] == Usage(input_tokens=90, output_tokens=78, reasoning_tokens=20)
    assert report.output_tokens == 70, "the report is not changed"


def test_a_guess_at_the_cached_share_lowers_the_cost_and_is_not_told() -> None:
    ratios = InputRatios()
    ratios.learn("key", "m", 400, Usage(input_tokens=100, cache_read_tokens=60))
    _, usage = running(ratios)
    assert usage.so_far(None) == (Usage(input_tokens=80, output_tokens=0), 20 * 10 + 60)


def test_several_calls_that_nobody_reports_are_told_with_the_length_of_the_longest() -> None:
    meter, usage = running()
    meter.ask_again(40)
    told, _ = usage.so_far(None)
    assert (told.input_tokens, told.longest_input_tokens) == (168, 88)
    final, _ = meter.produced()
    assert (final.input_tokens, final.longest_input_tokens) == (210, 110)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.none()
            | st.builds(
                Usage,
                input_tokens=st.none() | st.integers(0, 200),
                output_tokens=st.none() | st.integers(0, 200),
            ),
        ),
        min_size=1,
    )
)
def test_it_never_falls_whatever_a_provider_reports(steps: list[tuple[int, Usage | None]]) -> None:
    meter, usage = running()
    last = (0, 0, 0)
    reported: Usage | None = None
    for words, report in steps:
        meter.add(" word" * words)
        reported = report or reported
        told, cost = usage.so_far(reported)
        now = (told.input_tokens or 0, told.output_tokens or 0, cost)
        assert all(new >= old for new, old in zip(now, last, strict=True))
        last = now
