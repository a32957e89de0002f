"""A worker process that serves a small app of the tests' own in place of the gateway.

`GET /who` tells the worker's number. `GET /spend?account=A&reserve=N&charge=M&hold_ms=T` does what a request
does to money: reserve, journal, wait, settle. `hold_ms` of -1 keeps the
reservation until there is a file `go` beside the journals or the worker must end; a file `held` tells that it is kept.
Answers are JSON.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sluicegate.billing.ledger import Reserved, Settled, UsageRow
from sluicegate.errors import SluicegateError, StoreUnavailable
from sluicegate.server.credit import Credit
from sluicegate.server.generation_messages import GenerationAsked, GenerationTold
from sluicegate.server.journal import JournalWriter
from sluicegate.server.settings_shapes import WorkerSettings
from sluicegate.server.supervisor_link import SupervisorLink
from sluicegate.server.tally import Tally
from sluicegate.server.telemetry import REQUESTS
from sluicegate.server.worker import Listening, run_worker


class StandIn:
    """Answers one request a connection."""

    def __init__(
        self,
        settings: WorkerSettings,
        link: SupervisorLink,
        credit: Credit,
        journal: JournalWriter,
        loop: asyncio.AbstractEventLoop,
        number: int,
    ) -> None:
        self.settings = settings
        self.link = link
        self.credit = credit
        self.journal = journal
        self.number = number
        self.tally = Tally()
        self.draining = False
        self.running: set[asyncio.Task[Any]] = set()
        self.ended = asyncio.Event()
        self.servers: dict[int, list[asyncio.Server]] = {}

    async def start(self, listening: list[Listening]) -> None:
        await self.adopt(-1, listening)

    async def adopt(self, slot: int, listening: list[Listening]) -> None:
        self.servers[slot] = [
            await asyncio.start_server(self.serve, sock=sock, ssl=context) for sock, context in listening
        ]

    def release(self, slot: int) -> None:
        for server in self.servers.pop(slot):
            server.close()

    def apply(self, settings: WorkerSettings) -> None:
        self.settings = settings

    def counters(self) -> dict[str, list[Any]]:
        return self.tally.snapshot()

    async def drain(self, timeout_s: float, *, succeeded: bool) -> None:
        self.draining = True
        if timeout_s == 0:
            self.ended.set()
        if self.running:
            _, pending = await asyncio.wait(set(self.running), timeout=timeout_s)
            self.ended.set()
            if pending:
                await asyncio.wait(pending)

    def close(self) -> None:
        for slot in list(self.servers):
            self.release(slot)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.running.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            target = urlsplit(head.split(b" ")[1].decode())
            status, answer = 503, {"error": "draining"}
            if not self.draining:
                status, answer = await self.answer(target.path, dict(parse_qsl(target.query)))
            body = json.dumps(answer).encode()
            writer.write(
                b"HTTP/1.1 %d x\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % (status, len(body), body)
            )
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self.running.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def answer(self, path: str, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        match path:
            case "/who":
                return 200, {
                    "number": self.number,
                    "pid": os.getpid(),
                    "ready": self.link.ready,
                    "drain_timeout_s": self.settings.server.drain_timeout_s,
                    "keys": sorted(key.name for key in self.link.keys.values() if not key.revoked),
                }
            case "/unsayable":
                try:
                    await self.link.ask(
                        lambda number: GenerationAsked(number, "key", "\ud800"), GenerationTold
                    )
                except StoreUnavailable as error:
                    return 503, {"error": error.message}
                return 200, {}
            case "/key":
                key = await self.link.find_key(bytes.fromhex(query["hash"]))
                return 200, {"key": key and key.name}
            case "/freeze":
                time.sleep(float(query["s"]))
                return 200, {}
            case "/confuse":
                self.link.send({"type": "nonsense"})  # type: ignore[arg-type]
                return 200, {}
            case "/spend":
                try:
                    return 200, await self.spend(
                        query["account"], int(query["reserve"]), int(query["charge"]), int(query["hold_ms"])
                    )
                except SluicegateError as error:
                    return error.status, {"error": error.message, "kind": error.kind}
        return 404, {}

    async def spend(self, account: str, reserve: int, charge: int, hold_ms: int) -> dict[str, Any]:
        request_id = f"req_{self.number}_{uuid.uuid4().hex}"
        row = UsageRow(request_id=request_id, key_id="key_test", account_id=account, started_at=time.time())
        if not self.credit.try_reserve(account, reserve):
            await self.credit.reserve(account, reserve)
        self.journal.append(Reserved(request_id=request_id, account_id=account, amount_nano=reserve, row=row))
        status = "ok"
        folder = Path(self.settings.journal.dir)
        if hold_ms < 0:
            (folder / "held").touch()
            while not self.ended.is_set() and not (folder / "go").exists():
                await asyncio.sleep(0.01)
        await asyncio.sleep(max(0, hold_ms) / 1000)
        if self.ended.is_set():
            status = "interrupted"
        row.status = status
        row.cost_nano_usd = row.list_cost_nano_usd = charge
        self.journal.append(Settled(request_id=request_id, account_id=account, row=row))
        await self.journal.synced()
        self.credit.settle(account, reserve, charge)
        self.link.wake()
        self.tally.add(REQUESTS, 1, "test", status)
        return {"request_id": request_id, "number": self.number, "status": status}


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], StandIn))
