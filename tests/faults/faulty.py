"""The faults of the grid: all that the simulator's catalogue has, statuses, and providers that cannot be reached.

Which of them are harmless, which fail before any content (so that another route must answer), and which are the
client's own, is said here once, for clients of every format. What must hold is the same for all: within its clocks a
client has the whole answer, or an error in its format; the row says which; and what a second route could mend is
mended.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from sluicegate.billing.ledger import UsageRow
from sluicegate.simulator import Simulator, SimulatorSettings
from sluicegate.simulator.answer import of_tokens
from sluicegate.simulator.faults import FAULTS
from tests.conftest import PRICE, Certificates, make_config
from tests.gate import held_port

FORMATS = ("chat", "completions", "responses", "messages", "gemini")
CLOCKS = {
    "connect_timeout": "1s",
    "first_token_timeout": "2s",
    "idle_timeout": "2s",
    "response_timeout": "2s",
    "total_timeout": "5s",
    "usage_wait": "500ms",
    "max_event_bytes": 4 << 20,
}
MAX_ATTEMPTS = 3
"""The default of `retry.max_attempts`, of one request."""
LIMIT_S = 9.0
"""Two attempts at their longest, with room for a busy machine."""

STATUSES = (
    "400",
    "401",
    "402",
    "403",
    "404",
    "408",
    "409",
    "413",
    "422",
    "429",
    "500",
    "502",
    "503",
    "504",
    "529",
)
PATIENCE = ("429-after", "503-after", "529-after")
"""With a `retry-after`."""
UNREACHABLE = ("refused", "no-name", "not-tls", "stranger", "tls-silent")
"""Nothing listens; its name is nobody's; it speaks no TLS; its certificate is nobody's we know; TLS never begins."""
HEAVY = ("1xx-storm", "cuts", "drip", "endless", "huge", "slow-head")
"""They keep the loop, which the client shares here, busy, or want it to be free: tried after the others."""
ALONE = (*HEAVY, "short-length")
"""Tried one after another. The last sends more than it announces, which a connection that is used again at once takes
for the next answer.
"""
LIGHT = (*sorted(FAULTS.keys() - {*HEAVY, "flood"}), *STATUSES, *PATIENCE, *UNREACHABLE)
WORDS = (*LIGHT, *HEAVY)
WAITS = ("early-head", "half-head", "head-only", "silent", "slow", "stall", "stall-mid", "tls-silent")
"""They last as long as a clock, and cost the processor nothing meanwhile."""
KINDS = ("alone", "backed")
"""All attempts fail; a healthy second route is behind."""

REJECTED = {"400", "413", "422"}
"""The client's own fault: told at once, never sent elsewhere."""
TOKENS = 16
ANSWER = "".join(of_tokens(TOKENS).text)
"""Every whole answer."""

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
NO_FAULT = {"responses": ("end-only", "huge"), "gemini": ("end-only",)}
"""Their last event is an answer by itself; and Responses repeats all text at the end, which `huge` does not."""
HARMFUL = {
    "responses": {"no-marker"},  # the terminal event is the answer's status
    "messages": {"no-marker"},
    "gemini": {
        "after-done",
        "no-finish",
    },  # it has no marker: the finish is its end, and no finish where more follows
}
"""What is no harm to chat's streams, but to those of another format."""
MENDED = {
    "1xx-storm", "cut-head", "end-only", "error-first", "error-json", "error-text", "garbage", "gone", "half-head",
    "head-only", "html", "html-502", "empty-502", "nothing", "redirect", "reset-first", "silent", "slow", "early-head",
    *PATIENCE, *UNREACHABLE, *(status for status in STATUSES if status not in REJECTED),
}  # fmt: skip
"""They fail before any content, so that the second route must answer."""


class Outcome(NamedTuple):
    """What a client had in hand."""

    whole: bool
    text: str
    status: int
    told: str
    """The error's message, or `aborted` where the connection was."""
    took_s: float


