"""The simulator itself: listens, chooses what to play, remembers what it was asked.

A request gets, in this order: the script in its `x-sim-script` header or its body's `sim` field; the first
rule that was pushed for it; what its model's name says (`faults.py`); the default answer of the settings. Any
path that ends like one of the five formats' is served, so that one simulator can stand for several providers
under different prefixes.

`GET /` says that it runs; `/_sim/requests` (GET, DELETE), `/_sim/scripts` (POST, DELETE) and `/_sim/state`
(GET) do over HTTP what the methods do.
"""

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

import msgspec

from sluicegate.simulator.answer import Answer, of_tokens
from sluicegate.simulator.connection import Connection
from sluicegate.simulator.endpoints import form_of, is_endpoint, is_form, script_of
from sluicegate.simulator.faults import ANSWERS, FAULTS, script_of_model
from sluicegate.simulator.formats import Ask, format_of
from sluicegate.simulator.jobs import Jobs
from sluicegate.simulator.kept_responses import KeptResponses
from sluicegate.simulator.pace import Pacer
from sluicegate.simulator.pauses import Unknown, part_of
from sluicegate.simulator.player import Player
from sluicegate.simulator.record import Received
from sluicegate.simulator.script import Rule, Script
from sluicegate.simulator.settings import SimulatorSettings

HEALTHY = Script()
COUNTS = {
    "/messages/count_tokens": "input_tokens",
    "/responses/input_tokens": "input_tokens",
    ":countTokens": "totalTokens",
}
"""Paths that ask for a token count, and the key that tells it."""


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _GenerationConfig(msgspec.Struct):
    maxOutputTokens: int | None = None  # the format's own spelling


class _Asked(msgspec.Struct):
    """What of a request shapes the answer; everything else is only remembered."""

    model: str = ""
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    generationConfig: _GenerationConfig | None = None  # the format's own spelling
    sim: Script | None = None

    def limit(self) -> int | None:
        """Return the limit of output tokens that the request sets."""
        config = self.generationConfig
        limits = (self.max_completion_tokens, self.max_output_tokens, self.max_tokens)
        return next((n for n in limits if n is not None), config.maxOutputTokens if config else None)


_asked = msgspec.json.Decoder(_Asked).decode
_script = msgspec.json.Decoder(Script).decode
_rules = msgspec.json.Decoder(list[Rule] | Rule).decode


def _is_control(path: str) -> bool:
    """Return whether a path is the simulator's own, not a model's."""
    return path.startswith("/_sim/") or path in ("/", "/v1/models")


@lru_cache(maxsize=256)
def _limited(answer: Answer, limit: int) -> Answer:
    return answer.limited(limit)


