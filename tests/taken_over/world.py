"""A gate whose providers break off, or go on with, what others began: the first says the beginning of a sentence and
fails; the second, asked with that beginning, says the rest. There is one truth for the money of both.
"""

from typing import Any, NamedTuple

from sluicegate.billing.ledger import UsageRow
from sluicegate.messages import Format
from sluicegate.simulator import Answer, Received, Simulator
from sluicegate.simulator.formats import DIALECTS, Ask
from sluicegate.simulator.script import AnyStep, Close, Error, Play, Reset, Script, Stall, Wait
from tests.conftest import KEY, PRICE, make_config
from tests.fakes import Response, ask
from tests.grid.scenes import FORMATS, TEXT, Prompt
from tests.grid.speaking import Heard, heard_stream, path_of, said
from tests.inprocess import InProcessGate

SAID = 4
"""Pieces of the text that the first provider says."""
INPUT = 40
INPUT_NANO, OUTPUT_NANO = 1_000, 2_000
COST = INPUT * INPUT_NANO + len(TEXT) * OUTPUT_NANO
"""Of the whole answer, whoever says which part of it."""
OTHER: dict[Format, Format] = {
    "chat": "messages",
    "completions": "chat",
    "responses": "gemini",
    "messages": "chat",
    "gemini": "messages",
}
"""A first provider that speaks another format than the client."""
FAULTS: dict[str, tuple[AnyStep, ...]] = {
    "cut": (Reset(),),
    "closed": (Close(),),
    "ended": (),
    "error": (Error(status=500),),
    "stall": (Stall(),),
}
WHOLE = "".join(TEXT)


def events_until(format: Format, answer: Answer, pieces: int) -> int:
    """Return how many events of a provider's stream hold so many pieces of content."""
    weight = 0
    for place, piece in enumerate(DIALECTS[format].stream(answer, Ask("m"))):
        weight += piece.weight
        if weight >= pieces:
            return place + 1
    raise AssertionError("the answer is too short")


def broken(format: Format, fault: str, answer: Answer | None = None, pieces: int = SAID) -> Script:
    """Return the first provider's part."""
    answer = answer or Answer(text=TEXT, input_tokens=INPUT)
    until = events_until(format, answer, pieces)
    return Script(answer=answer, steps=(Play(stop=until), Wait(s=0.02), *FAULTS[fault]))


def rest(text: tuple[str, ...] = TEXT[SAID:], **fields: Any) -> Script:
    """Return the second provider's part: its prompt is what the client said, and the beginning of the answer."""
    return Script(answer=Answer(text=text, **{"input_tokens": INPUT + SAID, **fields}))


class World(NamedTuple):
    """A gate whose models go to `first`, and to `second` where that fails."""

    gate: InProcessGate
    first: Simulator
    second: Simulator

    async def ask(self, client: Format, model: str, **fields: Any) -> Response:
        body = said(client, model, Prompt(system=None), True) | fields
        return await ask(self.gate.url, path_of(client, model, True), body, key=KEY, timeout_s=8.0)

    def row(self) -> UsageRow:
        """Return the newest row."""
        return self.gate.rows()[-1]

    def costs(self) -> list[tuple[int, str, str]]:
        """Return what the operator bears of the last request."""
        row = self.gate.rows()[-1]
        return [
            (cost.attempt, cost.provider, cost.reason)
            for cost in self.gate.provider_costs()
            if cost.request_id == row.request_id
        ]

    def asked(self) -> Received:
        """Return what the second provider was asked last."""
        return self.second.requests[-1]


def model_of(first: str, second: str) -> str:
    """Return the model that goes to a provider of each format."""
    return f"{first}-{second}"


POOR = {client: f"sg-test-key-poor-{client}-0123" for client in ("chat", "responses")}
POOR_NANO = 8_000_000
"""What its account has: 4,000 output tokens."""
STYLES = ("turn", "prefix", "final_message", "none")


def configuration(first: Simulator, second: Simulator) -> dict[str, Any]:
    """Return a configuration with a model for every pair of providers."""

    def provider(simulator: Simulator, format: str, **more: Any) -> dict[str, Any]:
        return {"base_url": simulator.base_url, "speaks": [format], "auth": "none", **more}

    providers: dict[str, Any] = {}
    for format in FORMATS:
        providers[f"first-{format}"] = provider(first, format, stream={"idle_timeout": "250ms"})
        providers[f"second-{format}"] = provider(second, format, stream={"first_token_timeout": "1s"})
    providers["second-chat"]["capabilities"] = {"continuation": "turn"}
    for style in STYLES:
        abilities = {} if style == "none" else {"continuation": style}
        providers[f"second-{style}"] = provider(second, "chat", capabilities=abilities)
    providers["gone"] = provider(first, "chat", capabilities={"continuation": "turn"})
    providers["gone"]["base_url"] = "http://127.0.0.1:1/v1"

    def routes(*names: str) -> list[dict[str, Any]]:
        return [{"provider": name, "model": "up", "priority": place} for place, name in enumerate(names)]

    models: dict[str, Any] = {
        model_of(one, other): {"routes": routes(f"first-{one}", f"second-{other}"), "price": PRICE}
        for one in FORMATS
        for other in (*FORMATS, *STYLES)
    }
    models["off"] = {
        "routes": routes("first-chat", "second-chat"),
        "price": PRICE,
        "stream": {"continue_midstream": False},
    }
    models["by-provider"] = models["off"] | {"routes": routes("eager", "second-chat")}
    del models["by-provider"]["stream"]
    providers["eager"] = provider(first, "chat", stream={"continue_midstream": True})
    models["past-one"] = {"routes": routes("first-chat", "gone", "second-chat"), "price": PRICE}
    providers["second-limited"] = provider(second, "messages")
    models["limited"] = {"routes": routes("first-chat", "second-limited"), "price": PRICE}
    models["limited"]["routes"][1]["rpm"] = 1
    models["alone"] = {"routes": routes("first-chat"), "price": PRICE}
    return make_config(
        first,
        providers=providers,
        models=models,
        stream={"continue_midstream": True, "idle_timeout": "3s"},
        health={"failures": 1000, "min_requests": 1_000_000},
        retry={"budget_percent": 100},
        keys=[
            {"name": "test", "key": KEY, "balance_usd": 5, "may_override": True},
            *(
                {"name": name, "key": key, "balance_usd": str(POOR_NANO / 10**9)}
                for name, key in POOR.items()
            ),
        ],
    )


def check_broken(world: World, client: Format, model: str, response: Response) -> Heard:
    """Check that a stream ended with one error, and that the second provider was not asked."""
    assert not world.second.requests
    assert response.header("x-sluicegate-attempts") == "1"
    return heard_stream(client, response, model, fails=True)
