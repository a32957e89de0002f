"""The simulator plays what it is told and remembers what it was asked."""

import asyncio
import json
import socket
import time
from pathlib import Path

import pytest

from sluicegate.simulator import (
    Answer,
    CutAt,
    Cuts,
    Drip,
    Event,
    Head,
    Play,
    Reset,
    Script,
    Send,
    Simulator,
    SimulatorProcess,
    SimulatorSettings,
    Stall,
    Wait,
)
from tests.conftest import Certificates, Connect, MakeSimulator
from tests.fakes import ask, chat, request_bytes
from tests.grammar.chat import check_chat_stream

PATH = "/v1/chat/completions"
USAGE = {"include_usage": True}


async def test_default_answer_is_a_proper_chat_stream(simulator: Simulator) -> None:
    response = await ask(simulator.url, PATH, chat("m", stream_options=USAGE))
    parsed = check_chat_stream(response.body, model="m", usage=True)
    assert response.complete
    assert parsed.text.startswith(" the of and")
    assert parsed.usage == {"prompt_tokens": 9, "completion_tokens": 32, "total_tokens": 41}


async def test_usage_only_when_asked(simulator: Simulator) -> None:
    response = await ask(simulator.url, PATH, chat("m"))
    check_chat_stream(response.body, usage=False)


async def test_ids_differ_between_answers_and_are_the_same_within_one(simulator: Simulator) -> None:
    first = check_chat_stream((await ask(simulator.url, PATH, chat("m"))).body)
    second = check_chat_stream((await ask(simulator.url, PATH, chat("m"))).body)
    assert first.events[0]["id"] != second.events[0]["id"]


async def test_requests_are_remembered(simulator: Simulator) -> None:
    sent = chat("m", "Grüße", temperature=0.5)
    await ask(simulator.url, PATH + "?a=b", sent, key="secret", headers={"X-Team": "blue"})
    (request,) = simulator.requests
    assert (request.method, request.path, request.query) == ("POST", PATH, "a=b")
    assert request.header("authorization") == "Bearer secret"
    assert request.header("x-team") == "blue"
    assert request.json == sent
    assert request.model == "m"
    assert request.stream
    assert request.ended == "complete"
    assert request.events_sent == 35
    assert request.produced.output_tokens == 32


async def test_keep_alive_and_pipelining(simulator: Simulator, client: Connect) -> None:
    connection = await client(simulator.url)
    connection.send(request_bytes(PATH, chat("one")) + request_bytes(PATH, chat("two", stream=False)))
    first, second = await connection.response(), await connection.response()
    assert b'"model":"one"' in first.body
    assert second.json()["model"] == "two"
    assert [request.connection for request in simulator.requests] == [1, 1]


async def test_pushed_scripts_go_to_the_requests_they_are_meant_for(simulator: Simulator) -> None:
    simulator.push(Script(status=503), model="a")
    simulator.push(Script(answer=Answer(text=("first",))), Script(answer=Answer(text=("second",))))
    simulator.push(Script(status=418), path="/other/", times=None)
    said = [check_chat_stream((await ask(simulator.url, PATH, chat("b"))).body).text for _ in range(3)]
    assert said[:2] == ["first", "second"]
    assert said[2].startswith(" the of")
    assert (await ask(simulator.url, PATH, chat("a"))).status == 503
    assert (await ask(simulator.url, PATH, chat("a"))).status == 200
    assert [(await ask(simulator.url, "/other" + PATH, chat("b"))).status for _ in range(2)] == [418, 418]


async def test_script_in_the_request(simulator: Simulator) -> None:
    script = {"steps": [{"do": "event", "data": "hello"}, {"do": "cutat", "bytes": 20, "how": "end"}]}
    in_body = await ask(simulator.url, PATH, chat("m", sim=script))
    in_header = await ask(simulator.url, PATH, chat("m"), headers={"x-sim-script": json.dumps(script)})
    assert in_body.body == in_header.body == b"data: hello\n\n"
    assert (await ask(simulator.url, PATH, chat("m", sim={"stepz": []}))).status == 400


