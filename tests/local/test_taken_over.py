"""A stream that breaks off and that a real model goes on with: it is given the beginning, and takes it for its own."""

from pathlib import Path

import pytest

from sluicegate.local_model import MODEL
from sluicegate.messages import Format
from sluicegate.simulator import Answer, Simulator
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.simulator.script import Play, Reset, Script, Wait
from tests.conftest import KEY, PRICE, make_config
from tests.fakes import ask
from tests.grid.speaking import heard_stream, path_of
from tests.inprocess import in_process_gate

QUESTION = "Count from one to twelve in English words, separated by commas."
BEGINNING = ("one", ",", " two", ",")


@pytest.mark.parametrize(
    ("client", "spoken"), [("chat", "chat"), ("messages", "messages"), ("gemini", "chat")]
)
async def test_a_real_model_goes_on(
    local_model: str, simulator: Simulator, tmp_path: Path, client: Format, spoken: Format
) -> None:
    config = make_config(
        simulator,
        providers={
            "sim": {"speaks": [client]},
            "local": {
                "base_url": f"{local_model}/v1",
                "speaks": [spoken],
                "auth": "none",
                "capabilities": {"continuation": "turn"},
            },
        },
        models={
            "m": {
                "routes": [
                    {"provider": "sim", "model": "m"},
                    {"provider": "local", "model": MODEL, "priority": 1},
                ],
                "price": PRICE,
            }
        },
        stream={"continue_midstream": True},
    )
    answer = Answer(text=(*BEGINNING, " never"), input_tokens=20)
    events = DIALECTS[client].stream(answer, Ask("m"))
    until = next(place for place, event in enumerate(events) if "never" in str(event))
    simulator.push(Script(answer=answer, steps=(Play(stop=until), Wait(s=0.02), Reset())))
    turns = [{"role": "user", "content": QUESTION}]
    body = {
        "chat": {"model": "m", "messages": turns, "stream": True, "max_tokens": 16, "temperature": 0},
        "messages": {"model": "m", "messages": turns, "stream": True, "max_tokens": 16, "temperature": 0},
        "gemini": {
            "contents": [{"role": "user", "parts": [{"text": QUESTION}]}],
            "generationConfig": {"maxOutputTokens": 16, "temperature": 0},
        },
    }[client]
    if client == "chat":
        body["stream_options"] = {"include_usage": True}
    async with in_process_gate(tmp_path, config).running() as gate:
        response = await ask(gate.url, path_of(client, "m", True), body, key=KEY, timeout_s=60.0)
        heard = heard_stream(client, response, "m")
        assert heard.text.startswith("one, two, three")
        row = gate.rows()[-1]
    assert (row.status, row.attempts, row.provider) == ("ok", 2, "local")
    assert heard.usage is not None
    assert heard.usage.output_tokens == row.usage.output_tokens == 16
    assert heard.finish == "length"
