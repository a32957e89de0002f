"""What commands and the admin process may ask of a running supervisor, by name.

Changes of keys and credit are `store.operations`, done here between two commits of journals, so that the
lease book and the workers follow the store exactly. What is asked comes by `control_socket`.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.billing.spending_limits import limits_of
from sluicegate.errors import BadRequest
from sluicegate.money import format_usd
from sluicegate.server.bank import Bank
from sluicegate.server.drain import JournalDrain
from sluicegate.server.key_ring import KeyRing
from sluicegate.server.telemetry import OPERATION_DONE, log
from sluicegate.store import Store
from sluicegate.store.operations import apply_operation
from sluicegate.store.spending import follow_limits

_UNLIMITED = KeyRecord(id="", name="", prefix="", hash=b"", account_id="")

READING = frozenset({"keys.list", "accounts.list"})


class Operations:
    """Performs operations on the store and on what the supervisor keeps in memory of it."""

    def __init__(self, store: Store, drain: JournalDrain, bank: Bank, keys: KeyRing) -> None:
        self._store = store
        self._drain = drain
        self._bank = bank
        self._keys = keys
        self._own: dict[str, Callable[[], Awaitable[Any]]] = {}

    def add(self, name: str, perform: Callable[[], Awaitable[Any]]) -> None:
        """Know one more operation, without arguments."""
        self._own[name] = perform

    async def perform(self, name: str, arguments: dict[str, Any]) -> Any:
        """Do one operation and return its result, plain data.

        Raises:
            BadRequest: there is no such operation, or its arguments are wrong.
            StoreUnavailable: the store could not do it now.
        """
        own = self._own.get(name)
        if own is not None:
            return await own()
        if name in READING:
            return await apply_operation(self._store, name, arguments)
        debit = _debit(arguments) if name == "accounts.adjust" else None
        if debit is not None and self._bank.book.knows(debit[0]):
            return await self._take_out(*debit, arguments)
        return await self._change(name, arguments)

    async def follow_store(self) -> None:
        """Take over balances and keys after a change of many; the drain must be paused, so that they stand
        still.
        """
        for account in await self._store.all_accounts():
            if not account.unlimited:
                self._bank.book.set_balance(account.id, account.balance_nano)
        keys = await self._store.all_keys()
        for key in keys:
            if limits_of(key) != limits_of(self._keys.find(key.hash) or _UNLIMITED):
                await self._follow_limits(key)
        self._keys.replace(keys)

    async def _follow_limits(self, key: KeyRecord) -> None:
        """Take over a key's spending limits before any worker knows them; the drain is paused."""
        if await follow_limits(self._store, self._bank.budgets, key, time.time()):
            for name in self._bank.budgets.names(key.id):
                self._bank.call_back(name)

    async def _change(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Change keys or credit in the store, then in the lease book and the workers."""
        async with self._drain.paused():
            result = await apply_operation(self._store, name, arguments)
            account, key = result.get("account"), result.get("key")
            if account is not None and not account["unlimited"]:
                self._bank.book.set_balance(account["id"], account["balance_nano_usd"])
            if key is not None:
                if not key["unlimited"]:
                    self._bank.book.set_balance(key["account"], key["balance_nano_usd"])
                changed = await self._store.get_key(key["id"])
                await self._follow_limits(changed)
                self._keys.put(changed)
        log(OPERATION_DONE, operation=name, key=key and key["id"], account=account and account["id"])
        return result

    async def _take_out(self, account_id: str, amount_nano: int, arguments: dict[str, Any]) -> dict[str, Any]:
        """Debit an account by hand: out of credit that nothing has leased, idle leases called back for it."""
        book = self._bank.book
        if not await self._bank.hold(account_id, amount_nano):
            free = format_usd(max(0, book.free(account_id)))
            raise BadRequest(f"account {account_id!r} has only {free} USD that are free")
        try:
            leased_nano = book.taken(account_id) - amount_nano
            return await self._change("accounts.adjust", {**arguments, "leased_nano": leased_nano})
        finally:
            book.release(account_id, amount_nano)


def _debit(arguments: dict[str, Any]) -> tuple[str, int] | None:
    """Return account and amount where an adjustment takes money out; what is wrong with it is told later."""
    account_id, amount_nano = arguments.get("account"), arguments.get("amount_nano")
    if isinstance(account_id, str) and isinstance(amount_nano, int) and amount_nano < 0:
        return account_id, -amount_nano
    return None
