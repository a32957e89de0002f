"""`keys`, `usage` and `ledger` as an operator types them: without a supervisor, and beside one."""

import asyncio
import csv
import io
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate.server.control_socket import ControlSocket
from sluicegate.store.keys import hash_key, load_or_create_key_secret
from sluicegate.store.operations import apply_operation
from sluicegate.store.sqlite import SqliteStore
from tests.cli.world import Sluicegate, book
from tests.records import STARTED_AT, settled


def test_a_key_is_printed_once_alone_and_stored_as_a_hash(sluicegate: Sluicegate, tmp_path: Path) -> None:
    run = sluicegate("keys", "create", "joe", "--account", "team")
    assert run.status == 0
    secret = run.out.removesuffix("\n")
    assert re.fullmatch(r"sg-[A-Za-z0-9_-]{43}", secret)
    assert "'joe'" in run.err
    kept = (tmp_path / "store.db").read_bytes()
    assert secret.encode() not in kept
    assert hash_key(secret, load_or_create_key_secret(tmp_path / "store.db.secret")) in kept
    listed = sluicegate("keys", "list", "--json").lines()
    assert [(key["name"], key["account"], key["prefix"]) for key in listed] == [
        ("dev", "dev", "sg-0123"),
        ("joe", "team", secret[:10]),
    ]
    assert secret not in sluicegate("keys", "list").out


def test_a_key_with_everything(sluicegate: Sluicegate) -> None:
    (made,) = sluicegate(
        *(
            "keys",
            "create",
            "joe",
            "--json",
            "--balance",
            "3.5",
            "--rpm",
            "5",
            "--tpm",
            "6",
            "--max-streams",
            "7",
        ),
        *(
            "--day-usd",
            "1",
            "--week-usd",
            "2",
            "--month-usd",
            "3",
            "--lifetime-usd",
            "4e-9",
            "--on-limit",
            "finish",
        ),
        *("--expires", "2030-01-01", "--model", "m", "--model", "openai/*"),
    ).lines()
    assert made.pop("key").startswith("sg-")
    assert made == sluicegate("keys", "list", "--json").lines()[1]
    assert made["balance_nano_usd"] == 3_500_000_000
    assert (made["rpm"], made["tpm"], made["max_streams"], made["lifetime_nano_usd"]) == (5, 6, 7, 4)
    assert (made["models"], made["expires_at"]) == (["m", "openai/*"], "2030-01-01T00:00:00Z")


def test_credit_goes_to_the_keys_account(sluicegate: Sluicegate) -> None:
    assert "$30" in sluicegate("keys", "topup", "dev", "25").out
    told = [
        sluicegate("keys", "topup", "team", "1", "--account", "--reference", "pay-1", "--json") for _ in "ab"
    ]
    assert [run.lines()[0]["posted"] for run in told] == [True, False]
    assert told[1].lines()[0]["balance_nano_usd"] == 101_000_000_000


def test_limits_are_changed_and_lifted(sluicegate: Sluicegate) -> None:
    assert "rpm 60" in sluicegate("keys", "limit", "dev", "--rpm", "60", "--month-usd", "3").out
    (key,) = sluicegate("keys", "limit", "dev", "--rpm", "none", "--json").lines()
    assert (key["rpm"], key["month_nano_usd"]) == (None, 3_000_000_000)
    run = sluicegate("keys", "limit", "dev", "--model", "no-such", "--json")
    assert run.lines()[0]["models"] == ["no-such"]
    assert "there is no model no-such in" in run.err
    run = sluicegate("keys", "limit", "dev", "--model", "none", "--json")
    assert (run.lines()[0]["models"], run.err) == (["*"], "")


def test_a_revoked_key_stays_revoked(sluicegate: Sluicegate) -> None:
    assert sluicegate("keys", "revoke", "dev").status == 0
    assert sluicegate("keys", "revoke", "dev", "--json").lines()[0]["revoked"]
    assert sluicegate("keys", "list", "--json").lines()[0]["revoked"]


@pytest.mark.parametrize(
    "words",
    [
        "keys topup dev -5",
        "keys topup dev 0",
        "keys topup dev much",
        "keys topup dev 0.0000000001",
        "keys topup dev 9223372037",
        "keys topup dev 9223372036",
        "keys topup dev 1e30",
        "keys topup nobody 5",
        "keys topup nobody 5 --account",
        "keys limit dev",
        "keys limit dev --rpm -1",
        "keys limit dev --rpm 99999999999999999999",
        "keys limit dev --rpm 1.5",
        "keys limit dev --day-usd -1",
        "keys limit dev --expires soon",
        "keys limit dev --on-limit perhaps",
        "keys limit nobody --rpm 1",
        "keys revoke nobody",
        "keys create dev",
        "keys create x --balance -1",
        "keys create x --account tema --unlimited",
        "keys create x --account tema",
        "keys create x --account team --unlimited",
        "keys create x --account tema --balance 5",
        "keys create x --create-account",
        "usage --since yesterday",
    ],
)
def test_bad_input_is_one_clear_line_and_changes_nothing(sluicegate: Sluicegate, words: str) -> None:
    before = sluicegate("keys", "list", "--json").lines()
    run = sluicegate(*words.split())
    assert run.status == 2
    assert run.out == ""
    assert re.fullmatch(r"sluicegate: .+\n", run.err)
    assert sluicegate("keys", "list", "--json").lines() == before


