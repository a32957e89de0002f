"""The posting rules: who pays what, and what a dead worker's requests become."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.billing.ledger import (
    Entry,
    Record,
    Reservation,
    Reservations,
    Settled,
    UsageRow,
    charge,
    deposit,
    provider_cost,
    settle_after_crash,
    settlement,
    shortfall,
)
from sluicegate.money import MAX_NANO
from tests.records import checkpoint, extended, lost_attempt, reserved, settled

amounts = st.integers(0, MAX_NANO)


def pending_after(*records: Record) -> Reservation:
    reservations = Reservations()
    for record in records:
        reservations.apply(record)
    (only,) = reservations
    return only


def settle(
    resolved: Settled, balance_nano: int | None, room_nano: int = MAX_NANO
) -> tuple[UsageRow, list[Entry]]:
    """Return a request's row as it counts, and what is posted of it."""
    row = settlement(resolved, balance_nano, room_nano)
    rest = shortfall(row, 5.0)
    return row, [charge(row, 5.0)] if rest is None else [charge(row, 5.0), rest]


def test_a_charge_goes_from_the_customer_to_revenue() -> None:
    row, (charged,) = settle(settled("r1", 700), 1000)
    assert (charged.debit, charged.credit, charged.amount_nano) == ("customer:dev", "revenue", 700)
    assert (charged.reference, charged.kind, charged.attempt, charged.at) == ("r1", "charge", 0, 5.0)
    assert row.cost_nano_usd == 700


def test_a_request_that_cost_nothing_is_still_posted_once() -> None:
    _, (charged,) = settle(settled("r1", 0), 0)
    assert (charged.kind, charged.amount_nano) == ("charge", 0)


def test_what_credit_did_not_cover_is_posted_from_shortfall() -> None:
    row, (charged, rest) = settle(settled("r1", 700, shortfall=300), 700)
    assert charged.amount_nano == 700
    assert (rest.debit, rest.credit, rest.amount_nano) == ("shortfall", "revenue", 300)
    assert row.shortfall_nano_usd == 300


def test_a_charge_never_takes_more_than_the_balance() -> None:
    row, (charged, rest) = settle(settled("r1", 700), 200)
    assert (charged.amount_nano, rest.amount_nano) == (200, 500)
    assert (row.cost_nano_usd, row.shortfall_nano_usd) == (200, 500)


def test_an_account_without_a_bound_may_go_below_zero() -> None:
    _, (charged,) = settle(settled("r1", 700), None)
    assert charged.amount_nano == 700


def test_a_settlement_books_under_its_own_request_and_account() -> None:
    odd = settled("r1", 1)
    odd.row.request_id, odd.row.account_id = "other", "other"
    row, (charged,) = settle(odd, None)
    assert (row.request_id, row.account_id, charged.reference) == ("r1", "dev", "r1")
    assert charged.debit == "customer:dev"


@given(
    cost=st.integers(-MAX_NANO, 2 * MAX_NANO),
    short=st.integers(-MAX_NANO, 2 * MAX_NANO),
    balance=st.none() | st.integers(-MAX_NANO, MAX_NANO),
    room=amounts,
)
def test_nonsense_never_leaves_the_books(cost: int, short: int, balance: int | None, room: int) -> None:
    row, entries = settle(settled("r1", cost, shortfall=short), balance, room)
    posted = {entry.kind: entry.amount_nano for entry in entries}
    assert all(amount >= 0 for amount in posted.values())
    assert sum(posted.values()) <= room
    assert posted["charge"] == row.cost_nano_usd
    assert posted.get("shortfall", 0) == row.shortfall_nano_usd
    if balance is not None:
        assert posted["charge"] <= max(balance, 0)


def test_a_lost_attempt_is_the_operators_cost() -> None:
    entry = provider_cost(lost_attempt("r1", 2, 55))
    assert entry is not None
    assert (entry.debit, entry.credit, entry.amount_nano, entry.attempt) == (
        "provider_cost",
        "funding",
        55,
        2,
    )
    assert provider_cost(lost_attempt("r1", 2, None)) is None


@pytest.mark.parametrize(
    ("amount", "kind", "debit", "credit"),
    [
        (5, "topup", "funding", "customer:dev"),
        (-5, "adjust", "customer:dev", "funding"),
        (5, "refund", "revenue", "customer:dev"),
    ],
)
def test_money_by_hand_passes_between_customer_and_world(
    amount: int, kind: str, debit: str, credit: str
) -> None:
    entry = deposit("dev", amount, reference="x", kind=kind, at=5.0)  # type: ignore[arg-type]
    assert (entry.debit, entry.credit, entry.amount_nano) == (debit, credit, 5)


def test_a_reservation_is_pending_until_it_is_settled() -> None:
    assert pending_after(reserved("r1", 100), extended("r1", 50)).amount_nano == 150
    reservations = Reservations()
    for record in (
        reserved("r1"),
        reserved("r2"),
        settled("r1", 5),
        settled("unknown", 5),
        lost_attempt("r2"),
    ):
        reservations.apply(record)
    assert [pending.request_id for pending in reservations] == ["r2"]
    assert len(reservations) == 1


def test_copies_at_a_segments_head_change_nothing() -> None:
    head = [reserved("r1", 100), extended("r1", 50), checkpoint("r1", 70)]
    assert pending_after(*head, *head) == pending_after(*head)


def crashed(*records: Record) -> tuple[list[Record], Settled]:
    resolved = settle_after_crash(pending_after(*records), at=9.0)
    last = resolved[-1]
    assert isinstance(last, Settled)
    return resolved, last


def test_a_crash_charges_nothing_by_default() -> None:
    (lost, _), last = crashed(reserved("r1", 100))
    assert (last.row.status, last.row.cost_nano_usd) == ("interrupted", 0)
    assert last.row.error is not None
    assert lost == lost_attempt("r1", 1, None) or (lost.request_id, lost.amount_nano) == ("r1", None)  # type: ignore[union-attr]


def test_a_crash_charges_the_last_checkpoint_under_produced() -> None:
    _, last = crashed(reserved("r1", 100, on_crash="produced"), checkpoint("r1", 30), checkpoint("r1", 60))
    assert (last.row.status, last.row.cost_nano_usd) == ("interrupted", 60)
    _, last = crashed(reserved("r1", 100, on_crash="produced"))
    assert last.row.cost_nano_usd == 0
    _, last = crashed(reserved("r1", 100), checkpoint("r1", 60))
    assert last.row.cost_nano_usd == 0


@pytest.mark.parametrize("on_crash", ["none", "produced"])
def test_a_stream_whose_finish_had_left_is_complete_and_counted(on_crash: str) -> None:
    resolved, last = crashed(reserved("r1", 100, on_crash=on_crash), checkpoint("r1", 80, finished=True))
    assert resolved == [last]
    assert (last.row.status, last.row.usage_source, last.row.cost_nano_usd) == ("ok", "counted", 80)


def test_a_checkpoint_whose_reservation_was_damaged_still_resolves() -> None:
    _, last = crashed(checkpoint("r1", 80, finished=True))
    assert (last.account_id, last.row.cost_nano_usd) == ("dev", 80)