class Faulty(NamedTuple):
    """Providers that fail, each in its way."""

    simulator: Simulator
    secure: Simulator
    """Speaks TLS, with a certificate that nobody has been told of."""
    silent: int
    """A port of a provider that takes connections and never says a word."""
    closed: int
    """A port where nothing listens."""

    def base_url(self, word: str) -> str:
        """Return the address of the provider that plays a fault."""
        plain = self.simulator.base_url
        return {
            "refused": f"http://127.0.0.1:{self.closed}/v1",
            "no-name": "http://nowhere.invalid/v1",
            "not-tls": plain.replace("http:", "https:"),
            "stranger": self.secure.base_url,
            "tls-silent": f"https://127.0.0.1:{self.silent}/v1",
        }.get(word, plain)

    def config(self, words: Iterable[str], format: str, *, path: str = "") -> dict[str, Any]:
        """Return a configuration in which `PATH-KIND-WORD` are models, each with a provider of its own that fails."""
        spare = f"{path}spare"
        providers: dict[str, Any] = {spare: self._provider("spare", format)}
        models: dict[str, Any] = {}
        for word in words:
            for kind in KINDS:
                name = f"{path}{kind}-{word}"
                providers[name] = self._provider(word, format)
                routes: list[dict[str, Any]] = [{"provider": name, "model": upstream_model(word)}]
                if kind == "backed":
                    routes.append({"provider": spare, "model": "sim-text", "priority": 1})
                models[name] = {"routes": routes, "price": PRICE}
        return make_config(self.simulator, models=models, providers=providers, stream=CLOCKS)

    def _provider(self, word: str, format: str) -> dict[str, Any]:
        return {"base_url": self.base_url(word), "speaks": [format], "auth": "none"}


@asynccontextmanager
async def faulty(certificates: Certificates) -> AsyncIterator[Faulty]:
    """Run the providers."""

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    tls = SimulatorSettings(tls_cert_file=certificates.cert_file, tls_key_file=certificates.key_file)
    async with AsyncExitStack() as running:
        simulator = await running.enter_async_context(Simulator(SimulatorSettings(tokens=TOKENS)))
        secure = await running.enter_async_context(Simulator(tls))
        silent = await running.enter_async_context(await asyncio.start_server(silence, "127.0.0.1", 0))
        dead_port = running.enter_context(held_port())
        yield Faulty(simulator, secure, silent.sockets[0].getsockname()[1], dead_port)


def upstream_model(word: str) -> str:
    """Return the id under which the simulator plays a fault; unreachable ones never play it."""
    if word in UNREACHABLE:
        return "sim-text"
    if word in PATIENCE:
        return f"sim-{word.partition('-')[0]},retry_after=7"
    return f"sim-{word},s=6"


def harmless_of(format: str, stream: bool) -> set[str]:
    """Return the faults that a client of a format does not notice."""
    return HARMLESS - HARMFUL.get(format, set()) if stream else HARMLESS_PLAIN


def words_of(format: str) -> list[str]:
    """Return the faults that a format can have."""
    return [word for word in WORDS if word not in NO_FAULT.get(format, ())]


def judge(word: str, backed: bool, harmless: set[str], outcome: Outcome, row: UsageRow) -> None:
    """Check one outcome against what its fault allows, and its row against both."""
    assert outcome.took_s < LIMIT_S, f"took {outcome.took_s:.1f} s"
    if outcome.whole:
        assert outcome.text.replace("x", "") == ANSWER, f"a false end: {outcome.text[:99]!r}"
        assert row.status == "ok", f"the row says {row.status}"
        assert row.usage.output_tokens, "nothing was counted"
        assert row.cost_nano_usd == row.list_cost_nano_usd > 0, "the charge is wrong"
    elif word in REJECTED:
        assert outcome.status in (400, 413, 422), f"status {outcome.status}"
        assert row.status == "rejected", f"the row says {row.status}"
    else:
        assert row.status == "upstream_error", f"the row says {row.status}"
        assert outcome.status == 200 or outcome.status in (429, 502, 503, 504, 529), (
            f"status {outcome.status}"
        )
        assert outcome.told, "no message"
        assert (row.cost_nano_usd > 0) == bool(outcome.text), (
            "charged for what did not come, or not for what did"
        )
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
