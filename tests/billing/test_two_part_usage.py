"""What an answer of two providers used: the prompt once, the output of both. Contract B1, B3."""

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.billing.meter import InputRatios, Meter
from sluicegate.billing.running_usage import RunningUsage
from sluicegate.billing.two_part_usage import FirstPart, joined
from sluicegate.messages import Usage

COUNTED = FirstPart(Usage(input_tokens=38, output_tokens=10), "counted", False)
REPORTED = FirstPart(Usage(input_tokens=40, cache_read_tokens=30, output_tokens=10), "reported", True)


def test_the_second_providers_prompt_without_the_first_part_is_the_prompt() -> None:
    told = Usage(input_tokens=50, cache_read_tokens=16, output_tokens=7)
    usage, source = joined(COUNTED, told, "reported", reported=True)
    assert (usage, source) == (Usage(input_tokens=40, cache_read_tokens=16, output_tokens=17), "counted")
    assert told.output_tokens == 7, "the report itself stays"


def test_what_the_first_provider_told_of_the_prompt_counts_before_what_the_second_does() -> None:
    usage, source = joined(
        REPORTED, Usage(input_tokens=55, cache_write_tokens=55, output_tokens=7), "reported", reported=True
    )
    assert usage == Usage(input_tokens=40, cache_read_tokens=30, output_tokens=17)
    assert source == "reported"


def test_where_nobody_told_the_estimate_for_the_request_stands() -> None:
    usage, source = joined(COUNTED, Usage(input_tokens=99, output_tokens=7), "counted", reported=False)
    assert (usage, source) == (Usage(input_tokens=38, output_tokens=17), "counted")


def test_who_produced_nothing_changes_nothing() -> None:
    assert joined(COUNTED, Usage(), "none", reported=False) == (COUNTED.usage, "counted")


counts = st.integers(0, 10_000)


@given(before=counts, told=counts, read=counts, written=counts, output=counts)
def test_parts_never_pass_the_whole(before: int, told: int, read: int, written: int, output: int) -> None:
    first = FirstPart(Usage(input_tokens=5, output_tokens=before), "counted", False)
    second = Usage(
        input_tokens=told, cache_read_tokens=read, cache_write_tokens=written, output_tokens=output
    )
    usage, _ = joined(first, second, "reported", reported=True)
    assert usage.input_tokens is not None
    assert 1 <= usage.input_tokens <= max(1, told)
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    assert cached <= usage.input_tokens
    assert usage.output_tokens == before + output


def begun(text: str) -> Meter:
    """Return the meter of a stream that was cut behind a text."""
    meter = Meter(InputRatios(), "key", "m", 160)
    meter.restart("one")
    meter.headed = True
    meter.add(text)
    return meter


def test_a_meter_counts_both_parts_and_forgets_a_third_that_brought_nothing() -> None:
    meter = begun(" word" * 10)
    meter.take_over("two")
    assert meter.produced() == (Usage(input_tokens=40, output_tokens=10), "counted"), "it was refused"
    meter.take_over("three")
    meter.headed = True
    meter.add(" more" * 5)
    assert meter.so_far() == (Usage(input_tokens=40, output_tokens=15), "counted")
    assert meter.counted_running() == 15
    meter.report(Usage(input_tokens=47, output_tokens=5))
    assert meter.final() == (Usage(input_tokens=37, output_tokens=15), "counted")


def test_what_was_read_twice_teaches_nothing_of_requests() -> None:
    ratios = InputRatios()
    meter = Meter(ratios, "key", "m", 160)
    meter.restart("one")
    meter.headed = True
    meter.add(" word")
    meter.take_over("two")
    meter.headed = True
    meter.report(Usage(input_tokens=1000, output_tokens=5))
    meter.final()
    assert ratios.estimate("key", "m", 160) == (40, None)


def test_C8_usage_so_far_goes_on() -> None:
    meter = begun(" word" * 10)
    running = RunningUsage(meter, lambda usage: (usage.input_tokens or 0) + 2 * (usage.output_tokens or 0))
    before, _ = running.so_far(None)
    assert (before.input_tokens, before.output_tokens) == (32, 8)
    meter.take_over("two")
    meter.headed = True
    after, cost = running.so_far(None)
    assert (after.input_tokens, after.output_tokens) == (32, 8)
    told = Usage(input_tokens=50, output_tokens=5)
    meter.add(" more" * 5)
    meter.report(told)
    last, last_cost = running.so_far(told)
    assert (last.input_tokens, last.output_tokens) == (40, 15)
    assert last_cost == 70 > cost
