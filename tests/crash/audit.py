"""The auditor: holds what clients saw, what the provider made and what the books say against each other.

It believes none of the three, and shares no code with the gate: prices and sums are its own. Contract X6:
a kill -9 at any instant loses no settled charge and charges nothing twice.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sluicegate.simulator.record import Received
from tests.crash.books import Books
from tests.crash.load import Seen

INPUT_NANO, OUTPUT_NANO = 1_000, 2_000
"""What `tests.conftest.PRICE` charges for a token."""
CRASHED = "the gate was stopped while serving this"
"""The error of a row that recovery wrote for a dead worker."""
UNCOUNTED_TOKENS = 300
"""The most that a stream may have sent since its last checkpoint: a thousand characters of the simulator's words."""
SHOWN = 20
"""Problems of one sort that are told one by one."""


class Figures(NamedTuple):
    """What there was to audit, and the two counts that must be 0."""

    requests: int
    whole: int
    """Answers whose end a client saw."""
    cut: int
    """Answers that began and whose end no client saw."""
    unanswered: int
    """Requests that got no head: refused connections, and those that died before."""
    refused: int
    """Answers with another status than 200."""
    rows: int
    statuses: dict[str, int]
    crashed: int
    """Rows that recovery wrote as interrupted."""
    crashed_charged: int
    """Those of them with a charge: under `on_crash: produced`, by their last checkpoint."""
    counted_finish: int
    """Answers whose finish had left and whose usage had not come."""
    charged_nano: int
    lost: int
    """Answers whose end or finish a client saw, and whose charge is missing or not what it was told."""
    twice: int
    """Requests with two rows or two charges."""


