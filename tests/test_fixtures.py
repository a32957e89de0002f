"""The fixtures themselves: a request goes through a gate of each kind and is billed."""

from sluicegate.simulator import Answer, Script, Simulator
from tests.conftest import KEY, MODEL, Connect, StartInProcess, make_config
from tests.fakes import ask, chat
from tests.gate import RunningGate
from tests.grammar.chat import check_chat_stream
from tests.inprocess import InProcessGate

PATH = "/v1/chat/completions"
ANSWER = Answer(text=("Hel", "lo"), input_tokens=10, cache_read_tokens=4)
COST_NANO_USD = 6 * 1000 + 4 * 100 + 2 * 2000


async def test_gate_in_the_tests_own_loop(gate_inprocess: InProcessGate, simulator: Simulator) -> None:
    simulator.push(Script(answer=ANSWER))
    body = chat(MODEL, stream_options={"include_usage": True})
    response = await ask(gate_inprocess.url, PATH, body, key=KEY)
    parsed = check_chat_stream(response.body, model=MODEL, usage=True, cost_nano_usd=COST_NANO_USD)
    assert parsed.text == "Hello"
    (row,) = await gate_inprocess.wait_for_rows(1)
    assert (row.status, row.cost_nano_usd) == ("ok", COST_NANO_USD)
    assert simulator.requests[0].produced.output_tokens == row.usage.output_tokens


async def test_gate_as_processes(gate: RunningGate, simulator: Simulator) -> None:
    simulator.push(Script(answer=ANSWER))
    response = await ask(gate.url, PATH, chat(MODEL, stream=False), key=KEY)
    assert response.json()["choices"][0]["message"]["content"] == "Hello"
    assert response.header("x-sluicegate-cost-nano-usd") == str(COST_NANO_USD)


async def test_configuration_can_be_changed(
    start_inprocess: StartInProcess, simulator: Simulator, client: Connect
) -> None:
    config = make_config(
        simulator, stream={"usage_chunk": "always"}, keys=[{"name": "x", "key": KEY * 2, "balance_usd": 1}]
    )
    gate = await start_inprocess(config)
    connection = await client(gate.url)
    refused = await connection.ask(PATH, chat(MODEL), key=KEY)
    assert refused.status == 401
    streamed = await ask(gate.url, PATH, chat(MODEL), key=KEY * 2)
    check_chat_stream(streamed.body, usage=True)
