"""Every fault of the simulator's catalogue behind a gate: no hang, no false end, one row. Contract E1-E4.

All of them run at once in one gate, alone and with a healthy second route behind. What must hold is the same for all:
within its clocks the client has the whole answer, or an error in its format; the row says which; the provider's side is
closed; and what a second route could mend is mended.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from sluicegate.billing.ledger import UsageRow
from sluicegate.simulator import Simulator
from sluicegate.simulator.faults import FAULTS
from tests.conftest import KEY, PRICE, StartInProcess, make_config
from tests.fakes import Response, ask, chat
from tests.grammar.chat import check_chat_stream

PATH = "/v1/chat/completions"
CLOCKS = {
    "connect_timeout": "1s",
    "first_token_timeout": "2s",
    "idle_timeout": "2s",
    "response_timeout": "2s",
    "total_timeout": "5s",
    "max_event_bytes": 4 << 20,
}
MAX_ATTEMPTS = 3
"""The default of `retry.max_attempts`, of one request."""
LIMIT_S = 9.0
"""Two attempts at their longest, with room for a busy machine."""

STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529)
HEAVY = ("1xx-storm", "endless", "huge")
"""They keep the loop, which the client shares here, busy: tried after the others."""
LIGHT = (*sorted(FAULTS.keys() - {*HEAVY, "flood"}), *map(str, STATUSES))
WORDS = (*LIGHT, *HEAVY)
REJECTED = {"400", "413", "422"}
"""The client's own fault: told at once, never sent elsewhere."""
HARMLESS = {
    "1xx", "after-done", "close", "close-framed", "comments", "cuts", "done-twice", "drip", "hang-up", "http10",
    "huge", "json", "latin1", "long-length", "negative-usage", "no-finish", "no-marker", "no-type", "no-usage",
    "not-utf8", "open", "reset-done", "slow-head",
}  # fmt: skip
"""Odd, but a stream's whole answer is there, and its end."""
HARMLESS_PLAIN = {
    "1xx", "after-done", "close", "close-framed", "cuts", "drip", "hang-up", "http10", "json", "latin1",
    "negative-usage", "no-finish", "no-type", "no-usage", "slow-head",
}  # fmt: skip
MENDED = {
    "1xx-storm", "cut-head", "end-only", "error-first", "error-json", "error-text", "garbage", "gone", "half-head",
    "head-only", "html", "html-502", "empty-502", "nothing", "redirect", "reset-first", "silent", "slow", "early-head",
    *(str(status) for status in STATUSES if str(status) not in REJECTED),
}  # fmt: skip
"""They fail before any content, so that the second route must answer."""
ANSWER = " the of and to in"
"""How every whole answer begins."""


class Outcome(NamedTuple):
    """What a client had in hand."""

    whole: bool
    text: str
    status: int
    told: str
    """The error's message, or `aborted` where the connection was."""
    took_s: float


def config_of(simulator: Simulator) -> dict[str, Any]:
    """Return a configuration in which `alone-WORD` and `backed-WORD` are models, each fault with a provider."""
    provider = {"base_url": simulator.base_url, "speaks": ["chat"], "auth": "none"}
    models: dict[str, Any] = {}
    providers: dict[str, Any] = {"spare": provider}
    for word in WORDS:
        for kind in ("alone", "backed"):
            providers[f"{kind}-{word}"] = provider
            fault = {"provider": f"{kind}-{word}", "model": f"sim-{word},s=6"}
            spare = [{"provider": "spare", "model": "sim-text", "priority": 1}] if kind == "backed" else []
            models[f"{kind}-{word}"] = {"routes": [fault, *spare], "price": PRICE}
    return make_config(simulator, models=models, providers=providers, stream=CLOCKS)


def streamed(response: Response, took_s: float) -> Outcome:
    """Check a streamed answer."""
    if response.status != 200:
        return failed(response, took_s)
    if not response.complete:
        return Outcome(False, "", 200, "aborted", took_s)
    parsed = check_chat_stream(response.body, end=None)
    told = "" if parsed.error is None else parsed.error["message"]
    return Outcome(parsed.error is None, parsed.text, 200, told, took_s)


def plain(response: Response, took_s: float) -> Outcome:
    """Check an answer that was not streamed."""
    if response.status != 200:
        return failed(response, took_s)
    if not response.complete:
        return Outcome(False, "", 200, "aborted", took_s)
    message = response.json()["choices"][0]["message"]
    return Outcome(True, message["content"], 200, "", took_s)


