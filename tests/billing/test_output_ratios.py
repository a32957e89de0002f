"""Our counts of other vendors' output are set right by what whole answers were reported to have."""

import pytest

from sluicegate.billing import output_ratios
from sluicegate.billing.meter import InputRatios, Meter
from sluicegate.billing.output_ratios import ENOUGH, LAST, OutputRatios
from sluicegate.billing.tokens import count_tokens
from sluicegate.messages import Usage

LONG = " many words" * 200
COUNTED = count_tokens(LONG)


def ratios_of(*reported: float, key: str = "k", model: str = "m") -> OutputRatios:
    ratios = OutputRatios()
    for times in reported:
        ratios.learn(key, model, round(1000 * times), 1000)
    return ratios


def test_nothing_is_made_of_few_answers() -> None:
    assert ratios_of(*[1.4] * (ENOUGH - 1)).factor("k", "m") == 1.0
    assert ratios_of(*[1.4] * ENOUGH).factor("k", "m") == 1.4


def test_the_keys_answers_go_before_all_of_the_models() -> None:
    ratios = ratios_of(1.4, 1.4, 1.4)
    assert ratios.factor("another", "m") == 1.4
    assert ratios.factor("k", "another model") == 1.0
    for _ in range(ENOUGH):
        ratios.learn("another", "m", 1200, 1000)
    assert (ratios.factor("another", "m"), ratios.factor("k", "m")) == (1.2, 1.4)


def test_a_low_one_of_the_last_answers_counts() -> None:
    assert ratios_of(1.3, 1.2, 1.4).factor("k", "m") == 1.2
    assert ratios_of(1.1, *[1.3] * (LAST - 1)).factor("k", "m") == 1.3
    assert ratios_of(1.1, 1.2, *[1.3] * (LAST - 2)).factor("k", "m") == 1.2
    assert ratios_of(*[1.1] * LAST, *[1.5] * LAST).factor("k", "m") == 1.5, "only the last are remembered"


@pytest.mark.parametrize("times", [0.985, 1.0, 1.015])
def test_a_vocabulary_like_ours_is_taken_for_ours(times: float) -> None:
    assert ratios_of(*[times] * ENOUGH).factor("k", "m") == 1.0


def test_short_and_odd_answers_teach_nothing() -> None:
    ratios = ratios_of(*[3.5] * LAST, *[0.4] * LAST)
    for _ in range(ENOUGH):
        ratios.learn("k", "m", 280, 199)
    assert ratios.factor("k", "m") == 1.0


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_ratios, "MAX_RATIOS", 10)
    ratios = OutputRatios()
    for number in range(50):
        for _ in range(ENOUGH):
            ratios.learn("busy", "m", 1300, 1000)
            ratios.learn(f"key{number}", f"m{number}", 1400, 1000)
    assert len(ratios._by_key) == len(ratios._by_model) == 10
    assert ratios.factor("busy", "m") == 1.3


def meter(ratios: OutputRatios, model: str = "m") -> Meter:
    made = Meter(InputRatios(), "k", "public", 400, output_ratios=ratios)
    made.restart(model)
    made.headed = True
    return made


def answered(ratios: OutputRatios, usage: Usage, text: str = LONG) -> None:
    one = meter(ratios)
    one.add(text)
    one.report(usage)
    assert one.final()[1] == "reported"
    one.learn_output()


def test_a_cut_answer_is_counted_as_whole_ones_were_reported() -> None:
    ratios = OutputRatios()
    for _ in range(ENOUGH):
        answered(ratios, Usage(input_tokens=9, output_tokens=COUNTED * 3 // 2))
    one = meter(ratios)
    one.add(LONG)
    assert one.produced() == (Usage(input_tokens=100, output_tokens=COUNTED * 3 // 2), "counted")
    assert one.so_far()[0].output_tokens == COUNTED * 3 // 2
    one.report(Usage(input_tokens=9, output_tokens=500))
    one.add(LONG)
    usage, source = one.produced()
    assert source == "counted"
    assert usage.output_tokens == pytest.approx(500 + COUNTED * 1.5, abs=2)
    other = meter(ratios, "another model")
    other.add(LONG)
    assert other.produced()[0].output_tokens == COUNTED


def test_a_stream_that_runs_keeps_the_factor_that_it_began_with() -> None:
    ratios = ratios_of(1.5, 1.5, 1.5)
    one = meter(ratios)
    one.add(LONG)
    before = one.counted_running()
    for _ in range(LAST):
        ratios.learn("k", "m", 1100, 1000)
    assert one.counted_running() == before == round(COUNTED * 1.5)
    one.restart("m")
    one.add(LONG)
    assert one.counted_running() == round(COUNTED * 1.1)


def test_money_is_asked_for_by_the_right_count() -> None:
    told: list[int] = []
    one = Meter(InputRatios(), "k", "public", 400, told.append, output_ratios=ratios_of(1.5, 1.5, 1.5))
    one.restart("m")
    one.add(LONG)
    assert len(told) == 1
    assert one.counted_running() >= told[0] > COUNTED * 0.7 * 1.5


@pytest.mark.parametrize(
    "more",
    [Usage(reasoning_tokens=40), Usage(output_audio_tokens=40), Usage(output_image_tokens=40)],
    ids=["thoughts", "sound", "pictures"],
)
def test_what_cannot_be_counted_teaches_nothing(more: Usage) -> None:
    ratios = OutputRatios()
    for _ in range(ENOUGH):
        usage = Usage(input_tokens=9, output_tokens=COUNTED * 2)
        usage.reasoning_tokens, usage.output_audio_tokens = more.reasoning_tokens, more.output_audio_tokens
        usage.output_image_tokens = more.output_image_tokens
        answered(ratios, usage)
        answered(ratios, Usage(input_tokens=9, output_tokens=40), text=" few words")
    assert ratios.factor("k", "m") == 1.0
