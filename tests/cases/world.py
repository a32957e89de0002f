"""One gate in front of one scripted provider that speaks every format; every case is a model of its own.

`hear` asks as a client of one format and returns what it heard, in words that are the same for all five.
"""

import random
from typing import Any, Literal, NamedTuple

from sluicegate.billing.ledger import UsageRow
from sluicegate.simulator import Close, Cuts, Received, Reset, Script, Send, Simulator, Wait
from sluicegate.simulator.script import AnyStep
from tests.conftest import KEY, PRICE, make_config
from tests.fakes import Response, ask
from tests.grid.scenes import CLOCK, FORMATS, LEVEL, Prompt
from tests.grid.speaking import Heard, Told, heard_plain, heard_stream, path_of, said, told_error, told_inside
from tests.inprocess import InProcessGate

Cut = Literal["whole", "bytes", "random"]
How = Literal["end", "reset", "close"]
"""A proper end of the body; RST; FIN without the end of the chunked body."""
TOOLS = Prompt(tools=(LEVEL, CLOCK))
THINKS = Prompt(reasoning=True)
THINKS_AND_CALLS = Prompt(reasoning=True, tools=(LEVEL, CLOCK))
CLOCKS = {
    "first_token_timeout": "5s",
    "idle_timeout": "5s",
    "response_timeout": "5s",
    "total_timeout": "10s",
    "usage_wait": "200ms",
}


def configuration(simulator: Simulator, **changes: Any) -> dict[str, Any]:
    """Return a configuration in which `FORMAT/anything` is a model at a provider of that format."""
    providers = {
        format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"} for format in FORMATS
    }
    models = {
        f"{format}/*": {
            "routes": [{"provider": format, "model": "*"}],
            "price": PRICE,
            "capabilities": {"reasoning": "budget" if format in ("messages", "gemini") else "effort"},
        }
        for format in FORMATS
    }
    config = make_config(simulator, retry={"max_attempts": 1, "after_send": 0}, stream=CLOCKS)
    keys = [{"name": "test", "key": KEY, "balance_usd": 5000}]
    return config | {"providers": providers, "models": models, "keys": keys} | changes


class Outcome(NamedTuple):
    """What one client got."""

    response: Response
    heard: Heard | None
    """None: it was refused with an error's status."""
    told: Told | None
    """The error, before or inside the answer."""
    row: UsageRow | None


class World(NamedTuple):
    """A running gate and its provider."""

    gate: InProcessGate
    simulator: Simulator

    @property
    def asked(self) -> Received:
        """The last request that the provider got."""
        return self.simulator.requests[-1]

    def plays(
        self,
        model: str,
        body: bytes,
        cut: Cut = "whole",
        how: How = "end",
        *,
        then: bytes = b"",
        pause: bool = False,
        **script: Any,
    ) -> None:
        """Let the provider answer a model with these bytes from now on, in these pieces.

        Args:
            then: bytes that follow at the end, after a moment if `pause`.
        """
        steps: list[AnyStep] = []
        if cut == "bytes":
            steps.append(Cuts(every=1, gap_s=0))
        elif cut == "random":
            chance = random.Random(model)
            count = min(len(body) // 4, 60)
            steps.append(Cuts(at=tuple(sorted(chance.sample(range(1, len(body)), count))), gap_s=0))
        steps.append(Send(data=body))
        if pause:
            steps.append(Wait(s=0.01))
        if then:
            steps.append(Send(data=then))
        if how != "end":
            steps.append(Reset() if how == "reset" else Close())
        self.simulator.push(Script(steps=tuple(steps), **script), model=model, times=None)

    async def post(self, client: str, model: str, prompt: Prompt, *, stream: bool, **fields: Any) -> Response:
        """Ask as a client of a format."""
        body = said(client, model, prompt, stream) | fields
        return await ask(self.gate.url, path_of(client, model, stream), body, key=KEY)

    async def hear(self, client: str, model: str, prompt: Prompt, *, stream: bool) -> Outcome:
        """Ask, check the answer's grammar, and return what it said."""
        response = await self.post(client, model, prompt, stream=stream)
        rows = [row for row in self.gate.rows() if row.request_id == response.header("x-request-id")]
        assert len(rows) <= 1, "charged twice"
        row = rows[0] if rows else None
        if response.status != 200:
            return Outcome(response, None, told_error(client, response), row)
        if not stream:
            return Outcome(response, heard_plain(client, response, model), None, row)
        assert response.complete, "the connection was aborted"
        fails = b'"error":{' in response.body
        heard = heard_stream(client, response, model, fails=fails)
        return Outcome(response, heard, told_inside(client, heard.error) if fails else None, row)
