"""Keys: making, finding, limiting, revoking; the configuration's keys kept in step; the server's secret."""

import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluicegate.billing.account_shapes import Bootstrap, BootstrapAccount, BootstrapKey, KeyRecord
from sluicegate.errors import BadRequest, ConfigError, StoreUnavailable
from sluicegate.routing.catalog_shapes import StreamSwitches
from sluicegate.store import ConfiguredAccount, Conflict
from sluicegate.store.keys import (
    configured,
    find_key_secret,
    hash_key,
    load_or_create_key_secret,
    mint_key,
    visible_prefix,
)
from sluicegate.store.sqlite import SqliteStore
from tests.store.world import NOW, SECRET, balance, configured_key, make_key


async def state(store: SqliteStore) -> dict[str, bool]:
    """Return which secrets are in force."""
    return {key.hash.decode().rstrip("."): not key.revoked for key in await store.all_keys()}


async def create(store: SqliteStore, key: KeyRecord, balance_nano: int = 0) -> KeyRecord:
    return await store.create_key(key, balance_nano=balance_nano, reference=f"r:{key.id}", at=NOW)


# By command


async def test_a_key_is_found_as_it_was_made(store: SqliteStore) -> None:
    key = make_key(
        "a",
        account="dev",
        models=("m", "openai/*"),
        rpm=5,
        day_nano=7,
        expires_at=datetime(2027, 1, 2, tzinfo=UTC),
        on_limit="finish",
        switches=StreamSwitches(cost="extension", cost_extension_key="x"),
    )
    assert await create(store, key) == key
    assert await store.find_key(key.hash) == key
    assert await store.find_key(b"none") is None
    for which in (key.id, key.name, key.prefix):
        assert await store.get_key(which) == key
    assert await store.all_keys() == [key]


async def test_a_key_without_account_gets_one_of_its_own_name(store: SqliteStore) -> None:
    await create(store, make_key("a"), 500)
    assert await balance(store, "a") == 500
    assert (await store.verify()).clean


async def test_a_name_in_use_is_refused_and_changes_nothing(store: SqliteStore) -> None:
    await create(store, make_key("a"))
    with pytest.raises(Conflict, match="'a'"):
        await create(store, make_key("a", account="new", secret="other"), 500)
    assert len(await store.all_keys()) == 1
    with pytest.raises(BadRequest):
        await store.get_account("new")


async def test_a_name_is_free_again_once_its_key_is_revoked(store: SqliteStore) -> None:
    await create(store, make_key("a"))
    await store.revoke_key("a", NOW)
    second = await create(store, make_key("b"))
    renamed = make_key("a", secret="second", account="a")
    await store.create_key(
        KeyRecord(id="key_2", name="a", prefix="sg-2", hash=renamed.hash, account_id="a"),
        reference="x",
        at=NOW + 1,
    )
    assert (await store.get_key("a")).id == "key_2"
    assert not (await store.get_key("b")).revoked
    assert second.name == "b"


async def test_an_unlimited_key_cannot_be_made_on_a_prepaid_account(store: SqliteStore) -> None:
    with pytest.raises(Conflict, match="prepaid"):
        await create(store, make_key("a", account="dev", unlimited=True))
    made = await create(store, make_key("b", unlimited=True))
    assert made.unlimited


async def test_revoking_is_for_good_and_can_be_repeated(store: SqliteStore) -> None:
    await create(store, make_key("a"))
    assert (await store.revoke_key("a", NOW)).revoked
    assert (await store.revoke_key("a", NOW + 1)).revoked
    assert (await store.all_keys())[0].revoked


async def test_limits_change_one_by_one(store: SqliteStore) -> None:
    await create(store, make_key("a", rpm=5, tpm=6))
    changed = await store.limit_key("a", {"rpm": None, "max_streams": 3})
    assert (changed.rpm, changed.tpm, changed.max_streams) == (None, 6, 3)
    assert await store.get_key("a") == changed
    with pytest.raises(AssertionError):
        await store.limit_key("a", {"account_id": "dev"})


