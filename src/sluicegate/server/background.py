"""Runs that go on at a provider while their client is away: polled until they have ended, so that they are settled.

The client is told at once that its run is queued, and asks for it by its id; the request stays open here, with its
reservation and its place among the key's requests, until the provider says how it ended. A run that takes longer than
`total_timeout`, or that a stopping gate cannot wait for, is cancelled at the provider. Source: wire formats page
`responses.md`, "State".
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from sluicegate.errors import (
    DecodeError,
    SluicegateError,
    StateUnknown,
    UpstreamError,
    UpstreamGarbled,
    UpstreamStatus,
)
from sluicegate.messages import Usage
from sluicegate.server.kept_questions import ask
from sluicegate.server.targets import Target
from sluicegate.server.upstream_pool import UpstreamPool
from sluicegate.wire import json_edit
from sluicegate.wire.openai_responses_passed_answer import ResponsesAnswer
from sluicegate.wire.translation import Asked
from sluicegate.wire.upstream_errors import from_stream_error

FIRST_POLL_S = 0.25
LAST_POLL_S = 2.0
"""Waits between two polls double up to this."""
RUNNING = frozenset({b'"queued"', b'"in_progress"'})


def runs_on(body: bytes) -> bool:
    """Whether a response says that its run has not ended yet."""
    status = json_edit.decode_top(body, "responses").get("status")
    return status is not None and bytes(status) in RUNNING


def run_name(provider: str, id: str) -> str:
    """Return the name by which all workers know a run; the id is the provider's."""
    return f"{provider}/{id}"


class RunEnd(NamedTuple):
    """How a run ended, for its row."""

    status: str
    error: SluicegateError | None = None
    finish_reason: str | None = None
    billed: bool = False
    usage: Usage | None = None
    """As the provider reports it."""
    texts: Sequence[str] = ()
    """To be counted, where nothing is reported."""


def judge(response: bytes | None, asked: Asked, *, given_up: bool) -> RunEnd:
    """Return how a run ended by what the provider tells of it.

    Args:
        response: None where it tells nothing.
        given_up: it was cancelled by us, and not by the client.
    """
    ended: ResponsesAnswer | None = None
    if response is not None:
        with contextlib.suppress(DecodeError):
            ended = ResponsesAnswer(asked, response)
    if ended is None:
        return RunEnd("upstream_error", UpstreamGarbled("The provider does not tell how the run ended."))
    if ended.error is not None and not ended.cancelled:
        return RunEnd("upstream_error", from_stream_error(ended.error))
    if ended.cancelled or ended.finish_reason is None:
        status = "interrupted" if given_up else "client_closed"
        return RunEnd(status, billed=ended.usage is not None, usage=ended.usage)
    texts = ended.texts() if ended.usage is None or ended.usage.output_tokens is None else ()
    return RunEnd("ok", None, ended.finish_reason, True, ended.usage, texts)


class Run:
    """One run, from when it was queued."""

    def __init__(self, pool: UpstreamPool, target: Target, id: str) -> None:
        """Args: id: the provider's, of the answer."""
        self._pool = pool
        self._target = target
        self._id = id
        self._stopped = asyncio.Event()
        self.given_up = False
        """We have cancelled it."""

    def stop(self) -> None:
        """Wait no longer: cancel it."""
        self._stopped.set()

    async def end(self, due_at: float) -> bytes | None:
        """Return the response as it ended; None where the provider does not know it any more, or cannot say.

        Args:
            due_at: loop time at which it is cancelled.
        """
        loop = asyncio.get_running_loop()
        wait_s = FIRST_POLL_S
        while not self._stopped.is_set() and loop.time() < due_at:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, max(0.0, due_at - loop.time()))):
                    await self._stopped.wait()
                    break
            wait_s = min(2 * wait_s, LAST_POLL_S)
            try:
                told = await ask(self._pool, self._target, "GET", f"/{self._id}")
            except StateUnknown:
                return None
            except UpstreamStatus as error:
                if error.retry == "never":
                    return None
            except UpstreamError:
                pass  # it may answer the next time
            else:
                if not runs_on(told):
                    return told
        self.given_up = True
        return await self._cancel()

    async def _cancel(self) -> bytes | None:
        for method, part in (("POST", "/cancel"), ("GET", "")):
            try:
                return await ask(self._pool, self._target, method, f"/{self._id}{part}")
            except (StateUnknown, UpstreamError):
                continue  # one that has just ended cannot be cancelled, but asked for
        return None
