"""What tests of the store have in common."""

from typing import Any

from sluicegate.billing.account_shapes import KeyRecord
from sluicegate.store import ConfiguredAccount, ConfiguredKey, Store

NOW = 1_800_000_000.0
SECRET = b"s" * 32


async def add_account(store: Store, account_id: str, balance: int = 0, *, unlimited: bool = False) -> None:
    """Add one account to those that are there."""
    accounts = [ConfiguredAccount(id=account_id, unlimited=unlimited, balance_nano=balance)]
    known = [key for key in await store.all_keys() if not key.revoked]
    assert not known, "the configuration's keys would be revoked"
    await store.bootstrap(accounts, [], NOW)


def make_key(name: str, *, account: str | None = None, secret: str | None = None, **limits: Any) -> KeyRecord:
    """A key whose hash and id follow from its name."""
    return KeyRecord(
        id=f"key_{name}",
        name=name,
        prefix=f"sg-{name}"[:10],
        hash=(secret or name).encode().ljust(32, b"."),
        account_id=account or name,
        **limits,
    )


def configured_key(name: str, *, balance: int = 0, **rest: Any) -> ConfiguredKey:
    """A key as the configuration has it."""
    return ConfiguredKey(record=make_key(name, **rest), balance_nano=balance)


async def balance(store: Store, account_id: str = "dev") -> int:
    """Return an account's balance."""
    return (await store.get_account(account_id)).balance_nano
