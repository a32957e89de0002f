"""A provider with another vocabulary than ours: its whole answers teach what a cut one is charged for."""

import pytest

from sluicegate.billing.output_ratios import ENOUGH
from sluicegate.messages import Format
from sluicegate.simulator import Script, Simulator
from sluicegate.simulator.answer import Answer, of_tokens
from sluicegate.simulator.script import Play, Reset
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import ask, chat

TOKENS = 400
"""Of ours, a word each; the provider tells half as many again."""


@pytest.mark.parametrize("format", ["chat", "messages"])
async def test_a_cut_stream_is_charged_by_the_vocabulary_of_its_model(
    start_inprocess: StartInProcess, simulator: Simulator, format: Format
) -> None:
    provider = {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
    gate = await start_inprocess(
        make_config(
            simulator,
            providers={"sim": provider},
            models={"m": {"routes": [{"provider": "sim", "model": "up"}], "price": PRICE}},
        )
    )
    whole = of_tokens(TOKENS)
    cut = Script(answer=whole, steps=(Play(before="finish"), Reset()))
    body = chat("m", stream=True, max_tokens=4096)

    async def charged(script: Script) -> tuple[int | None, str]:
        simulator.push(script)
        before = len(gate.rows())
        await ask(gate.url, "/v1/chat/completions", body, key=KEY)
        *_, row = await gate.wait_for_rows(before + 1)
        return row.usage.output_tokens, row.usage_source

    assert await charged(cut) == (TOKENS, "counted")
    told = Script(answer=Answer(text=whole.text, output_tokens=TOKENS * 3 // 2))
    for _ in range(ENOUGH):
        assert await charged(told) == (TOKENS * 3 // 2, "reported")
    assert await charged(cut) == (TOKENS * 3 // 2, "counted")


async def test_a_picture_in_a_cut_request_is_not_charged_by_its_bytes(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    gate = await start_inprocess(make_config(simulator))
    simulator.push(Script(answer=of_tokens(4), steps=(Play(before="finish"), Reset())))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 100_000}}
    body = chat("m", stream=True) | {"messages": [{"role": "user", "content": [picture]}]}
    await ask(gate.url, "/v1/chat/completions", body, key=KEY)
    (row,) = await gate.wait_for_rows(1)
    assert (row.usage.output_tokens, row.usage_source) == (4, "counted")
    assert row.usage.input_tokens is not None
    assert 1_000 < row.usage.input_tokens < 2_000


async def test_what_a_request_only_named_does_not_make_the_next_one_dearer(
    start_inprocess: StartInProcess, simulator: Simulator
) -> None:
    """A kept conversation or a file by its id is thousands of tokens in a request of a hundred bytes."""
    gate = await start_inprocess(make_config(simulator))
    simulator.push(Script(answer=Answer(text=(" a",), input_tokens=50_000)))
    await ask(gate.url, "/v1/chat/completions", chat("m", stream=True), key=KEY)
    simulator.push(Script(answer=of_tokens(4), steps=(Play(before="finish"), Reset())))
    body = chat("m", stream=True) | {"messages": [{"role": "user", "content": "word " * 8_000}]}
    await ask(gate.url, "/v1/chat/completions", body, key=KEY)
    *_, row = await gate.wait_for_rows(2)
    assert row.usage_source == "counted"
    assert row.usage.input_tokens == pytest.approx(10_000, rel=0.02), "it had been 20,000,000"