async def test_unknown_and_ambiguous_keys_are_refused(store: SqliteStore) -> None:
    first, second = make_key("same-start-1"), make_key("same-start-2")
    await create(store, first)
    await create(store, second)
    assert first.prefix == second.prefix
    with pytest.raises(BadRequest, match="several"):
        await store.get_key(first.prefix)
    for method in (store.get_key("x"), store.revoke_key("x", NOW), store.limit_key("x", {"rpm": 1})):
        with pytest.raises(BadRequest, match="no key 'x'"):
            await method


# By configuration


async def test_the_configurations_credit_is_credited_once(empty_store: SqliteStore) -> None:
    store = empty_store
    for at, amount in ((NOW, 100), (NOW + 1, 100), (NOW + 2, 900)):
        accounts = [ConfiguredAccount(id="team", balance_nano=amount)]
        await store.bootstrap(
            accounts, [configured_key("a", balance=7), configured_key("b", account="team")], at
        )
    assert (await balance(store, "team"), await balance(store, "a")) == (100, 7)
    references = {line.reference async for line in store.export_ledger()}
    assert references == {"bootstrap:account:team", "bootstrap:key:a"}
    assert [key.name for key in await store.all_keys()] == ["a", "b"]


async def test_a_removed_key_is_revoked_and_works_again_when_put_back(empty_store: SqliteStore) -> None:
    store = empty_store
    await store.bootstrap([], [configured_key("a", balance=7), configured_key("b")], NOW)
    await store.bootstrap([], [configured_key("b")], NOW)
    assert await state(store) == {"a": False, "b": True}
    await store.bootstrap([], [configured_key("a", balance=7), configured_key("b")], NOW)
    assert await state(store) == {"a": True, "b": True}
    assert await balance(store, "a") == 7


async def test_a_key_that_an_operator_revoked_stays_so(empty_store: SqliteStore) -> None:
    store = empty_store
    await store.bootstrap([], [configured_key("a")], NOW)
    await store.revoke_key("a", NOW)
    await store.bootstrap([], [configured_key("a")], NOW)
    assert await state(store) == {"a": False}
    await store.bootstrap([], [], NOW)
    await store.bootstrap([], [configured_key("a")], NOW)
    assert await state(store) == {"a": False}


async def test_a_key_removed_and_then_revoked_by_command_stays_revoked(empty_store: SqliteStore) -> None:
    store = empty_store
    await store.bootstrap([], [configured_key("a")], NOW)
    await store.bootstrap([], [], NOW)
    await store.revoke_key("a", NOW)
    await store.bootstrap([], [configured_key("a")], NOW)
    assert await state(store) == {"a": False}


async def test_a_new_secret_takes_the_place_of_the_old(empty_store: SqliteStore) -> None:
    store = empty_store
    await store.bootstrap([], [configured_key("a", secret="old", balance=7)], NOW)
    changed = configured_key("a", secret="new", balance=7)
    await store.bootstrap(
        [], [changed.__class__(record=make_key_with_id(changed.record, "key_new"), balance_nano=7)], NOW
    )
    assert await state(store) == {"old": False, "new": True}
    assert await balance(store, "a") == 7
    await store.bootstrap([], [configured_key("a", secret="old", balance=7)], NOW)
    assert await state(store) == {"old": True, "new": False}


def make_key_with_id(key: KeyRecord, key_id: str) -> KeyRecord:
    fields = {name: getattr(key, name) for name in KeyRecord.__struct_fields__}
    return KeyRecord(**{**fields, "id": key_id})


async def test_a_limit_set_by_command_stays_until_the_file_changes(empty_store: SqliteStore) -> None:
    store = empty_store
    await store.bootstrap([], [configured_key("a", rpm=10)], NOW)
    await store.limit_key("a", {"rpm": 99})
    await store.bootstrap([], [configured_key("a", rpm=10)], NOW)
    assert (await store.get_key("a")).rpm == 99
    await store.bootstrap([], [configured_key("a", rpm=20)], NOW)
    assert (await store.get_key("a")).rpm == 20


async def test_a_key_can_be_renamed_and_moved(empty_store: SqliteStore) -> None:
    store = empty_store
    await store.bootstrap([], [configured_key("a", secret="s")], NOW)
    await store.bootstrap([], [configured_key("b", secret="s", account="team")], NOW)
    (key,) = await store.all_keys()
    assert (key.name, key.account_id, key.revoked) == ("b", "team", False)


