"""The ledger over the admin port of a running gate: who is let in, what moves, what is told; credit follows at once."""

import asyncio
import json
from http.client import HTTPConnection
from typing import Any

from sluicegate.simulator import Simulator
from tests.conftest import KEY, StartGate, make_config
from tests.fakes import ask, chat
from tests.gate import RunningGate

TOKEN = "admin-token-0123456789"
AT = "/api/v1/ledger"


def call(
    gate: RunningGate, method: str, path: str, body: Any = None, token: str | None = TOKEN
) -> tuple[int, Any]:
    """Ask the admin port."""
    connection = HTTPConnection("127.0.0.1", gate.admin_port, timeout=20.0)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(method, AT + path, data, headers)
    response = connection.getresponse()
    answer = response.status, json.loads(response.read() or b"null")
    connection.close()
    return answer


async def test_refunds_and_corrections_of_a_running_gate(simulator: Simulator, start_gate: StartGate) -> None:
    config = make_config(simulator, admin={"token": TOKEN})
    config["keys"] = [{"name": "test", "key": KEY, "balance_usd": "0.001"}]
    gate = await start_gate(config)

    def served() -> tuple[int, Any]:
        return call(gate, "GET", "/verification")

    body = chat("sim-text,tokens=20", stream=False, max_tokens=400)
    answer = await ask(gate.url, "/v1/chat/completions", body, key=KEY)
    assert answer.status == 200
    cost, request_id = int(answer.header("x-sluicegate-cost-nano-usd") or 0), answer.header("x-request-id")
    async with asyncio.timeout(20.0):
        while (await asyncio.to_thread(served))[1]["settlements"] < 1:
            await asyncio.sleep(0.05)
    status, told = await asyncio.to_thread(
        call, gate, "POST", "/refunds", {"request_id": request_id, "note": "slow"}
    )
    assert (status, told["amount_nano_usd"], told["balance_nano_usd"]) == (200, cost, 1_000_000)
    status, told = await asyncio.to_thread(call, gate, "POST", "/refunds", {"request_id": request_id})
    assert (status, told["error"]["code"]) == (400, "bad_request")
    status, told = await asyncio.to_thread(
        call, gate, "POST", "/adjustments", {"account": "test", "amount_nano_usd": -900_000, "reference": "a"}
    )
    assert (status, told["balance_nano_usd"]) == (200, 100_000)
    assert (await ask(gate.url, "/v1/chat/completions", body, key=KEY)).status == 402  # at once
    await asyncio.to_thread(
        call, gate, "POST", "/adjustments", {"account": "test", "amount_nano_usd": 900_000}
    )
    assert (await ask(gate.url, "/v1/chat/completions", body, key=KEY)).status == 200
    status, told = await asyncio.to_thread(call, gate, "GET", "/statements/test")
    assert status == 200
    assert [each["kind"] for each in told["movements"]] == ["bootstrap", "refund", "adjust", "adjust"]
    status, told = await asyncio.to_thread(served)
    assert (status, told["clean"], told["problems"]) == (200, True, [])
    status, noted = await asyncio.to_thread(call, gate, "GET", "/anchors")
    anchor = "{entry}:{hash}".format(**noted["anchors"][-1])
    assert (await asyncio.to_thread(call, gate, "GET", f"/verification?anchor={anchor}"))[1]["clean"]
    assert not (await asyncio.to_thread(call, gate, "GET", f"/verification?anchor=1:{'0' * 64}"))[1]["clean"]

    for method, path, sent, expected in (
        ("POST", "/refunds", b"[", 400),
        ("POST", "/refunds", b"x" * 70_000, 400),
        ("POST", "/refunds", {"request_id": "nobody"}, 400),
        ("POST", "/adjustments", {"account": "test", "amount_nano_usd": 1.5}, 400),
        ("POST", "/adjustments", {"account": "test", "amount_nano_usd": -1, "leased_nano": 0}, 400),
        ("POST", "/adjustments", {"account": "test", "amount_nano_usd": -(10**9)}, 400),
        ("GET", "/statements/nobody", None, 400),
        ("GET", "/statements/test?month=soon", None, 400),
        ("GET", "/verification?anchor=x", None, 400),
    ):
        status, told = await asyncio.to_thread(call, gate, method, path, sent)
        assert (status, set(told)) == (expected, {"error"}), (path, sent, told)
    for wrong in (None, "", "admin-token-012345678", TOKEN + "x"):
        assert (await asyncio.to_thread(call, gate, "GET", "/anchors", None, wrong))[0] == 401
