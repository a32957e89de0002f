"""The auditor finds what it is there for: right books pass, and each way of falsifying them is told."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from sluicegate.simulator.answer import of_tokens
from sluicegate.simulator.record import Received
from tests.crash.audit import CRASHED, Audit
from tests.crash.books import Books
from tests.crash.load import Seen

CREDIT = 1_000_000
COST = 9 * 1_000 + 5 * 2_000


def make_row(number: int, **changes: Any) -> dict[str, Any]:
    """A row as `usage --json` prints it, of a whole answer."""
    row = {
        "request_id": f"req_{number}",
        "client_request_id": f"crash-{number}",
        "key": "prepaid",
        "account": "prepaid",
        "status": "ok",
        "usage_source": "reported",
        "error": None,
        "input_tokens": 9,
        "output_tokens": 5,
        "cost_nano_usd": COST,
        "list_cost_nano_usd": COST,
        "shortfall_nano_usd": 0,
    }
    return row | changes


def make_lines(reference: str, nano: int, kind: str = "charge") -> list[dict[str, Any]]:
    """Both sides of an entry as `ledger export` prints them."""
    sides = {"customer:prepaid": -nano, "revenue": nano} if kind == "charge" else {"customer:prepaid": nano}
    return [
        {"reference": reference, "kind": kind, "account": account, "amount_nano_usd": amount}
        for account, amount in sides.items()
    ]


def right_books() -> Books:
    """A whole answer, and one that a kill cut."""
    nothing = {"usage_source": "none", "input_tokens": None, "output_tokens": None}
    free = {"cost_nano_usd": 0, "list_cost_nano_usd": 0}
    cut = make_row(1, status="interrupted", error=CRASHED, **nothing, **free)
    lines = [
        *make_lines("bootstrap", CREDIT, "bootstrap"),
        *make_lines("req_0", COST),
        *make_lines("req_1", 0),
    ]
    verdict = {"clean": True, "problems": [], "balances_nano_usd": {"customer:prepaid": CREDIT - COST}}
    return Books([make_row(0), cut], lines, verdict)


def seen() -> list[Seen]:
    """What the clients of both saw, and a third that was refused."""
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "cost_nano_usd": COST}
    whole = Seen(0, "prepaid", "stream", 200, "req_0", whole=True, finished=True, usage=usage)
    return [whole, Seen(1, "prepaid", "stream", 200, "req_1"), Seen(2, "prepaid", "plain")]


def made(number: int, tokens: int) -> Received:
    """What the provider was asked, and made of an answer of five tokens."""
    received = Received(number, 1)
    received.body = b'{"user":"crash-%d"}' % number
    received.answer = of_tokens(5)
    received.weight_sent = tokens
    return received


def audit(books: Books, on_crash: str = "none") -> Audit:
    return Audit(seen(), [made(0, 5), made(1, 2)], books, {"prepaid": CREDIT}, on_crash=on_crash)


def test_right_books_pass() -> None:
    found = audit(right_books())
    assert found.problems == []
    figures = found.figures
    assert (figures.requests, figures.whole, figures.cut, figures.unanswered) == (3, 1, 1, 1)
    assert (figures.rows, figures.crashed, figures.charged_nano) == (2, 1, COST)
    assert (figures.lost, figures.twice) == (0, 0)


def lose_the_row(books: Books) -> None:
    del books.rows[0]


def lose_the_charge(books: Books) -> None:
    del books.lines[1:3]


def charge_less(books: Books) -> None:
    books.rows[0] |= {"cost_nano_usd": COST - 1, "list_cost_nano_usd": COST - 1}
    books.lines[1:3] = make_lines("req_0", COST - 1)


def call_it_interrupted(books: Books) -> None:
    books.rows[0] |= {"status": "interrupted", "error": CRASHED}


def charge_twice(books: Books) -> None:
    books.lines.extend(make_lines("req_0", COST))


def two_rows_of_an_id(books: Books) -> None:
    books.rows.append(make_row(0))


def two_rows_of_a_request(books: Books) -> None:
    books.rows.append(make_row(0, request_id="req_9"))
    books.lines.extend(make_lines("req_9", COST))


def lose_the_cut_one(books: Books) -> None:
    del books.rows[1]


def charge_the_cut_one(books: Books) -> None:
    books.rows[1] |= {"cost_nano_usd": 2_000, "list_cost_nano_usd": 2_000, "output_tokens": 1}


def bill_more_than_was_made(books: Books) -> None:
    books.rows[1] |= {
        "error": "Overloaded",
        "output_tokens": 3,
        "cost_nano_usd": 6_000,
        "list_cost_nano_usd": 6_000,
    }


def invent_a_row(books: Books) -> None:
    books.rows.append(make_row(7))


def invent_a_reason(books: Books) -> None:
    books.rows[1] |= {"status": "client_closed"}


def keep_a_wrong_balance(books: Books) -> None:
    books.verdict["balances_nano_usd"]["customer:prepaid"] += 1


def fail_verification(books: Books) -> None:
    books.verdict.update(clean=False, problems=["revenue: its entries sum to 1"])


@pytest.mark.parametrize(
    ("falsify", "told", "lost", "twice"),
    [
        (lose_the_row, "an answer without a row", 1, 0),
        (lose_the_charge, "a row without its charge", 1, 0),
        (charge_less, "told 19000, charged 18999", 1, 0),
        (call_it_interrupted, "the end came, and the row says interrupted", 1, 0),
        (charge_twice, "charged twice", 0, 1),
        (two_rows_of_an_id, "two rows of one request id", 0, 1),
        (two_rows_of_a_request, "two rows of one request: crash-0", 0, 1),
        (lose_the_cut_one, "an answer that began, without a row", 0, 0),
        (charge_the_cut_one, "interrupted, and yet charged", 0, 0),
        (bill_more_than_was_made, "more output than the provider made", 0, 0),
        (invent_a_row, "a row that no client asked for", 0, 0),
        (invent_a_reason, "client_closed without reason", 0, 0),
        (keep_a_wrong_balance, "a balance that is not", 0, 0),
        (fail_verification, "its entries sum to 1", 0, 0),
    ],
)
def test_falsified_books_are_found_out(
    falsify: Callable[[Books], None], told: str, lost: int, twice: int
) -> None:
    books = copy.deepcopy(right_books())
    falsify(books)
    found = audit(books)
    assert told in "\n".join(found.problems)
    assert (found.figures.lost, found.figures.twice) == (lost, twice)


def test_a_crash_that_charges_too_little_is_found_out() -> None:
    found = audit(right_books(), "produced")
    assert found.problems == []
    saw = seen()
    saw[1].tokens = 400
    received = [made(0, 5), made(1, 2)]
    found = Audit(saw, received, right_books(), {"prepaid": CREDIT}, on_crash="produced")
    assert found.problems == [
        "charged for less than had been produced at the last checkpoint: crash-1 (400 seen, None in the row)"
    ]
