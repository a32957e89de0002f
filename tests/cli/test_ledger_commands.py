"""`ledger` as an operator types it: refunds, corrections, statements, invoices, files, the chain."""

import csv
import io
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet
import pytest

from sluicegate.billing.ledger import Record
from sluicegate.store.shapes import month_of
from tests.cli.world import CONFIGURATION, Sluicegate, book
from tests.records import STARTED_AT, lost_attempt, settled

MONTH = "2027-01"
"""The month of STARTED_AT."""
CHARGE = 10_000_000


@pytest.fixture
def used(sluicegate: Sluicegate, tmp_path: Path) -> Sluicegate:
    """A store with two charged requests, of two models."""
    sluicegate("keys", "list")
    first, second = settled("r1", CHARGE), settled("r2", 20, shortfall=4)
    second.row.model = "other"
    book(tmp_path, first, second)
    return sluicegate


def balance(sluicegate: Sluicegate, account: str = "dev") -> int:
    (report,) = sluicegate("ledger", "verify", "--json").lines()
    nano = report["balances_nano_usd"][f"customer:{account}"]
    assert isinstance(nano, int)
    return nano


def test_a_refund_gives_back_all_or_a_part_and_never_more(used: Sluicegate) -> None:
    before = balance(used)
    assert "0.004" in used("ledger", "refund", "r1", "0.004", "--note", "too slow").out
    assert used("ledger", "refund", "r1", "0.0061").status == 2
    assert "0.006" in used("ledger", "refund", "r1").out
    assert balance(used) == before + CHARGE
    run = used("ledger", "refund", "r1")
    assert (run.status, run.out) == (2, "")
    assert "nothing is left" in run.err
    notes = {line["note"] for line in used("ledger", "export", "--json").lines() if line["kind"] == "refund"}
    assert notes == {"too slow", None}


def test_a_refund_said_twice_moves_once(used: Sluicegate) -> None:
    told = [used("ledger", "refund", "r1", "--reference", "case-1", "--json").lines()[0] for _ in "ab"]
    assert [each["posted"] for each in told] == [True, False]
    assert [each["amount_nano_usd"] for each in told] == [CHARGE, CHARGE]
    assert used("ledger", "refund", "r2", "--reference", "case-1").status == 2
    assert used("ledger", "verify").status == 0


def test_corrections_are_about_a_request_and_adjustments_about_none(used: Sluicegate) -> None:
    before = balance(used)
    used("ledger", "adjust", "dev", "-0.003", "--request", "r1", "--note", "counted too low")
    assert balance(used) == before - 3_000_000
    used("ledger", "adjust", "dev", "0.013", "--request", "r1")
    assert used("ledger", "adjust", "dev", "0.000000001", "--request", "r1").status == 2
    assert used("ledger", "adjust", "dev", "1").out.startswith("$1 put into account 'dev', which has $")
    assert used("ledger", "adjust", "dev", "-1").out.startswith("$1 taken out of account 'dev', which has $")
    used("ledger", "adjust", "dev", "1")
    assert balance(used) == before + 1_010_000_000
    kinds = [
        line["kind"]
        for line in used("ledger", "export", "--json").lines()
        if line["account"] == "customer:dev"
    ]
    assert kinds[-5:] == ["correction", "correction", "adjust", "adjust", "adjust"]
    assert used("ledger", "verify").status == 0


@pytest.mark.parametrize(
    "words",
    [
        "ledger refund nobody",
        "ledger refund r1 0",
        "ledger refund r1 -1",
        "ledger refund r1 1",
        "ledger refund r1 much",
        "ledger refund r1 9223372037",
        "ledger adjust dev 0",
        "ledger adjust dev -5.1",
        "ledger adjust nobody 1",
        "ledger adjust team 0.000001 --request r1",
        "ledger adjust dev 0.02 --request r1",
        "ledger adjust dev 1 --request nothing",
        "ledger adjust dev 9223372036",
        "ledger statement nobody",
        "ledger statement dev --month 2027-13",
        "ledger statement dev --month soon",
        "ledger verify --anchor 3",
        "ledger verify --anchor x:00",
        "ledger export --format parquet",
        "ledger reconcile p no-such-file.csv",
        "ledger export --output /nowhere/x.csv",
    ],
)
def test_bad_input_is_one_clear_line_and_changes_nothing(used: Sluicegate, words: str) -> None:
    before = used("ledger", "export").out
    run = used(*words.split())
    assert (run.status, run.out) == (2, "")
    assert re.fullmatch(r"sluicegate: .+\n", run.err)
    assert used("ledger", "export").out == before