def failed(response: Response, took_s: float) -> Outcome:
    """Check an error that came before the answer."""
    error = response.json()["error"]
    assert {"message", "type", "code", "param"} <= error.keys(), f"not the error's shape: {error}"
    assert error["message"], "no message"
    assert response.complete
    return Outcome(False, "", response.status, error["message"], took_s)


def judge(word: str, backed: bool, harmless: set[str], outcome: Outcome, row: UsageRow) -> None:
    """Check one outcome against what its fault allows, and its row against both."""
    assert outcome.took_s < LIMIT_S, f"took {outcome.took_s:.1f} s"
    if outcome.whole:
        assert outcome.text.lstrip("x").startswith(ANSWER), f"a false end: {outcome.text[:99]!r}"
        assert row.status == "ok", f"the row says {row.status}"
        assert row.usage.output_tokens, "nothing was counted"
        assert row.cost_nano_usd == row.list_cost_nano_usd > 0, "the charge is wrong"
    elif word in REJECTED:
        assert outcome.status in (400, 413, 422), f"status {outcome.status}"
        assert row.status == "rejected", f"the row says {row.status}"
    else:
        assert row.status == "upstream_error", f"the row says {row.status}"
        assert outcome.status == 200 or outcome.status in (429, 502, 503, 504), f"status {outcome.status}"
    if word in harmless:
        assert outcome.whole, f"an answer was there, yet: {outcome}"
        assert row.attempts == 1, f"{row.attempts} attempts"
    elif word in REJECTED or not backed:
        assert not outcome.whole, "a false end"
    elif word in MENDED:
        assert outcome.whole, f"a second route was there, yet: {outcome}"
        assert 2 <= row.attempts <= MAX_ATTEMPTS, f"{row.attempts} attempts"
    elif not outcome.whole:
        assert outcome.text, f"nothing had left, and a second route was there: {outcome}"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("kind", ["alone", "backed"])
async def test_every_fault(
    start_inprocess: StartInProcess, simulator: Simulator, kind: str, stream: bool
) -> None:
    gate = await start_inprocess(config_of(simulator))
    read: Callable[[Response, float], Outcome] = streamed if stream else plain
    harmless = HARMLESS if stream else HARMLESS_PLAIN
    wrong: dict[str, str] = {}

    async def try_fault(word: str) -> Outcome | None:
        began = time.monotonic()
        try:
            body = chat(f"{kind}-{word}", stream=stream)
            response = await ask(gate.url, PATH, body, key=KEY, timeout_s=LIMIT_S)
            return read(response, time.monotonic() - began)
        except (AssertionError, TimeoutError, ValueError, KeyError, TypeError, ConnectionError) as error:
            wrong[word] = f"{type(error).__name__}: {error}"
            return None

    trials: list[Awaitable[Outcome | None]] = [try_fault(word) for word in LIGHT]
    outcomes = dict(zip(LIGHT, await asyncio.gather(*trials), strict=True))
    for word in HEAVY:
        outcomes[word] = await try_fault(word)
    rows = await gate.wait_for_rows(len(WORDS))
    await simulator.wait_for(lambda: all(request.ended is not None for request in simulator.requests))
    for word, outcome in outcomes.items():
        if outcome is None:
            continue
        mine = [row for row in rows if row.model == f"{kind}-{word}"]
        try:
            assert len(mine) == 1, f"{len(mine)} rows"
            judge(word, kind == "backed", harmless, outcome, mine[0])
        except AssertionError as error:
            wrong[word] = str(error).splitlines()[0]
    assert not wrong, "\n".join(f"{word}: {what}" for word, what in sorted(wrong.items()))


async def test_flood_ends_with_the_total_clock(start_inprocess: StartInProcess, simulator: Simulator) -> None:
    gate = await start_inprocess(make_config(simulator, stream=CLOCKS | {"total_timeout": "1s"}))
    response = await ask(gate.url, PATH, chat("sim-flood"), key=KEY, timeout_s=LIMIT_S)
    assert response.complete
    assert response.chunks[-1].rpartition(b"data: ")[2].startswith(b'{"error":')
    assert b"[DONE]" not in response.body[-1000:]
    (row,) = await gate.wait_for_rows(1)
    assert (row.status, row.attempts) == ("upstream_error", 1)
    await simulator.wait_for(lambda: simulator.requests[0].ended == "peer_left")
