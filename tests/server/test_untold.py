"""What an answer brings and the client's format has no word for is named: nothing is dropped in silence.

Translation matrix, sections 22, 24 and 25; wire formats page README, "Policy words".
"""

import logging

import pytest

from sluicegate.messages import Format, StreamEvent, Untold
from sluicegate.simulator import Script, Simulator
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import ask
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import heard_stream, path_of, said
from tests.transcripts.crossings import FOLDER
from tests.wire.openai_world import decoded

MODEL = "m"
ANSWER = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"up","stop_sequence":null,"stop_reason":"pause_turn",'
    b'"content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"rivers"}},'
    b'{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]},'
    b'{"type":"text","text":"Rivers rise."}],"usage":{"input_tokens":9,"output_tokens":7}}'
)
OTHERS = [format for format in FORMATS if format != "messages"]


def untold(events: list[StreamEvent]) -> list[str]:
    return [event.what for event in events if isinstance(event, Untold)]


def sse(*payloads: str) -> list[bytes]:
    return [f"data: {payload}\n\n".encode() for payload in payloads]


@pytest.mark.parametrize(
    ("format", "payloads", "names"),
    [
        (
            "responses",
            (
                '{"type":"response.output_item.added","output_index":0,'
                '"item":{"id":"ci_1","type":"code_interpreter_call","status":"in_progress"}}',
                '{"type":"response.output_text.delta","output_index":1,"content_index":0,"item_id":"msg_1","delta":"a"}',
                '{"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}',
            ),
            ["code_interpreter_call"],
        ),
        (
            "gemini",
            (
                '{"candidates":[{"content":{"parts":[{"toolCall":{"id":"1"}},{"text":"a"}]},"finishReason":"CONTINUATION"}]}',
            ),
            ["toolCall", "CONTINUATION"],
        ),
        (
            "messages",
            (
                '{"type":"message_start","message":{"id":"m","role":"assistant","model":"m","content":[]}}',
                '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","citations":[]}}',
                '{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":'
                '{"type":"page_location","cited_text":"a","document_index":0,"start_page_number":1,"end_page_number":2}}}',
                '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}',
                '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}',
                '{"type":"message_stop"}',
            ),
            ["citations"],
        ),
    ],
)
def test_s24_decoders_name_it(format: Format, payloads: tuple[str, ...], names: list[str]) -> None:
    assert untold(decoded(sse(*payloads), format)) == names


@pytest.mark.parametrize("client", OTHERS)
async def test_s24_the_client_or_the_log_is_told(
    start_inprocess: StartInProcess, simulator: Simulator, caplog: pytest.LogCaptureFixture, client: str
) -> None:
    config = make_config(
        simulator,
        providers={"sim": {"base_url": simulator.base_url, "speaks": ["messages"], "auth": "none"}},
        models={MODEL: {"routes": [{"provider": "sim", "model": MODEL}], "price": PRICE}},
    )
    gate = await start_inprocess(config)
    names = ["pause_turn"]
    if client in ("chat", "completions"):  # others have a place for searches
        names = ["server_tool_use", "web_search_tool_result", *names]

    simulator.push(Script(body=ANSWER.decode()))
    response = await ask(
        gate.url, path_of(client, MODEL, False), said(client, MODEL, Prompt(), False), key=KEY
    )
    assert response.status == 200, response.body
    dropped = (response.header("x-sluicegate-dropped") or "").split(", ")
    assert [entry for entry in dropped if entry.endswith(";of the answer")] == [
        f"{name};of the answer" for name in names
    ]

    stream = (FOLDER / "messages" / "paused" / "stream.sse").read_text()
    simulator.push(Script(body=stream, headers=(("content-type", "text/event-stream"),)))
    with caplog.at_level(logging.INFO, "sluicegate"):
        response = await ask(
            gate.url, path_of(client, MODEL, True), said(client, MODEL, Prompt(), True), key=KEY
        )
    heard = heard_stream(client, response, MODEL)
    assert (heard.text, heard.finish) == ("Rivers rise.", "stop")
    told = [record.getMessage() for record in caplog.records if "answer_untold" in record.getMessage()]
    (line,) = [text for text in told if str(response.header("x-request-id")) in text]
    assert all(name in line for name in names)