def test_an_account_that_is_not_there_is_made_only_when_told_to(sluicegate: Sluicegate) -> None:
    made = ("keys", "create", "joe", "--account", "platform-team")
    assert sluicegate(*made, "--create-account", "--balance", "5").status == 0
    slip = sluicegate("keys", "create", "ann", "--account", "platfrom-team")
    assert slip.status == 2
    assert "no account 'platfrom-team'; did you mean 'platform-team'?; --create-account makes it" in slip.err
    assert (
        "did you mean 'platform-team'?" in sluicegate("keys", "topup", "Platform-Team", "5", "--account").err
    )
    assert "did you mean" not in sluicegate("keys", "create", "ann", "--account", "qqq").err
    for name in ("ann", "bob"):  # there it is: told to make it or not
        told = () if name == "ann" else ("--create-account",)
        assert sluicegate("keys", "create", name, "--account", "platform-team", *told).status == 0
    keys = sluicegate("keys", "list", "--json").lines()
    assert [key["account"] for key in keys] == ["dev", "platform-team", "platform-team", "platform-team"]
    assert {key["balance_nano_usd"] for key in keys[1:]} == {5_000_000_000}


def test_usage_shows_every_field_of_every_row(sluicegate: Sluicegate, tmp_path: Path) -> None:
    sluicegate("keys", "list")
    book(tmp_path, settled("b", 20, started_at=STARTED_AT + 1), settled("a", 10, shortfall=4))
    first, second = sluicegate("usage", "--json").lines()
    assert (first["request_id"], second["request_id"]) == ("a", "b")
    assert list(first)[:25] == [
        *(
            "request_id",
            "key",
            "model",
            "provider",
            "provider_model",
            "client_format",
            "provider_format",
            "stream",
        ),
        *(
            "status",
            "finish_reason",
            "input_tokens",
            "cache_read_tokens",
            "cache_write_tokens",
            "output_tokens",
        ),
        *("reasoning_tokens", "usage_source", "cost_nano_usd", "list_cost_nano_usd", "shortfall_nano_usd"),
        *("ttft_ms", "duration_ms", "tokens_per_s", "attempts", "started_at", "error"),
    ]
    assert (first["cost_nano_usd"], first["list_cost_nano_usd"], first["shortfall_nano_usd"]) == (10, 14, 4)
    assert (first["cache_read_tokens"], first["started_at"]) == (None, "2027-01-15T08:00:00.000Z")
    assert len(sluicegate("usage", "--json", "--limit", "1").lines()) == 1
    assert sluicegate("usage", "--json", "--key", "nobody").lines() == []
    assert len(sluicegate("usage", "--json", "--since", "2027-01-15T08:00:01Z").lines()) == 1
    assert "0.00000001" in sluicegate("usage").out


def test_the_ledger_is_verified_and_handed_out(sluicegate: Sluicegate, tmp_path: Path) -> None:
    sluicegate("keys", "list")
    book(tmp_path, settled("a", 10, shortfall=4))
    assert sluicegate("ledger", "verify").out.startswith(
        "clean: 4 entries, 1 settlements, 3 links of the chain\n"
    )
    (report,) = sluicegate("ledger", "verify", "--json").lines()
    assert report["clean"]
    assert sum(report["balances_nano_usd"].values()) == 0
    lines = sluicegate("ledger", "export", "--json").lines()
    assert sum(line["amount_nano_usd"] for line in lines) == 0
    assert {line["reference"] for line in lines} == {"bootstrap:account:team", "bootstrap:key:dev", "a"}
    rows = list(csv.DictReader(io.StringIO(sluicegate("ledger", "export").out)))
    assert [{name: str(value or "") for name, value in line.items()} for line in lines] == [
        {name: "" if value == "0" else value for name, value in row.items()} for row in rows
    ]