async def test_pace_is_kept_and_the_first_token_waited_for(simulator: Simulator, client: Connect) -> None:
    simulator.push(Script(answer=Answer(text=("x",) * 20), first_token_s=0.1, interval_s=0.01))
    connection = await client(simulator.url)
    began = time.monotonic()
    await connection.ask(PATH, chat("m"))
    times = [at - began for at, _ in connection.received]
    assert times[0] >= 0.099
    assert 0.29 <= times[-1] <= 0.6
    assert len(times) >= 15


async def test_limits_of_the_request_are_honoured(simulator: Simulator) -> None:
    parsed = check_chat_stream((await ask(simulator.url, PATH, chat("m", max_tokens=5))).body)
    assert parsed.finish == "length"
    assert simulator.requests[-1].produced.output_tokens == 5


async def test_truth_of_a_stream_that_the_peer_left(simulator: Simulator, client: Connect) -> None:
    simulator.push(Script(answer=Answer(text=("x",) * 10, output_tokens=100), steps=(Play(stop=5), Stall())))
    connection = await client(simulator.url)
    connection.send(request_bytes(PATH, chat("m")))
    await connection.until(lambda: connection.raw.count(b"data: ") == 5)
    assert simulator.requests[0].peer_left_at is None
    connection.reset()
    await simulator.wait_for(lambda: simulator.requests[0].peer_left_at is not None)
    (request,) = simulator.requests
    assert request.ended == "peer_left"
    assert request.produced.output_tokens == 40
    assert request.produced.input_tokens == 9


async def test_half_close_counts_as_leaving(simulator: Simulator, client: Connect) -> None:
    simulator.push(Script(steps=(Stall(),)))
    connection = await client(simulator.url)
    connection.send(request_bytes(PATH, chat("m")))
    await simulator.wait_for_requests(1)
    connection.half_close()
    await simulator.wait_for(lambda: simulator.requests[0].ended == "peer_left")


async def test_cut_at_is_exact(simulator: Simulator) -> None:
    for count in (0, 1, 57, 400):
        simulator.push(Script(steps=(CutAt(bytes=count, how="close"), Play())))
        response = await ask(simulator.url, PATH, chat("m"))
        assert len(response.body) == count
        assert not response.complete


async def test_cuts_and_drips_change_no_byte(simulator: Simulator, client: Connect) -> None:
    answer = Answer(text=("naïve ", "日本語", "👩‍👩‍👧"))
    steps = (Drip(bytes=3), Cuts(at=(1, 250), every=11, gap_s=0.0))
    simulator.push(Script(answer=answer, steps=(*steps, Play())))
    connection = await client(simulator.url)
    response = await connection.ask(PATH, chat("m"))
    assert check_chat_stream(response.body).text == "naïve 日本語👩‍👩‍👧"
    assert all(len(chunk) <= 11 for chunk in response.chunks)
    assert len(connection.received) > 50


async def test_head_alone_and_early(simulator: Simulator, client: Connect) -> None:
    simulator.push(Script(steps=(Head(drip=10, every_s=0.001), Wait(s=0.05), Play())))
    connection = await client(simulator.url)
    connection.send(request_bytes(PATH, chat("m")))
    response = await connection.response()
    assert connection.time_of(b"data: ") - connection.time_of(b"\r\n\r\n") > 0.045
    assert response.complete


