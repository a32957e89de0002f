"""Operations by name: plain data in and out, and nothing changed where one is refused."""

from typing import Any

import pytest

from sluicegate.errors import BadRequest
from sluicegate.money import MAX_NANO
from sluicegate.store.keys import mint_key
from sluicegate.store.operations import OPERATIONS, apply_operation
from sluicegate.store.sqlite import SqliteStore
from tests.store.world import SECRET, balance


def new_key(name: str, **rest: Any) -> dict[str, Any]:
    key = mint_key(SECRET)
    return {"name": name, "id": key.id, "prefix": key.prefix, "hash": key.hash.hex(), **rest}


async def test_a_key_from_making_to_revoking(store: SqliteStore) -> None:
    args = new_key("a", account="dev", rpm=5, day_nano=7, expires_at="2027-01-02T00:00:00+00:00")
    made = (await apply_operation(store, "keys.create", args))["key"]
    assert made["account"] == "dev"
    assert (made["rpm"], made["day_nano_usd"], made["expires_at"]) == (5, 7, "2027-01-02T00:00:00Z")
    assert (made["balance_nano_usd"], made["revoked"]) == (1_000_000, False)
    limited = await apply_operation(store, "keys.limit", {"key": "a", "rpm": None, "tpm": 9})
    assert (limited["key"]["rpm"], limited["key"]["tpm"]) == (None, 9)
    revoked = await apply_operation(store, "keys.revoke", {"key": "a"})
    assert revoked["key"]["revoked"]
    assert (await apply_operation(store, "keys.list", {}))["keys"] == [revoked["key"]]


async def test_credit_by_key_and_by_account(store: SqliteStore) -> None:
    await apply_operation(store, "keys.create", new_key("a", balance_nano=10))
    done = await apply_operation(store, "keys.topup", {"key": "a", "amount_nano": 5})
    assert done["account"] == {"id": "a", "unlimited": False, "balance_nano_usd": 15}
    assert done["posted"]
    args = {"account": "dev", "amount_nano": 5, "reference": "pay-1"}
    assert (await apply_operation(store, "accounts.topup", args))["posted"]
    assert not (await apply_operation(store, "accounts.topup", args))["posted"]
    await apply_operation(store, "accounts.adjust", {"account": "dev", "amount_nano": -5})
    assert await balance(store) == 1_000_000
    listed = (await apply_operation(store, "accounts.list", {}))["accounts"]
    assert [account["id"] for account in listed] == ["a", "dev"]
    assert (await store.verify()).clean


async def test_an_account_that_is_named_must_be_there_or_be_asked_for(store: SqliteStore) -> None:
    with pytest.raises(BadRequest, match="there is no account 'Dev'; did you mean 'dev'"):
        await apply_operation(store, "keys.create", new_key("a", account="Dev"))
    with pytest.raises(BadRequest, match="did you mean 'dev'"):
        await apply_operation(store, "accounts.adjust", {"account": "deev", "amount_nano": 5})
    assert [account.id for account in await store.all_accounts()] == ["dev"]
    wanted = new_key("a", account="Dev", create_account=True)
    assert (await apply_operation(store, "keys.create", wanted))["key"]["account"] == "Dev"
    again = new_key("b", account="Dev", create_account=True)
    assert (await apply_operation(store, "keys.create", again))["key"]["account"] == "Dev"


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("keys.unknown", {}),
    ("keys.list", {"x": 1}),
    ("keys.create", {"name": "b"}),
    ("keys.create", new_key("")),
    ("keys.create", new_key("b", account="deev")),
    ("keys.create", new_key("b", account="deev", unlimited=True)),
    ("keys.create", new_key("b", create_account=True)),
    ("keys.create", new_key(" b")),
    ("keys.create", new_key("b\n")),
    ("keys.create", new_key("b" * 129)),
    ("keys.create", new_key("b", rpm=-1)),
    ("keys.create", new_key("b", balance_nano=-1)),
    ("keys.create", new_key("b", balance_nano=MAX_NANO)),
    ("keys.create", new_key("b", hash="00")),
    ("keys.create", new_key("b", on_limit="perhaps")),
    ("keys.create", new_key("b", surprise=1)),
    ("keys.revoke", {"key": "nobody"}),
    ("keys.limit", {"key": "a"}),
    ("keys.limit", {"key": "a", "rpm": -1}),
    ("keys.limit", {"key": "a", "rpm": 2**63}),
    ("keys.limit", {"key": "a", "rpm": 1.5}),
    ("keys.limit", {"key": "a", "account": "dev"}),
    ("keys.topup", {"key": "a", "amount_nano": 0}),
    ("keys.topup", {"key": "a", "amount_nano": -1}),
    ("keys.topup", {"key": "a", "amount_nano": MAX_NANO}),
    ("keys.topup", {"key": "a", "amount_nano": 2**64}),
    ("keys.topup", {"key": "a", "account": "a", "amount_nano": 1}),
    ("keys.topup", {"amount_nano": 1}),
    ("keys.topup", {"account": "nobody", "amount_nano": 1}),
    ("accounts.adjust", {"account": "dev", "amount_nano": 0}),
    ("accounts.adjust", {"account": "dev", "amount_nano": -1_000_001}),
    ("accounts.adjust", {"account": "dev", "amount_nano": -1, "leased_nano": 1_000_000}),
]


@pytest.mark.parametrize(("name", "args"), REFUSED)
async def test_bad_input_is_refused_and_changes_nothing(
    store: SqliteStore, name: str, args: dict[str, Any]
) -> None:
    await apply_operation(store, "keys.create", new_key("a"))
    before = [await apply_operation(store, f"{what}.list", {}) for what in ("keys", "accounts")]
    with pytest.raises(BadRequest) as refused:
        await apply_operation(store, name, args)
    assert "\n" not in refused.value.message
    assert before == [await apply_operation(store, f"{what}.list", {}) for what in ("keys", "accounts")]


def test_the_operations_have_names() -> None:
    assert {"keys.create", "keys.list", "keys.revoke", "keys.topup", "keys.limit"} <= OPERATIONS