def test_a_statement_adds_up_to_the_nano_dollar(used: Sluicegate, tmp_path: Path) -> None:
    used("ledger", "refund", "r1", "0.001")
    since, until = month_of(MONTH)
    late: list[Record] = [settled("r3", 7, started_at=until - 0.001), settled("r4", 9, started_at=until)]
    book(tmp_path, *late)
    with closing(
        sqlite3.connect(tmp_path / "store.db")
    ) as outside:  # what was posted today belongs to another month
        outside.execute("DROP TRIGGER no_update_of_entries")
        outside.execute("UPDATE entries SET at = ? WHERE kind = 'bootstrap'", (since - 1,))
        outside.execute("UPDATE entries SET at = ? WHERE kind = 'refund'", (until - 1,))
        outside.commit()
    (told,) = used("ledger", "statement", "dev", "--month", MONTH, "--json").lines()
    assert (told["since"], told["until"]) == ("2027-01-01T00:00:00.000Z", "2027-02-01T00:00:00.000Z")
    assert told["opening_nano_usd"] == 5_000_000_000
    assert [(each["kind"], each["amount_nano_usd"]) for each in told["movements"]] == [("refund", 1_000_000)]
    assert told["charged_nano_usd"] == CHARGE + 20 + 7
    assert told["closing_nano_usd"] == 5_000_000_000 + 1_000_000 - CHARGE - 27
    assert [(each["model"], each["requests"], each["charged_nano_usd"]) for each in told["models"]] == [
        ("m", 2, CHARGE + 7),
        ("other", 1, 20),
    ]
    assert told["models"][1]["shortfall_nano_usd"] == 4
    assert told["models"][0]["input_tokens"] == 200
    (following,) = used("ledger", "statement", "dev", "--month", "2027-02", "--json").lines()
    assert following["opening_nano_usd"] == told["closing_nano_usd"]
    assert following["charged_nano_usd"] == 9
    shown = used("ledger", "statement", "dev", "--month", MONTH).out
    assert re.search(r"closing +4\.990999973\b", shown)


def test_months_of_the_calendar() -> None:
    assert [month_of("2028-02")[1] - month_of("2028-02")[0], month_of("2027-12")[1]] == [
        29 * 86_400.0,
        month_of("2028-01")[0],
    ]
    since, until = month_of(None)
    assert until > since > STARTED_AT - 400 * 86_400


def test_parquet_says_the_same_as_json(used: Sluicegate, tmp_path: Path) -> None:
    used("ledger", "refund", "r1", "0.001", "--note", "zażółć")
    path = tmp_path / "ledger.parquet"
    assert used("ledger", "export", "--format", "parquet", "--output", str(path)).status == 0
    table = pyarrow.parquet.read_table(path)
    assert str(table.schema.field("amount_nano_usd").type) == "int64"
    assert str(table.schema.field("at").type) == "timestamp[us, tz=UTC]"
    rows = table.to_pylist()
    lines = used("ledger", "export", "--json").lines()
    for row, line in zip(rows, lines, strict=True):
        assert row.pop("at").isoformat(timespec="milliseconds").replace("+00:00", "Z") == line.pop("at")
        assert row == line
    assert sum(row["amount_nano_usd"] for row in rows) == 0