async def test_two_keys_can_change_names(empty_store: SqliteStore) -> None:
    store = empty_store
    await store.bootstrap([], [configured_key("a", secret="1"), configured_key("b", secret="2")], NOW)
    await store.bootstrap([], [configured_key("a", secret="2"), configured_key("b", secret="1")], NOW)
    assert {key.name: key.hash[:1] for key in await store.all_keys()} == {"a": b"2", "b": b"1"}
    assert await state(store) == {"1": True, "2": True}


async def test_names_and_secrets_of_commands_are_not_taken_over(store: SqliteStore) -> None:
    await create(store, make_key("a", secret="s"))
    for taken in (configured_key("a", secret="other"), configured_key("b", secret="s")):
        with pytest.raises(ConfigError, match="made by command"):
            await store.bootstrap([ConfiguredAccount(id="new")], [taken], NOW)
    with pytest.raises(BadRequest):
        await store.get_account("new")


async def test_an_account_follows_the_configuration(empty_store: SqliteStore) -> None:
    store = empty_store
    await store.bootstrap(
        [ConfiguredAccount(id="t", unlimited=True)], [configured_key("a", account="t")], NOW
    )
    assert (await store.get_key("a")).unlimited
    await store.bootstrap(
        [ConfiguredAccount(id="t", balance_nano=5)], [configured_key("a", account="t")], NOW
    )
    assert not (await store.get_key("a")).unlimited
    assert await balance(store, "t") == 5


# Secrets


def test_a_minted_key_is_32_random_bytes_and_never_shows_itself() -> None:
    key = mint_key(SECRET)
    assert re.fullmatch(r"sg-[A-Za-z0-9_-]{43}", key.secret)
    assert key.hash == hash_key(key.secret, SECRET)
    assert len(key.hash) == 32
    assert key.hash != hash_key(key.secret, b"t" * 32)
    assert key.secret.startswith(key.prefix)
    assert len(key.prefix) == 10
    assert mint_key(SECRET).secret != key.secret


def test_a_short_key_shows_at_most_a_third() -> None:
    assert visible_prefix("0123456789abcdef") == "01234"


def test_the_servers_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "store.secret"
    secret = load_or_create_key_secret(path)
    assert len(secret) == 32
    assert load_or_create_key_secret(path) == secret
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(path.parent) == ["store.secret"]


@pytest.mark.parametrize("text", ["", "zz", "00" * 31])
def test_a_damaged_secret_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "store.secret"
    path.write_text(text)
    with pytest.raises(StoreUnavailable, match="damaged"):
        load_or_create_key_secret(path)
    assert path.read_text() == text


def test_a_configured_secret_takes_the_place_of_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    given = find_key_secret("x" * 32, url, tmp_path)
    assert len(given) == 32
    assert os.listdir(tmp_path) == []
    assert find_key_secret(None, url, tmp_path) != given
    assert os.listdir(tmp_path) == ["store.db.secret"]
    find_key_secret(None, "postgresql://x/y", tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["key.secret", "store.db.secret"]


def test_the_configurations_keys_come_with_hashes() -> None:
    bootstrap = Bootstrap(
        accounts=(BootstrapAccount(name="t", unlimited=True), BootstrapAccount(name="a", credit_nano=3)),
        keys=(
            BootstrapKey(name="k", secret="secret-of-k-123456", account="t", rpm=4, models=("m",)),
            BootstrapKey(name="a", secret="secret-of-a-123456", account="a", credit_nano=9),
        ),
    )
    accounts, (k, a) = configured(bootstrap, SECRET)
    assert accounts == (ConfiguredAccount(id="t", unlimited=True), ConfiguredAccount(id="a", balance_nano=3))
    assert k.record.hash == hash_key("secret-of-k-123456", SECRET)
    assert (k.record.unlimited, k.record.rpm, k.record.models, k.record.prefix) == (True, 4, ("m",), "secret")
    assert (a.record.unlimited, a.balance_nano) == (False, 9)