async def test_own_head_wrong_length_and_http10(simulator: Simulator) -> None:
    simulator.push(
        Script(status=201, reason="Odd", headers=(("x-a", "b"), ("content-type", "")), content_length=5),
        Script(http10=True),
        Script(framing="length"),
    )
    odd = await ask(simulator.url, PATH, chat("m"))
    assert (odd.status, odd.reason, odd.header("x-a"), odd.header("content-type")) == (201, "Odd", "b", None)
    assert odd.header("content-length") == "5"
    old = await ask(simulator.url, PATH, chat("m"))
    assert old.version == "HTTP/1.0"
    check_chat_stream(old.body)
    fixed = await ask(simulator.url, PATH, chat("m"))
    assert fixed.complete
    check_chat_stream(fixed.body)


async def test_refuse_and_listen_again(simulator: Simulator) -> None:
    await simulator.refuse()
    with pytest.raises(ConnectionRefusedError):
        await ask(simulator.url, PATH, chat("m"))
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", simulator.port))
    await simulator.start()
    assert (await ask(simulator.url, PATH, chat("m"))).status == 200


async def test_after_a_wait_the_peer_has_read_what_was_sent_though_the_loop_was_held_up(
    simulator: Simulator,
) -> None:
    simulator.push(Script(steps=(Send(text="before"), Wait(s=0.01), Send(text="after"))))
    loop = asyncio.get_running_loop()
    busy = asyncio.create_task(_turn_on())
    theirs, ours = socket.socketpair()
    with theirs, ours, socket.create_connection(("127.0.0.1", simulator.port)) as peer:
        await simulator.wait_for(lambda: bool(simulator.connections))
        loop.add_reader(ours, lambda: time.sleep(0.05) if ours.recv(1) else None)
        peer.setblocking(False)
        reading = asyncio.create_task(loop.sock_recv(peer, 1 << 16))
        await asyncio.sleep(0.01)
        peer.send(request_bytes(PATH, chat("m")))
        theirs.send(b"x")  # the loop is held up in the turn that reads the request
        first = await reading
        loop.remove_reader(ours)
    busy.cancel()
    assert b"before" in first
    assert b"after" not in first


async def _turn_on() -> None:
    while True:
        await asyncio.sleep(0)


async def test_scripts_that_begin_before_the_request(simulator: Simulator, client: Connect) -> None:
    simulator.push(Script(when="accept", steps=(Reset(),)))
    connection = await client(simulator.url)
    assert await connection.until_closed() == "reset"
    simulator.push(Script(when="head", status=401))
    connection = await client(simulator.url)
    connection.send(request_bytes(PATH, chat("m"))[:-20])  # its body never comes whole
    assert (await connection.response()).status == 401


async def test_slow_reading_of_the_request(simulator: Simulator, client: Connect) -> None:
    simulator.push(Script(when="accept", read_bytes_per_s=1_000_000))
    connection = await client(simulator.url)
    began = time.monotonic()
    response = await connection.ask(PATH, chat("m", "x" * 300_000))
    assert response.status == 200
    assert time.monotonic() - began > 0.2


async def test_answers_per_connection(make_simulator: MakeSimulator, client: Connect) -> None:
    simulator = await make_simulator(answers_per_connection=2)
    connection = await client(simulator.url)
    await connection.ask(PATH, chat("m"))
    assert connection.ended is None
    await connection.ask(PATH, chat("m"))
    assert await connection.until_closed() == "fin"


async def test_idle_connections_are_closed(make_simulator: MakeSimulator, client: Connect) -> None:
    simulator = await make_simulator(idle_close_s=0.05)
    connection = await client(simulator.url)
    assert await connection.until_closed() == "fin"


async def test_a_slow_reader_pauses_it(simulator: Simulator, client: Connect) -> None:
    connection = await client(simulator.url, receive_buffer_bytes=4096)
    connection.pause()
    connection.send(request_bytes(PATH, chat("sim-flood")))
    await simulator.wait_for_requests(1)
    await asyncio.sleep(0.1)
    sent = simulator.requests[0].events_sent
    await asyncio.sleep(0.1)
    assert simulator.requests[0].events_sent == sent
    connection.resume()
    await simulator.wait_for(lambda: simulator.requests[0].events_sent > sent)


