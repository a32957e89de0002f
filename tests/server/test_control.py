"""The control connection: framing, keys, and what does not arrive in time."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.errors import BadRequest, DecodeError, MessageUnsent, StoreUnavailable
from sluicegate.server.control import Channel, FrameSplitter, encode_frame, open_supervisor_end
from sluicegate.server.control_messages import (
    FromWorker,
    JournalGrew,
    KeyAnswer,
    KeyAsked,
    KeysChanged,
    SupervisorBeat,
    Unanswered,
    WorkerBeat,
)
from sluicegate.server.control_socket import (
    ControlSocket,
    Question,
    SupervisorNotRunning,
    ask_supervisor,
    call_supervisor,
)
from sluicegate.server.generation_messages import GenerationAsked, GenerationTold, RunningAsked, RunningTold
from sluicegate.server.supervisor_link import LOOKUPS_BURST, WAKE_S, SupervisorLink
from tests.records import make_row


def key(name: str, *, revoked: bool = False) -> KeyRecord:
    return KeyRecord(
        id=f"key_{name}", name=name, prefix="sg-", hash=name.encode(), account_id="a", revoked=revoked
    )


@given(st.lists(st.binary(max_size=40)), st.data())
def test_cuts_never_change_frames(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    splitter = FrameSplitter(100)
    read: list[bytes] = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        read += splitter.feed(stream[:cut])
        stream = stream[cut:]
    assert read == bodies


def test_a_frame_that_claims_to_be_too_long_is_refused_at_its_head() -> None:
    with pytest.raises(DecodeError):
        FrameSplitter(100).feed((101).to_bytes(4, "big"))


class SupervisorEnd:
    """The other end of a link: what came, and how look-ups are answered."""

    def __init__(self) -> None:
        self.heard: list[FromWorker] = []
        self.errors: list[DecodeError | None] = []
        self.known: dict[bytes, KeyRecord] | None = {}
        """None: look-ups are not answered."""
        self.channel: Channel[FromWorker]

    def receive(self, message: FromWorker) -> None:
        self.heard.append(message)
        if isinstance(message, KeyAsked) and self.known is not None:
            self.channel.send(KeyAnswer(message.question, self.known.get(message.hash)))

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for message in self.heard)


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[SupervisorLink, SupervisorEnd]]:
    ours, theirs = socket.socketpair()
    end = SupervisorEnd()
    end.channel = await open_supervisor_end(ours, end.receive, end.errors.append)
    link = await SupervisorLink.open(theirs)
    try:
        yield link, end
    finally:
        link.close()
        end.channel.close()
        await asyncio.sleep(0.002)


async def test_a_key_that_was_not_pushed_yet_is_asked_for_once_by_all_who_need_it() -> None:
    async with linked() as (link, end):
        end.known = {b"new": key("new")}
        found = await asyncio.gather(*(link.find_key(b"new") for _ in range(5)))
        assert all(record is not None and record.name == "new" for record in found)
        assert end.count(KeyAsked) == 1
        assert link.keys[b"new"].name == "new"


async def test_a_miss_is_remembered_for_a_second_and_forgotten_when_the_key_is_pushed() -> None:
    async with linked() as (link, end):
        for _ in range(3):
            assert await link.find_key(b"later") is None
        assert end.count(KeyAsked) == 1
        end.channel.send(KeysChanged([key("later")]))
        await asyncio.sleep(0.01)
        found = await link.find_key(b"later")
        assert found is not None
        assert found.id == key("later").id
        end.channel.send(KeysChanged([key("later", revoked=True)], [b"gone"]))
        await asyncio.sleep(0.01)
        assert link.keys[b"later"].revoked


async def test_e1_refused_look_ups_are_unavailable_never_unknown() -> None:
    async with linked() as (link, _):
        unavailable = 0
        for n in range(int(LOOKUPS_BURST) + 200):
            try:
                assert await link.find_key(n.to_bytes(4, "big")) is None
            except StoreUnavailable:
                unavailable += 1
        assert unavailable > 50


async def test_a_look_up_ends_after_a_second() -> None:
    async with linked() as (link, end):
        end.known = None
        started = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable):
            await link.find_key(b"x")
        assert 0.9 < asyncio.get_running_loop().time() - started < 1.5


async def test_look_ups_end_when_the_supervisor_goes() -> None:
    async with linked() as (link, end):
        end.known = None
        asking = asyncio.create_task(link.find_key(b"x"))
        await asyncio.sleep(0.005)
        end.channel.close()
        with pytest.raises(StoreUnavailable):
            await asking
        assert link.lost.is_set()
        assert not link.ready


async def test_wakes_are_gathered() -> None:
    async with linked() as (link, end):
        for _ in range(100):
            link.wake()
        await asyncio.sleep(2 * WAKE_S)
        assert end.count(JournalGrew) == 1


async def test_a_beat_is_answered_and_tells_whether_the_store_answers() -> None:
    async with linked() as (link, end):
        assert not link.ready
        end.channel.send(SupervisorBeat(True))
        await asyncio.sleep(0.01)
        assert link.ready
        assert end.count(WorkerBeat) == 1
        end.channel.send(SupervisorBeat(False))
        await asyncio.sleep(0.01)
        assert not link.ready


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        encode_frame({"type": "no_such_message"}),
        encode_frame({"type": "given_back", "account_id": 5, "amount_nano": "many"}),
        len(b"\x91" * 5000).to_bytes(4, "big") + b"\x91" * 5000,
    ],
)
async def test_what_is_no_message_closes_that_connection_alone(nonsense: bytes) -> None:
    ours, theirs = socket.socketpair()
    end = SupervisorEnd()
    end.channel = await open_supervisor_end(ours, end.receive, end.errors.append)
    with theirs:
        theirs.sendall(nonsense)
        for _ in range(100):
            if end.errors:
                break
            await asyncio.sleep(0.002)
    assert [type(error) for error in end.errors] == [DecodeError]
    assert end.heard == []


UNSAYABLE = [2**64, "half \ud800 of a character", object(), {1: {2}, 3: 2**70}]


@pytest.mark.parametrize("value", UNSAYABLE)
def test_what_no_frame_can_hold_is_an_error_of_ours_that_names_the_message(value: object) -> None:
    with pytest.raises(MessageUnsent, match="Question cannot be encoded"):
        encode_frame(Question("op", {"value": value}))


def test_a_frame_that_its_reader_would_refuse_is_not_made() -> None:
    assert len(encode_frame(Question("op", {}), 100)) < 100
    with pytest.raises(MessageUnsent, match="bytes, more than 100"):
        encode_frame(Question("o" * 101, {}), 100)


async def test_a_question_that_cannot_be_said_fails_at_once_and_leaves_nothing_behind() -> None:
    async with linked() as (link, end):
        with pytest.raises(MessageUnsent):
            await link.ask(lambda number: GenerationAsked(number, "key", "\ud800"), GenerationTold)
        assert await link.find_key(b"other") is None  # the connection is as it was
        assert end.count(GenerationAsked) == 0


@pytest.mark.parametrize("kind", ["key", "other"])
async def test_a_question_whose_answer_cannot_be_said_fails_at_once(kind: str) -> None:
    async with linked() as (link, end):
        end.known = None
        asking: asyncio.Future[Any] = asyncio.ensure_future(
            link.find_key(b"x")
            if kind == "key"
            else link.ask(lambda number: GenerationAsked(number, "key", "id"), GenerationTold)
        )
        await asyncio.sleep(0.01)
        started = asyncio.get_running_loop().time()
        end.channel.send(Unanswered(end.heard[-1].question, "too large"))  # type: ignore[union-attr]
        with pytest.raises(StoreUnavailable, match="cannot answer: too large"):
            await asking
        assert asyncio.get_running_loop().time() - started < 0.5
        end.known = {b"x": key("x")}
        found = await link.find_key(b"x")
        assert found is not None
        assert found.id == key("x").id


async def test_an_answer_of_a_worker_that_cannot_be_said_costs_that_answer_alone() -> None:
    async with linked() as (link, end):
        link.on_running_asked = lambda key_id, request_id: (
            None if request_id == "plain" else make_row("odd", key_id="\ud800")
        )
        end.channel.send(RunningAsked(1, "key", "odd"))
        end.channel.send(RunningAsked(2, "key", "plain"))
        await asyncio.sleep(0.02)
        assert [told.question for told in end.heard if isinstance(told, RunningTold)] == [2]
        assert end.errors == []


@asynccontextmanager
async def control_socket(folder: Path) -> AsyncIterator[None]:
    async def perform(op: str, args: dict[str, Any]) -> Any:
        if op == "echo":
            return args
        if op == "beyond":
            return {"balance": 2**64}
        if op == "away":
            raise StoreUnavailable("the store is away")
        raise BadRequest(f"there is no operation {op!r}")

    control = ControlSocket(folder, perform)
    await control.open()
    try:
        yield
    finally:
        await control.close()


async def test_commands_reach_the_supervisor_by_its_socket(tmp_path: Path) -> None:
    async with control_socket(tmp_path):
        assert os.stat(tmp_path / "control.sock").st_mode & 0o777 == 0o600
        asked = {"text": "ü", "list": [1, None], "big": 2**62}
        assert await ask_supervisor(tmp_path, "echo", asked) == asked
        assert await asyncio.to_thread(call_supervisor, tmp_path, "echo", asked) == asked
        with pytest.raises(BadRequest, match="no operation 'x'"):
            await asyncio.to_thread(call_supervisor, tmp_path, "x")
        with pytest.raises(StoreUnavailable, match="away"):
            await asyncio.to_thread(call_supervisor, tmp_path, "away")
    with pytest.raises(SupervisorNotRunning):
        await asyncio.to_thread(call_supervisor, tmp_path, "echo")


async def test_what_cannot_be_asked_or_answered_is_told_by_the_socket(tmp_path: Path) -> None:
    async with control_socket(tmp_path):
        for odd in ({"amount_nano": 2**64}, {"name": "\ud800"}):
            with pytest.raises(BadRequest, match="echo: Question cannot be encoded"):
                await asyncio.to_thread(call_supervisor, tmp_path, "echo", odd)
            with pytest.raises(BadRequest, match="echo: Question cannot be encoded"):
                await ask_supervisor(tmp_path, "echo", odd)
        with pytest.raises(StoreUnavailable, match="Answer cannot be encoded"):
            await ask_supervisor(tmp_path, "beyond")
        assert await ask_supervisor(tmp_path, "echo", {"a": 1}) == {"a": 1}


async def test_a_socket_that_a_dead_supervisor_left_is_nobody(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control.sock"))
    with pytest.raises(SupervisorNotRunning):
        await asyncio.to_thread(call_supervisor, tmp_path, "echo")
    async with control_socket(tmp_path):
        assert await ask_supervisor(tmp_path, "echo", {"a": 1}) == {"a": 1}


async def test_a_folder_with_a_long_path_works_too(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with control_socket(deep):
        assert await asyncio.to_thread(call_supervisor, deep, "echo", {"a": 1}) == {"a": 1}
        assert await ask_supervisor(deep, "echo", {"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"\x00\x00\x00\x01\xc1", b"not a question"),
        (encode_frame({"op": 5}), b"not a question"),
        (encode_frame(["op"]), b"not a question"),
        (b"\xff\xff\xff\xff", b""),
        (b"\x00\x00", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b""),
    ],
)
async def test_nonsense_on_the_control_socket_is_refused(
    tmp_path: Path, sent: bytes, answered: bytes
) -> None:
    async with control_socket(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "control.sock"))
        writer.write(sent)
        writer.write_eof()
        assert answered in await reader.read()
        writer.close()
        await writer.wait_closed()
        assert await ask_supervisor(tmp_path, "echo", {"a": 1}) == {"a": 1}
