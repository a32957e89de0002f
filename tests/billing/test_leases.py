"""The lease book: grants never pass what is free, and nothing is lost or made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.billing.leases import PLENTY, SCARCE, LeaseBook, lease_size

nano = st.integers(0, 2_000)
steps = st.lists(
    st.tuples(
        st.sampled_from(["lease", "part", "back", "book", "hold", "release", "die", "top up"]),
        st.sampled_from(["a", "b"]),
        st.integers(1, 3),
        nano,
    ),
    max_size=60,
)


@given(steps)
def test_leases_never_pass_the_balance(steps: list[tuple[str, str, int, int]]) -> None:
    """Beside the book stands a plain model: one number for each account, worker and hold."""
    balances = {"a": 5_000, "b": 100}
    leased = {(account, worker): 0 for account in balances for worker in (1, 2, 3)}
    held: dict[str, list[int]] = {"a": [], "b": []}
    book = LeaseBook(dict(balances))

    def free(account: str) -> int:
        return balances[account] - sum(leased[account, n] for n in (1, 2, 3)) - sum(held[account])

    for what, account, worker, amount in steps:
        before = free(account)
        match what:
            case "lease":
                grant = book.lease(account, worker, amount, 3)
                assert grant.available_nano == before
                assert (grant.amount_nano >= amount) if 0 < amount <= before else grant.amount_nano == 0
                leased[account, worker] += grant.amount_nano
            case "part":
                grant = book.lease_part(account, worker, amount)
                assert grant.amount_nano == min(amount, before)
                leased[account, worker] += grant.amount_nano
            case "back":
                amount = min(amount, leased[account, worker])
                book.give_back(account, worker, amount)
                leased[account, worker] -= amount
            case "book":
                amount = min(amount, leased[account, worker])
                book.book(account, worker, amount)
                leased[account, worker] -= amount
                balances[account] -= amount
                assert free(account) == before
            case "hold":
                assert book.hold(account, amount) == (amount <= before)
                if amount <= before:
                    held[account].append(amount)
            case "release" if held[account]:
                book.release(account, held[account].pop())
            case "die":
                book.release_worker(worker)
                leased.update({(name, worker): 0 for name in balances})
            case "top up":
                balances[account] += amount
                book.set_balance(account, balances[account])
        assert free(account) >= 0
        for name in balances:
            assert book.free(name) == free(name)
            assert book.holders(name) == {n for n in (1, 2, 3) if leased[name, n]}
            assert book.taken(name) == balances[name] - free(name)
    assert book.totals() == (sum(balances.values()), sum(leased.values()))


@given(st.integers(1, 10**6), st.integers(1, 10**12), st.integers(1, 32))
def test_a_lease_is_one_reservation_where_credit_is_short_and_more_where_it_is_not(
    need: int, extra: int, workers: int
) -> None:
    free = need + extra
    size = lease_size(free, need, workers)
    if free < SCARCE * workers * need:
        assert size == need
    else:
        assert need < size <= min(PLENTY * need, free // (4 * workers))


def test_a_worker_that_gives_back_more_than_it_holds_is_wrong() -> None:
    book = LeaseBook({"a": 100})
    book.lease("a", 1, 60, 1)
    for amount in (61, -1):
        with pytest.raises(AssertionError):
            book.give_back("a", 1, amount)
    with pytest.raises(AssertionError):
        book.give_back("nobody", 1, 1)
    book.give_back("nobody", 1, 0)
    assert book.free("a") == 40


def test_a_charge_of_a_worker_nobody_leased_to_lowers_the_balance_alone() -> None:
    book = LeaseBook({"a": 100})
    book.book("a", None, 30)
    book.book("a", 7, 30)
    book.book("unlimited", 7, 30)
    assert book.free("a") == 40
    assert not book.knows("unlimited")