class Simulator:
    """A provider in the running loop: `async with Simulator() as simulator: …`."""

    def __init__(self, settings: SimulatorSettings | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        self.idle_close_s = self.settings.idle_close_s
        self.requests: deque[Received] = deque(maxlen=self.settings.keep)
        """What it was asked, oldest first."""
        self.connections: set[Connection] = set()
        self.connections_made = 0
        self.requests_made = 0
        self.events_sent = 0
        self.default = self._default_answer()
        self.kept = KeptResponses()
        """Answers that Responses clients may come back to."""
        self.jobs = Jobs()
        """Files, video jobs and batches."""
        self.port = self.settings.port
        self._held: socket.socket | None = None
        """Bound to the port and never listened on, so that nobody else is given it while nobody listens."""
        self._rules: list[Rule] = []
        self._server: asyncio.Server | None = None
        self._pacer: Pacer | None = None

    # life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._held is not None:
            self._held.close()
            self._held = None

    async def start(self) -> None:
        """Listen; `port` is known afterwards and stays ours until the block is left, also while stopped."""
        loop = asyncio.get_running_loop()
        if self._pacer is None:
            self._pacer = Pacer(loop, self.settings.tick_s)
        if self._held is None:
            self._held = self._bound()
            self.port = self._held.getsockname()[1]
        sock = self._bound()
        self._server = await loop.create_server(self._connection, sock=sock, backlog=4096, ssl=self._tls())

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        await self.refuse()
        for connection in list(self.connections):
            connection.reset()
        if self._pacer is not None:
            self._pacer.close()
            self._pacer = None
        while self.connections:
            await asyncio.sleep(0)

    async def refuse(self) -> None:
        """Refuse new connections from now on; `start` takes them again. Open ones go on."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await asyncio.sleep(0)

    def _bound(self) -> socket.socket:
        sock = socket.socket(socket.AF_INET6 if ":" in self.settings.host else socket.AF_INET)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self.settings.host, self.port))
        except OSError:
            sock.close()
            raise
        return sock

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        scheme = "https" if self.settings.tls_cert_file else "http"
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{scheme}://{host}:{self.port}"

    @property
    def base_url(self) -> str:
        """What a provider's `base_url` is in the configuration."""
        return self.url + "/v1"

    # what tests do

    def push(
        self, *scripts: Script, model: str | None = None, path: str | None = None, times: int | None = 1
    ) -> None:
        """Play these scripts, one a request, to the next requests that match."""
        self._rules += [Rule(script=script, model=model, path=path, times=times) for script in scripts]

    def clear(self) -> None:
        """Forget all requests and rules."""
        self.requests.clear()
        self._rules.clear()

    async def wait_for(self, true: Callable[[], bool], timeout_s: float = 5.0) -> None:
        """Wait until something holds; raises TimeoutError."""
        end = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {timeout_s} s")
            await asyncio.sleep(0.002)

    async def wait_for_requests(self, count: int, timeout_s: float = 5.0) -> list[Received]:
        """Wait until so many requests are remembered, whole; return them."""
        await self.wait_for(lambda: sum(r.body_at is not None for r in self.requests) >= count, timeout_s)
        return list(self.requests)

    def state(self) -> dict[str, Any]:
        """Return counts, and how late the clockwork was."""
        pacer = self._pacer
        return {
            "connections": len(self.connections),
            "connections_made": self.connections_made,
            "requests": self.requests_made,
            "rules": len(self._rules),
            "worst_late_ms": round(pacer.worst_late_s * 1000, 3) if pacer else 0.0,
            "late_events": pacer.late_events if pacer else 0,
            "cpu_s": time.process_time(),
        }

    # what connections ask

    def _connection(self) -> Connection:
        self.connections_made += 1
        return Connection(self, self.connections_made, asyncio.get_running_loop())

    def connected(self, connection: Connection) -> Script | None:
        self.connections.add(connection)
        return self._take("accept", None)

    def disconnected(self, connection: Connection) -> None:
        self.connections.discard(connection)

    def new_record(self, connection: int) -> Received:
        self.requests_made += 1
        return Received(self.requests_made, connection)

    def keep_open(self, answers: int) -> bool:
        limit = self.settings.answers_per_connection
        return not limit or answers < limit

    def headed(self, record: Received) -> Script | None:
        if not _is_control(record.path):
            record.format = format_of(record.path)
            self.requests.append(record)
            return self._take("head", record)
        return None

    def player(self, connection: Connection, record: Received, script: Script | None) -> Player | None:
        if _is_control(record.path):
            self._control(connection, record)
            return None
        kept = self.kept.answer(record)
        if kept is None and record.body_at is not None and self.jobs.names(record.path):
            kept = self._take("body", record) or self.jobs.answer(record)
        format = record.format or "chat"
        asked, trouble = _Asked(), None
        if record.body_at is not None and kept is None:
            asked, trouble = self._read(record)
        record.model = (
            record.path.rpartition(":")[0].rpartition("/")[2] if format == "gemini" else asked.model
        )
        record.stream = (
            ":streamGenerateContent" in record.path if format == "gemini" else asked.stream is True
        )
        if kept is not None:
            script = kept
        elif script is None or script.read_bytes_per_s:
            script = trouble or self._choose(record, asked, script)
        if script.status < 400 and script.body is None and not script.steps and record.body_at is not None:
            told = script_of(record.path, record.body)
            if told is not None:
                headers = told.headers + script.headers
                script = msgspec.structs.replace(script, body=told.body, steps=told.steps, headers=headers)
        limit = asked.limit()
        answer = script.answer or self.default
        try:
            if script.status < 400 and record.body_at is not None:
                answer = part_of(answer, format, record.body)
        except Unknown as error:
            script = Script(name="goes on from nothing", status=400, message=str(error))
        if limit is not None and (script.answer is None or script.name == record.model):
            answer = _limited(answer, limit)
        record.script = script.name
        if script.status < 400 and script.body is None:
            record.answer = answer
        options = asked.stream_options
        ask = Ask(
            model=record.model,
            usage=options is not None and options.include_usage,
            array=format == "gemini" and "alt=sse" not in record.query,
            stream=record.stream,
        )
        if format == "responses" and kept is None and trouble is None:
            script, ask = self._kept(record, script, answer, ask)
        settings = self.settings
        if self._pacer is None:
            return None
        return Player(
            connection, self._pacer, record, script, answer, ask, settings.first_token_s, settings.interval_s
        )

    def _kept(self, record: Received, script: Script, answer: Answer, ask: Ask) -> tuple[Script, Ask]:
        """Keep the answer to a Responses request, and tell what it goes on from."""
        body = msgspec.json.decode(record.body)
        refusal = self.kept.refusal(body)
        if refusal is not None:
            record.answer = None
            return refusal, ask
        conversation = body.get("conversation")
        if isinstance(conversation, dict):
            conversation = conversation.get("id")
        ask = ask._replace(previous=body.get("previous_response_id"), conversation=conversation)
        if script.status < 400 and script.body is None and not script.steps:
            script = self.kept.keep(record, body, answer, ask) or script
        return script, ask

    # choosing

    def _read(self, record: Received) -> tuple[_Asked, Script | None]:
        """Return what is asked, and the answer to a request that no provider would take."""
        counted = next((key for suffix, key in COUNTS.items() if record.path.endswith(suffix)), None)
        if counted is not None:
            body = msgspec.json.encode({counted: self.default.input_tokens}).decode()
            return _Asked(), Script(name="token count", body=body)
        if record.format is None and not is_endpoint(record.path):
            return _Asked(), Script(name="unknown path", status=404, message=f"No such path: {record.path}")
        if record.method != "POST":
            return _Asked(), Script(name="unknown method", status=405, message="Only POST is allowed here.")
        if is_form(record.body):
            form = form_of(record.body)
            return _Asked(model=form.get("model", ""), stream=form.get("stream") == "true"), None
        try:
            return _asked(record.body), None
        except msgspec.MsgspecError as error:
            return _Asked(), Script(name="bad request", status=400, message=str(error))

    def _choose(self, record: Received, asked: _Asked, slow: Script | None) -> Script:
        given = record.header("x-sim-script")
        try:
            if given is not None:
                return _script(given)
            if asked.sim is not None:
                return asked.sim
            rule = self._take("body", record)
            if rule is not None:
                return rule
            return slow or script_of_model(record.model or "") or HEALTHY
        except (msgspec.MsgspecError, ValueError) as error:
            return Script(name="bad script", status=400, message=str(error))

    def _take(self, when: str, record: Received | None) -> Script | None:
        """Use up the first rule that fits."""
        for index, rule in enumerate(self._rules):
            if rule.script.when != when:
                continue
            if rule.model is not None and (record is None or record.model != rule.model):
                continue
            if rule.path is not None and (record is None or rule.path not in record.path):
                continue
            if rule.holds is not None and (record is None or rule.holds.encode() not in record.body):
                continue
            if rule.times is not None:
                rule.times -= 1
                if rule.times <= 0:
                    del self._rules[index]
            return rule.script
        return None

    def _default_answer(self) -> Answer:
        settings = self.settings
        return settings.answer or of_tokens(
            settings.tokens,
            stamped=settings.stamped,
            input_tokens=settings.input_tokens,
            per_event=settings.tokens_per_event,
        )

    def _tls(self) -> ssl.SSLContext | None:
        if self.settings.tls_cert_file is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.settings.tls_cert_file, self.settings.tls_key_file)
        return context

    # over HTTP ----------------------------------------------------------------------------------------------

    def _control(self, connection: Connection, record: Received) -> None:
        status: int = 200
        answer: Any = {"ok": True}
        match record.method, record.path:
            case "GET", "/":
                answer = {"simulator": self.url}
            case "GET", "/v1/models":
                models = [{"id": word, "object": "model", "owned_by": "simulator"} for word, _ in words()]
                answer = {"object": "list", "data": models}
            case "GET", "/_sim/requests":
                answer = [request.as_json() for request in self.requests]
            case "DELETE", "/_sim/requests":
                self.requests.clear()
            case "GET", "/_sim/state":
                answer = self.state()
            case "DELETE", "/_sim/scripts":
                self._rules.clear()
            case "POST", "/_sim/scripts":
                try:
                    rules = _rules(record.body)
                except msgspec.MsgspecError as error:
                    status, answer = 400, {"error": str(error)}
                else:
                    self._rules += rules if isinstance(rules, list) else [rules]
            case _:
                status, answer = 404, {"error": "no such control path"}
        body = msgspec.json.encode(answer)
        head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        connection.write(head % (status, b"OK" if status == 200 else b"Error", len(body)) + body)
        connection.played(complete=True)


def words() -> list[tuple[str, str]]:
    """Return the model names of the catalogue with their meaning."""
    table = [(f"sim-{word}", help_) for word, (help_, _) in ANSWERS.items()]
    table += [(f"sim-{word}", entry.help) for word, entry in FAULTS.items()]
    table.append(("sim-400 … sim-599", "that status with the format's error body; `retry_after=N`"))
    return table
