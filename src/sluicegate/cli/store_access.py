"""How the commands reach the store: writes go through the running supervisor, or, where none runs, under its lock.

A command says what it wants as an operation (`store.operations`), so it does not matter who carries it out. Reads
go to the store itself, which lets any process read while one writes.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import typer

from sluicegate.config import Config, load
from sluicegate.server.control_socket import SupervisorNotRunning, call_supervisor
from sluicegate.server.store_lock import WAIT_S, StoreLock, StoreLocked, refuse_lost_store
from sluicegate.server.supervisor import lock_paths
from sluicegate.store import Store, open_store
from sluicegate.store.keys import configured, find_key_secret
from sluicegate.store.operations import apply_operation

T = TypeVar("T")


def load_config(path: Path) -> Config:
    """Read the operator's file."""
    return load(path, os.environ)


def key_secret(config: Config) -> bytes:
    """Return the key of the keyed hash, made now where there is none yet."""
    return find_key_secret(config.key_hash_secret, config.store_url, config.journal_dir)


def perform(config: Config, operation: str, args: dict[str, Any]) -> dict[str, Any]:
    """Have an operation done, by the supervisor or by ourselves, and return its result.

    While another process is about to begin or to end, neither goes for a moment; then both are tried again.

    Raises:
        BadRequest: it was refused.
        ConfigError: another process keeps the store, and does not listen.
    """
    give_up_at = time.monotonic() + WAIT_S
    while True:
        try:
            result: dict[str, Any] = call_supervisor(config.journal_dir, operation, args)
        except SupervisorNotRunning:
            try:
                return asyncio.run(_perform_alone(config, operation, args))
            except StoreLocked:
                if time.monotonic() > give_up_at:
                    raise
        else:
            return result


def read(config: Config, work: Callable[[Store], Awaitable[T]]) -> T:
    """Do some reading of the store."""

    async def run() -> T:
        async with _opened(open_store(config.store_url), read_only=True) as store:
            return await work(store)

    return asyncio.run(run())


def print_json(value: Any) -> None:
    """Print one value on one line."""
    typer.echo(msgspec.json.encode(value))


async def _perform_alone(config: Config, operation: str, args: dict[str, Any]) -> dict[str, Any]:
    lock = await StoreLock.take(lock_paths(config.journal_dir, config.store_url), wait_s=0.2)
    try:
        refuse_lost_store(config.journal_dir, config.store_url)
        async with _opened(open_store(config.store_url), read_only=False) as store:
            accounts, keys = configured(config.bootstrap(), key_secret(config))
            await store.bootstrap(accounts, keys, time.time())
            return await apply_operation(store, operation, args)
    finally:
        lock.release()


@asynccontextmanager
async def _opened(store: Store, *, read_only: bool) -> AsyncIterator[Store]:
    await store.open(read_only=read_only)
    try:
        yield store
    finally:
        await store.close()