async def test_stamped_events_tell_when_they_were_sent(make_simulator: MakeSimulator) -> None:
    simulator = await make_simulator(stamped=True, tokens=3, interval_s=0.01)
    began = time.monotonic_ns()
    parsed = check_chat_stream((await ask(simulator.url, PATH, chat("m"))).body)
    stamps = [int(word) for word in parsed.text.split()]
    assert began < stamps[0] < stamps[1] < stamps[2] < time.monotonic_ns()


async def test_tls(make_simulator: MakeSimulator, certificates: Certificates) -> None:
    simulator = await make_simulator(tls_cert_file=certificates.cert_file, tls_key_file=certificates.key_file)
    assert simulator.url.startswith("https://")
    response = await ask(simulator.url, PATH, chat("m"), ca_file=certificates.ca_file)
    check_chat_stream(response.body)
    simulator.push(Script(steps=(Play(stop=2), Reset())))
    cut = await ask(simulator.url, PATH, chat("m"), ca_file=certificates.ca_file)
    assert not cut.complete


async def test_control_paths(simulator: Simulator) -> None:
    rule = {"script": {"steps": [{"do": "send", "text": "raw"}]}, "model": "x"}
    assert (await ask(simulator.url, "/_sim/scripts", rule)).status == 200
    assert (await ask(simulator.url, PATH, chat("x"))).body == b"raw"
    remembered = (await ask(simulator.url, "/_sim/requests")).json()
    assert [request["model"] for request in remembered] == ["x"]
    assert remembered[0]["json"]["messages"][0]["content"] == "Hello"
    assert (await ask(simulator.url, "/_sim/scripts", {"wrong": 1})).status == 400
    await ask(simulator.url, "/_sim/requests", method="DELETE")
    assert (await ask(simulator.url, "/_sim/requests")).json() == []
    assert (await ask(simulator.url, "/")).status == 200


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/v1/messages/count_tokens", "input_tokens"),
        ("/v1/responses/input_tokens", "input_tokens"),
        ("/v1beta/models/org/m:countTokens", "totalTokens"),
    ],
)
async def test_token_counts(simulator: Simulator, path: str, key: str) -> None:
    assert (await ask(simulator.url, path, {"model": "m"})).json() == {key: 9}


@pytest.mark.parametrize("path", ["/v1/unknown", "/v1/chat"])
async def test_unknown_paths(simulator: Simulator, path: str) -> None:
    assert (await ask(simulator.url, path, {"model": "m"})).status == 404


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": 1}', b"\xff"])
async def test_bad_requests(simulator: Simulator, body: bytes) -> None:
    response = await ask(simulator.url, PATH, body)
    assert response.status == 400
    assert "message" in response.json()["error"]


def test_process(tmp_path: Path) -> None:
    with SimulatorProcess(SimulatorSettings(tokens=3)) as simulator:
        simulator.push(Script(answer=Answer(text=("hi",), finish="length")))

        async def twice() -> list[bytes]:
            return [(await ask(simulator.url, PATH, chat("m"))).body for _ in range(2)]

        first, second = asyncio.run(twice())
        assert check_chat_stream(first).text == "hi"
        assert check_chat_stream(second).text == " the of and"
        assert [request["produced"]["output_tokens"] for request in simulator.requests()] == [1, 3]
        assert simulator.state()["connections_made"] >= 2
        simulator.clear()
        assert simulator.requests() == []


async def test_events_of_our_own(simulator: Simulator) -> None:
    simulator.push(Script(steps=(Event(event="ping", data="{}"), Play(skip=("usage", "end")))))
    response = await ask(simulator.url, PATH, chat("m", stream_options=USAGE))
    assert response.body.startswith(b"event: ping\ndata: {}\n\ndata: ")
    assert b"[DONE]" not in response.body
    assert b"prompt_tokens" not in response.body
