"""`control.sock` beside the journals: how commands and the admin process reach the running supervisor.

One question a connection at a time, framed as in `control`. The socket's mode is 0600: who may open it may
do everything. What the operations do is the supervisor's; this module carries them.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from sluicegate.errors import BadRequest, ConfigError, MessageUnsent, SluicegateError, StoreUnavailable
from sluicegate.server.control import FrameSplitter, encode_frame
from sluicegate.server.telemetry import MESSAGE_UNSENT, log

NAME = "control.sock"
MAX_QUESTION_BYTES = 1024 * 1024
MAX_ANSWER_BYTES = 256 * 1024 * 1024
ANSWER_S = 30.0
_MAX_PATH = 100
"""Longer socket paths go by way of the folder's descriptor (unix(7) allows 107 bytes)."""


class Question(msgspec.Struct, frozen=True):
    """One operation, asked for."""

    op: str
    args: dict[str, Any] = {}


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of it: the result, or the error with its kind as in `errors`."""

    ok: bool
    result: Any = None
    error: str = ""
    kind: str = ""


_decode_question = msgspec.msgpack.Decoder(Question).decode
_decode_answer = msgspec.msgpack.Decoder(Answer).decode


class SupervisorNotRunning(SluicegateError):
    """Nobody listens on the socket."""

    kind = "unavailable"
    status = 503
    retry = "never"


class ControlSocket:
    """The supervisor's end: takes questions, answers them one after the other on each connection."""

    def __init__(self, folder: Path, perform: Callable[[str, dict[str, Any]], Awaitable[Any]]) -> None:
        self._folder = folder
        self._perform = perform
        self._server: asyncio.AbstractServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen, in place of what a dead supervisor left. Only who holds the store's lock may call this.

        Raises:
            ConfigError: the socket cannot be made.
        """
        path = self._folder / NAME
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            with _short(path) as where:
                sock.bind(where)
            path.chmod(0o600)
            sock.listen(64)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            raise ConfigError(f"cannot make {path}: {error.strerror}") from error
        self._server = await asyncio.start_unix_server(self._serve, sock=sock)

    async def close(self) -> None:
        """Take no more questions."""
        if self._server is not None:
            self._server.close()
            (self._folder / NAME).unlink(missing_ok=True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (body := await _read_frame(reader, MAX_QUESTION_BYTES)) is not None:
                writer.write(_answer_frame(await self._answer(body)))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass  # it left, or spoke something else
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, body: bytes) -> Answer:
        try:
            question = _decode_question(body)
            result = await self._perform(question.op, question.args)
        except SluicegateError as error:
            return Answer(False, error=error.message, kind=error.kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return Answer(False, error=f"not a question: {error}", kind=BadRequest.kind)
        return Answer(True, msgspec.to_builtins(result))


def _question_frame(op: str, args: dict[str, Any] | None) -> bytes:
    """Return a question as a frame.

    Raises:
        BadRequest: its arguments cannot be said.
    """
    try:
        return encode_frame(Question(op, args or {}), MAX_QUESTION_BYTES)
    except MessageUnsent as error:
        raise BadRequest(f"{op}: {error.message}") from None


def _answer_frame(answer: Answer) -> bytes:
    """Return an answer as a frame; one that cannot be said, as that error."""
    try:
        return encode_frame(answer, MAX_ANSWER_BYTES)
    except MessageUnsent as error:
        log(MESSAGE_UNSENT, error=error)
        return encode_frame(Answer(False, error=error.message, kind=error.kind))


def call_supervisor(journal_dir: str | Path, op: str, args: dict[str, Any] | None = None) -> Any:
    """Ask the running supervisor to do something, and return its result.

    Raises:
        SupervisorNotRunning: there is none; the caller may take the lock and do it itself.
        BadRequest: it refused.
        StoreUnavailable: it could not, or did not answer.
    """
    question = _question_frame(op, args)
    path = Path(journal_dir) / NAME
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_S)
        try:
            with _short(path) as where:
                sock.connect(where)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            raise SupervisorNotRunning(f"no sluicegate is running at {path}") from None
        except OSError as error:
            raise StoreUnavailable(f"cannot reach {path}: {error.strerror or error}") from error
        try:
            sock.sendall(question)
            splitter = FrameSplitter(MAX_ANSWER_BYTES)
            while data := sock.recv(1 << 16):
                for body in splitter.feed(data):
                    return _result(_decode_answer(body))
        except OSError as error:
            raise StoreUnavailable(f"the supervisor did not answer: {error.strerror or error}") from error
    raise StoreUnavailable("the supervisor ended before it answered")


async def ask_supervisor(journal_dir: Path, op: str, args: dict[str, Any] | None = None) -> Any:
    """Do the same as `call_supervisor`, from a running loop."""
    question = _question_frame(op, args)
    path = journal_dir / NAME
    try:
        with _short(path) as where:
            reader, writer = await asyncio.open_unix_connection(where)
    except OSError as error:
        raise SupervisorNotRunning(f"cannot reach {path}: {error.strerror or error}") from error
    try:
        writer.write(question)
        async with asyncio.timeout(ANSWER_S):
            body = await _read_frame(reader, MAX_ANSWER_BYTES)
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        raise StoreUnavailable(f"the supervisor did not answer: {error}") from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if body is None:
        raise StoreUnavailable("the supervisor ended before it answered")
    return _result(_decode_answer(body))


def _result(answer: Answer) -> Any:
    if answer.ok:
        return answer.result
    _refuse(answer)


def _refuse(answer: Answer) -> NoReturn:
    if answer.kind == StoreUnavailable.kind:
        raise StoreUnavailable(answer.error)
    raise BadRequest(answer.error)


async def _read_frame(reader: asyncio.StreamReader, max_bytes: int) -> bytes | None:
    """Return the next frame's body; None at the end of the stream."""
    head = await reader.read(4)
    if not head:
        return None
    if len(head) < 4:
        head += await reader.readexactly(4 - len(head))
    size = int.from_bytes(head, "big")
    if size > max_bytes:
        raise ValueError(f"a frame of {size} bytes")
    return await reader.readexactly(size)


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give a spelling of a socket's path that is short enough to bind or connect to."""
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