def test_a_ledger_that_does_not_add_up_is_status_1(sluicegate: Sluicegate, tmp_path: Path) -> None:
    sluicegate("keys", "list")

    async def spoil() -> None:
        store = SqliteStore(tmp_path / "store.db")
        await store.open()
        async with store._writer.begin() as connection:  # type: ignore[union-attr]
            await connection.exec_driver_sql("UPDATE balances SET balance_nano = 1 WHERE account = 'revenue'")
        await store.close()

    asyncio.run(spoil())
    run = sluicegate("ledger", "verify")
    assert run.status == 1
    assert run.out.startswith("revenue: its entries sum to 0")


@pytest.mark.parametrize("words", ["usage", "usage --json", "ledger verify", "ledger export"])
def test_reading_without_a_store_is_one_clear_line(
    sluicegate: Sluicegate, tmp_path: Path, words: str
) -> None:
    run = sluicegate(*words.split())
    assert (run.status, run.out) == (1, "")
    assert "no store" in run.err
    assert os.listdir(tmp_path) == ["sluicegate.yaml"]


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[list[str]]:
    """A supervisor's control socket, in a thread; what it was asked."""
    asked: list[str] = []
    folder = tmp_path / "journal"
    folder.mkdir()
    up, stop = threading.Event(), threading.Event()

    async def listen() -> None:
        store = SqliteStore(tmp_path / "store.db")
        await store.open()

        async def perform(operation: str, args: dict[str, Any]) -> Any:
            asked.append(operation)
            return await apply_operation(store, operation, args)

        control = ControlSocket(folder, perform)
        await control.open()
        up.set()
        while not stop.is_set():
            await asyncio.sleep(0.01)
        await control.close()
        await store.close()

    thread = threading.Thread(target=asyncio.run, args=(listen(),))
    thread.start()
    assert up.wait(10)
    yield asked
    stop.set()
    thread.join()


def test_writes_go_through_the_running_supervisor(sluicegate: Sluicegate, asked: list[str]) -> None:
    sluicegate("keys", "create", "joe", "--balance", "1")
    sluicegate("keys", "topup", "joe", "1")
    sluicegate("keys", "limit", "joe", "--rpm", "1")
    sluicegate("keys", "revoke", "joe")
    assert sluicegate("keys", "topup", "nobody", "1").status == 2
    assert sluicegate("keys", "list", "--json").lines()[0]["balance_nano_usd"] == 2_000_000_000
    sluicegate("usage")
    assert asked == ["keys.create", "keys.topup", "keys.limit", "keys.revoke", "keys.topup", "keys.list"]


def test_a_lost_store_is_not_begun_anew_while_there_are_journals(
    sluicegate: Sluicegate, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    (folder / "0001-42-00112233445566ff-000000.journal").write_bytes(b"")
    for words in (["keys", "list"], ["serve"]):
        run = sluicegate(*words)
        assert (run.status, run.out) == (2, "")
        assert re.fullmatch(
            r"sluicegate: there is no store at .+store\.db, but .+ put the store back.+\n", run.err
        )
        assert not (tmp_path / "store.db").exists()


def test_what_the_configuration_would_not_take_is_refused(sluicegate: Sluicegate) -> None:
    for arguments, told in {
        ("create", ""): "the name must be a name of 1 to 100 printable characters",
        ("create", "a\nb"): "the name must be a name",
        ("create", "joe", "--account", " "): "--account must be a name",
        ("create", "joe", "--model", "a*b"): "--model may have one * only, at the end",
        ("create", "joe", "--expires", "9999-12-31T23:59:59-14:00"): "--expires must be a date or time",
        ("create", "joe", "--balance", "9" * 5000): "--balance: not a decimal amount of USD",
        ("topup", "nobody", "5"): "there is no key 'nobody'; --account names an account",
    }.items():
        run = sluicegate("keys", *arguments)
        assert (run.status, run.out) == (2, ""), arguments
        assert told in run.err
    run = sluicegate("keys", "create", "joe", "--acount", "team")
    assert run.status == 2
    assert "--account" in run.err
    assert len(sluicegate("keys", "list", "--json").lines()) == 1


def test_a_key_past_its_time_is_listed_as_expired(sluicegate: Sluicegate) -> None:
    assert "no model elsewhere" in sluicegate("keys", "create", "joe", "--model", "elsewhere").err
    sluicegate("keys", "limit", "joe", "--expires", "2020-01-01")
    dev, joe = sluicegate("keys", "list").out.splitlines()[1:]
    assert "in force" in dev
    assert "expired" in joe


def test_a_table_is_whole_however_narrow_the_window(
    sluicegate: Sluicegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a-name-that-is-longer-than-the-window-which-it-is-shown-in"
    sluicegate("keys", "create", name, "--day-usd", "5")
    monkeypatch.setenv("COLUMNS", "40")
    assert f"{name}  " in sluicegate("keys", "list").out
    assert all("in force" in line for line in sluicegate("keys", "list").out.splitlines()[1:])