class Audit:
    """One audit: `problems` is empty where everything holds."""

    def __init__(
        self,
        seen: Sequence[Seen],
        received: Iterable[Received],
        books: Books,
        credit: Mapping[str, int | None],
        *,
        on_crash: str = "none",
        spoilt: Collection[str] = (),
        unnoted: Collection[str] = (),
    ) -> None:
        """Audit.

        Args:
            received: what the provider was asked, and made.
            credit: what each account was given, in nano-USD; None where it is unlimited.
            spoilt: requests whose settlement was corrupted in its journal: they must count as interrupted.
            unnoted: requests, by name, some of whose checkpoints no journal could take, as its disk failed.
        """
        self._spoilt = spoilt
        self._unnoted = unnoted
        self._seen = {each.name: each for each in seen}
        self._made: dict[str, list[Received]] = defaultdict(list)
        for each in received:
            self._made[each.json["user"]].append(each)
        self._books = books
        self._credit = credit
        self._on_crash = on_crash
        self._sorts: dict[str, list[str]] = defaultdict(list)
        self._rows: dict[str, dict[str, Any]] = {}
        """By the number that the client gave."""
        self._charges: dict[str, list[int]] = defaultdict(list)
        """By the gate's request id."""
        self._lost: set[str] = set()
        self._twice: set[str] = set()
        self._check_single()
        for name in self._seen:
            self._check_request(name)
        self._check_balances()
        self.figures = self._figures()

    @property
    def problems(self) -> list[str]:
        """All that does not hold."""
        told = []
        for sort, names in self._sorts.items():
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            told.append(f"{sort}: {', '.join(names[:SHOWN])}{more}")
        return told

    def _problem(self, sort: str, name: str) -> None:
        self._sorts[sort].append(name)

    # One row and one charge a request

    def _check_single(self) -> None:
        for line in self._books.lines:
            if line["kind"] == "charge" and line["account"].startswith("customer:"):
                self._charges[line["reference"]].append(-line["amount_nano_usd"])
        for request_id, charges in self._charges.items():
            if len(charges) > 1:
                self._twice.add(request_id)
                self._problem("charged twice", request_id)
        for request_id, times in Counter(row["request_id"] for row in self._books.rows).items():
            if times > 1:
                self._twice.add(request_id)
                self._problem("two rows of one request id", request_id)
        for row in self._books.rows:
            name, request_id = row["client_request_id"], row["request_id"]
            if name not in self._seen:
                self._problem("a row that no client asked for", request_id)
            elif name in self._rows:
                self._twice.add(request_id)
                self._problem("two rows of one request", f"{name} {request_id}")
            else:
                self._rows[name] = row
            if self._charges.get(request_id, [])[:1] != [row["cost_nano_usd"]]:
                self._problem("a row without its charge", request_id)
        for request_id in self._charges.keys() - {row["request_id"] for row in self._books.rows}:
            self._problem("a charge without its row", request_id)

    # Each request

    def _check_request(self, name: str) -> None:
        seen, row = self._seen[name], self._rows.get(name)
        if seen.hung:
            self._problem("hung", f"{name} ({seen.kind}, {seen.key})")
        if row is None:
            if seen.whole or seen.finished:
                self._lose(name, "an answer without a row")
            elif seen.status == 200:
                self._problem("an answer that began, without a row", name)
            elif name in self._made:
                self._problem("sent to the provider, without a row", name)
            return
        if row["request_id"] in self._spoilt:
            self._check_spoilt(name, row)
            return
        if row["key"] != seen.key or seen.request_id not in (None, row["request_id"]):
            self._problem("a row under another name", name)
        if seen.status in (401, 402, 429):
            self._problem("refused, and yet a row", name)
        self._check_promise(name, seen, row)
        self._check_status(name, seen, row)
        self._check_cost(name, row)
        self._check_crashed(name, seen, row)

    def _check_spoilt(self, name: str, row: dict[str, Any]) -> None:
        """The reservation was there, and the last checkpoint: the operator is told, and the row says what is left."""
        by_checkpoint = row["status"] == "ok" and row["usage_source"] == "counted"
        if row["status"] != "interrupted" and not by_checkpoint:
            self._problem("a corrupted settlement, and yet", f"{name} {row['status']}")

    def _check_promise(self, name: str, seen: Seen, row: dict[str, Any]) -> None:
        """What the client has in hand is what the books say."""
        if not (seen.whole or seen.finished):
            return
        charged = next(iter(self._charges.get(row["request_id"], ())), 0)
        if row["status"] != "ok" or not charged:
            self._lose(name, f"the end came, and the row says {row['status']}, the ledger {charged}")
        if not seen.whole:
            return
        told = seen.usage or {}
        if told.get("cost_nano_usd") != charged:
            self._lose(name, f"told {told.get('cost_nano_usd')}, charged {charged}")
        counts = (told.get("prompt_tokens"), told.get("completion_tokens"))
        if counts != (row["input_tokens"], row["output_tokens"]):
            self._problem("told another usage", name)

    def _lose(self, name: str, why: str) -> None:
        self._lost.add(name)
        self._problem("lost", f"{name} ({why})")

    def _check_status(self, name: str, seen: Seen, row: dict[str, Any]) -> None:
        """Every status has its reason outside."""
        match row["status"]:
            case "ok":
                fits = True
            case "interrupted":
                fits = not (seen.whole or seen.finished)
            case "client_closed":
                fits = seen.left
            case "upstream_error":
                fits = seen.kind in ("cut", "fails")
            case "credit_spent":
                fits = self._credit[seen.key] is not None
            case _:
                fits = False
        if not fits:
            self._problem(f"{row['status']} without reason", f"{name} {row['request_id']} {row['error']}")

    def _check_cost(self, name: str, row: dict[str, Any]) -> None:
        """The cost is that of the usage, and the usage what the provider made and no more."""
        counts = row["input_tokens"] or 0, row["output_tokens"] or 0
        price = counts[0] * INPUT_NANO + counts[1] * OUTPUT_NANO
        if (row["list_cost_nano_usd"], row["cost_nano_usd"] + row["shortfall_nano_usd"]) != (price, price):
            self._problem("a cost that is not price times usage", name)
        made = [each.produced for each in self._made.get(name, ())]
        if counts[1] > max((each.output_tokens or 0 for each in made), default=0):
            self._problem("more output than the provider made", name)
        reported = row["usage_source"] == "reported"
        if reported and counts not in [(each.input_tokens, each.output_tokens) for each in made]:
            self._problem("reported usage that the provider did not report", name)

    def _check_crashed(self, name: str, seen: Seen, row: dict[str, Any]) -> None:
        """What a kill cut is charged as `on_crash` says."""
        if row["error"] != CRASHED:
            return
        if self._on_crash == "none":
            if row["cost_nano_usd"] or row["shortfall_nano_usd"]:
                self._problem("interrupted, and yet charged", name)
        elif name not in self._unnoted and (row["output_tokens"] or 0) < seen.tokens - UNCOUNTED_TOKENS:
            told = f"{name} ({seen.tokens} seen, {row['output_tokens']} in the row)"
            self._problem("charged for less than had been produced at the last checkpoint", told)

    # The sums

    def _check_balances(self) -> None:
        verdict = self._books.verdict
        if not verdict["clean"]:
            self._sorts["ledger verify"] += verdict["problems"]
        sums: Counter[str] = Counter()
        for line in self._books.lines:
            sums[line["account"]] += line["amount_nano_usd"]
        spent: Counter[str] = Counter()
        for row in self._books.rows:
            spent[row["account"]] += row["cost_nano_usd"]
        for account, credit in self._credit.items():
            balance = verdict["balances_nano_usd"].get("customer:" + account, 0)
            if balance != sums["customer:" + account]:
                self._problem("a balance that is not the sum of its entries", account)
            if balance != (credit or 0) - spent[account]:
                self._problem("a balance that is not the credit less the charges", account)
            if credit is not None and balance < 0:
                self._problem("below zero", account)

    def _figures(self) -> Figures:
        seen, rows = self._seen.values(), self._books.rows
        return Figures(
            requests=len(seen),
            whole=sum(each.whole for each in seen),
            cut=sum(each.status == 200 and not each.whole for each in seen),
            unanswered=sum(each.status is None for each in seen),
            refused=sum(each.status not in (None, 200) for each in seen),
            rows=len(rows),
            statuses=dict(Counter(row["status"] for row in rows).most_common()),
            crashed=sum(row["error"] == CRASHED for row in rows),
            crashed_charged=sum(row["error"] == CRASHED and row["cost_nano_usd"] > 0 for row in rows),
            counted_finish=sum(row["status"] == "ok" and row["usage_source"] == "counted" for row in rows),
            charged_nano=sum(sum(charges) for charges in self._charges.values()),
            lost=len(self._lost),
            twice=len(self._twice),
        )