def test_files_hold_what_is_printed(used: Sluicegate, tmp_path: Path) -> None:
    for form in ("csv", "jsonl"):
        path = tmp_path / f"ledger.{form}"
        used("ledger", "export", "--format", form, "--output", str(path))
        assert path.read_text() == used("ledger", "export", "--format", form).out


def test_an_anchor_noted_outside_is_asked_for_again(used: Sluicegate) -> None:
    *_, line = used("ledger", "anchors").out.splitlines()
    day, anchor = line.split()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day)
    assert used("ledger", "verify", "--anchor", anchor).status == 0
    *_, as_json = used("ledger", "anchors", "--json").lines()
    assert f"{as_json['entry']}:{as_json['hash']}" == anchor
    run = used("ledger", "verify", "--anchor", anchor[:-1] + ("0" if anchor[-1] != "0" else "1"))
    assert run.status == 1
    assert "anchor" in run.out


def invoice(folder: Path, text: str) -> str:
    path = folder / "invoice.csv"
    path.write_text(text)
    return str(path)


def test_an_invoice_is_held_against_the_rows(used: Sluicegate, tmp_path: Path) -> None:
    config = tmp_path / "sluicegate.yaml"
    config.write_text(CONFIGURATION.replace("model: m}", "model: upstream-m, cost: {input: 1, output: 2}}"))
    book(tmp_path, lost_attempt("r1"))
    header = "model,requests,input_tokens,output_tokens,cost_usd\n"
    right = invoice(tmp_path, f"{header}upstream-m,1,100,20,0.00014\nupstream-m,1,100,20,0.00014\n")
    run = used("ledger", "reconcile", "p", right, "--month", MONTH, "--json")
    assert [(line["what"], line["ours"], line["fits"]) for line in run.lines()] == [
        ("requests", 2, True),
        ("input_tokens", 200, True),
        ("output_tokens", 40, True),
        ("cost_nano_usd", 280_000, True),
    ]
    more = invoice(tmp_path, f"{header}upstream-m,2,202,40,0.00028\nunknown,1,5,5,1\n")
    run = used("ledger", "reconcile", "p", more, "--month", MONTH, "--json")
    assert run.status == 1
    found = [json.loads(line) for line in run.out.splitlines()]
    assert [(line["model"], line["what"]) for line in found if not line["fits"]] == [
        ("unknown", "requests"),
        ("unknown", "input_tokens"),
        ("unknown", "output_tokens"),
        ("unknown", "cost_nano_usd"),
        ("upstream-m", "input_tokens"),
    ]
    near = invoice(tmp_path, f"{header}upstream-m,2,202,40,0.00028\n")
    assert used("ledger", "reconcile", "p", near, "--month", MONTH, "--tolerance", "1").status == 0
    assert "differs" in used("ledger", "reconcile", "p", near, "--month", MONTH).out


@pytest.mark.parametrize(
    ("provider", "text", "told"),
    [
        ("q", "model,requests\nm,1\n", "no provider 'q'"),
        ("p", "name,requests\nm,1\n", "must name `model`"),
        ("p", "model,price\nm,1\n", "must name `model`"),
        ("p", "model,requests\nm,many\n", "line 2, requests"),
        ("p", "model,requests\nm,-1\n", "line 2, requests"),
        ("p", "model,cost_usd\nm,1\nm,$1\n", "line 3, cost_usd"),
        ("p", "", "must name `model`"),
    ],
)
def test_an_invoice_that_makes_no_sense_is_told_by_line(
    used: Sluicegate, tmp_path: Path, provider: str, text: str, told: str
) -> None:
    run = used("ledger", "reconcile", provider, invoice(tmp_path, text), "--month", MONTH)
    assert (run.status, run.out) == (2, "")
    assert told in run.err


def test_csv_has_a_column_for_everything(used: Sluicegate) -> None:
    used("ledger", "refund", "r1", "--note", 'said "no", twice')
    rows = list(csv.DictReader(io.StringIO(used("ledger", "export").out)))
    assert (rows[-1]["request_id"], rows[-1]["note"]) == ("r1", 'said "no", twice')
