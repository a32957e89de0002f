"""One golden transcript a profile and format: what a client is told of usage and cost, and what a cut stream costs.

Files are `profiles/<profile>/<format>.txt`, written anew by `python -m tests.transcripts`. They reproduce what the
streaming contract says of each service: C6 (who gets usage), C7 (where the cost is), C9 (the header), B3 (cut streams).
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sluicegate.billing.profiles import PROFILES
from sluicegate.simulator import Simulator
from sluicegate.simulator.answer import Answer
from sluicegate.simulator.script import Play, Reset, Script, Stall, Wait
from tests.conftest import PRICE, make_config
from tests.fakes import Client, Response, ask, request_bytes
from tests.grid.scenes import FORMATS, Prompt
from tests.grid.speaking import path_of, said
from tests.inprocess import InProcessGate, in_process_gate

FOLDER = Path(__file__).parent / "profiles"
ANSWER = Answer(text=(" Water", " finds", " its", " level"), input_tokens=40, cache_read_tokens=12)
CELLS = [(profile, format) for profile in PROFILES for format in FORMATS]
_COST_HEADERS = ("x-sluicegate-cost-nano-usd", "openrelay-cost-nano-usd")


class Recorder:
    """A gate with a key for every profile, and the provider behind it."""

    def __init__(self, gate: InProcessGate, simulator: Simulator) -> None:
        self._gate = gate
        self._simulator = simulator
        self._number = 0

    @classmethod
    @asynccontextmanager
    async def at(cls, folder: Path) -> AsyncIterator["Recorder"]:
        """Run them."""
        async with Simulator() as simulator:
            providers = {
                format: {"base_url": simulator.base_url, "speaks": [format], "auth": "none"}
                for format in FORMATS
            }
            models = {
                f"{format}-*": {"routes": [{"provider": format, "model": "*"}], "price": PRICE}
                for format in FORMATS
            }
            keys = [
                {"name": profile, "key": key_of(profile), "balance_usd": 5, "profile": profile}
                for profile in PROFILES
            ]
            config = make_config(simulator, retry={"max_attempts": 1, "after_send": 0})
            config |= {"providers": providers, "models": models, "keys": keys}
            async with in_process_gate(folder, config).running() as gate:
                yield cls(gate, simulator)

    async def record(self, profile: str, format: str) -> str:
        """Return a transcript."""
        parts = [
            ("a stream", await self._told(profile, format, stream=True)),
            *(
                [("a stream that asks for usage", await self._told(profile, format, stream=True, asks=True))]
                if format in ("chat", "completions")
                else []
            ),
            ("an answer", await self._told(profile, format, stream=False)),
            ("the client leaves after two words", await self._cut(profile, format, "client")),
            ("the provider breaks off after two words", await self._cut(profile, format, "provider")),
        ]
        return "".join(f"# {title}\n{text}\n" for title, text in parts)

    def _model(self, script: Script) -> str:
        self._number += 1
        name = f"m{self._number:04}"
        self._simulator.push(script, model=name)
        return name

    async def _told(self, profile: str, format: str, *, stream: bool, asks: bool = False) -> str:
        name = self._model(Script(answer=ANSWER))
        model = f"{format}-{name}"
        body = said(format, model, Prompt(), stream)
        if not asks:
            body.pop("stream_options", None)
        response = await ask(
            self._gate.url, path_of(format, model, stream), body, key=key_of(profile), timeout_s=20.0
        )
        lines = [f"{name}: {value}" for name, value in response.headers if name in _COST_HEADERS]
        return _settled("\n".join([*lines, response.body.decode()]), response, model)

    async def _cut(self, profile: str, format: str, who: str) -> str:
        until = {"chat": 3, "completions": 2, "responses": 6, "messages": 5, "gemini": 2}[format]
        end = (Stall(),) if who == "client" else (Wait(s=0.05), Reset())
        model = f"{format}-{self._model(Script(answer=ANSWER, steps=(Play(stop=until), *end)))}"
        async with await Client.connect(self._gate.url) as connection:
            body = said(format, model, Prompt(), True)
            connection.send(request_bytes(path_of(format, model, True), body, key=key_of(profile)))
            await connection.until_bytes(b" finds", timeout_s=20.0)
            if who == "provider":
                await connection.until_closed(timeout_s=20.0)
        async with asyncio.timeout(20):
            while not (rows := [row for row in self._gate.rows() if row.model == model]):
                await asyncio.sleep(0.01)
        row = rows[0]
        return f"{row.status}, usage {row.usage_source}, charged {row.cost_nano_usd} nano-USD\n"


def key_of(profile: str) -> str:
    """Return the key that a profile's client uses."""
    return f"sg-{profile}-0123456789abcdef"


def _settled(text: str, response: Response, model: str) -> str:
    """Put fixed words in the place of what is another each time."""
    upstream_id = response.header("x-sluicegate-upstream-id") or "no id"
    text = text.replace(upstream_id, "ID").replace(model, "MODEL")
    request_id = (response.header("x-request-id") or "")[4:]
    text = text.replace(request_id, "REQUEST")
    text = re.sub(r'"(msg|rs|fc|resp|chatcmpl|cmpl)[-_]?[A-Za-z0-9]*[0-9][A-Za-z0-9_]*"', r'"\1"', text)
    return re.sub(r'"obfuscation":"[^"]*"', '"obfuscation":""', text)


async def write_all() -> None:
    """Write every transcript that differs."""
    with TemporaryDirectory() as folder:
        async with Recorder.at(Path(folder)) as recorder:
            for profile, format in CELLS:
                path = FOLDER / profile / f"{format}.txt"
                content = await recorder.record(profile, format)
                if not path.exists() or path.read_text() != content:
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(content)
                    print(f"profiles/{profile}/{format}")
