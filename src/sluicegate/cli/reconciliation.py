"""A provider's invoice beside the gate's own rows: for each of its models, what we counted and what it bills.

The invoice comes as a CSV file, since every provider exports another; the columns are named as the rows' fields are.
What answers cost the operator follows from the routes' `cost`, where that is known. Attempts that failed are no rows of
usage: what a provider bills for them is a difference that shows here; the `provider_cost` entries count them.
"""

import csv
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from sluicegate.billing.price import charge
from sluicegate.errors import BadRequest
from sluicegate.money import format_usd, parse_usd
from sluicegate.routing import catalog as served
from sluicegate.routing.catalog_shapes import Catalogue, Price
from sluicegate.store import Store, UsageQuery

COUNTS = ("requests", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
COST = "cost_usd"

Figures = dict[str, dict[str, int]]
"""By the provider's model, then by column; costs in nano-USD."""


class Difference(NamedTuple):
    """One figure of one model on both sides."""

    model: str
    what: str
    ours: int | None
    """None: unknown here."""
    theirs: int

    def within(self, tolerance_percent: float) -> bool:
        """Whether they differ by no more than that share of what the provider says."""
        if self.ours is None:
            return False
        return abs(self.theirs - self.ours) * 100 <= Decimal(str(tolerance_percent)) * abs(self.theirs)


def read_invoice(path: Path) -> Figures:
    """Read a provider's figures; several lines of a model are added up.

    Raises:
        BadRequest: it cannot be read, or a line makes no sense; says which.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read(csv.DictReader(file), path)
    except UnicodeDecodeError:
        raise BadRequest(f"{path} is not UTF-8 text") from None
    except (OSError, csv.Error) as error:
        raise BadRequest(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _read(lines: "csv.DictReader[str]", path: Path) -> Figures:
    columns = [name for name in (*COUNTS, COST) if name in (lines.fieldnames or ())]
    if "model" not in (lines.fieldnames or ()) or not columns:
        raise BadRequest(f"{path}: the first line must name `model` and one of {', '.join((*COUNTS, COST))}")
    figures: Figures = {}
    for line in lines:
        of_model = figures.setdefault(line["model"] or "", dict.fromkeys(columns, 0))
        for column in columns:
            text = (line[column] or "0").strip()
            try:
                amount = parse_usd(text) if column == COST else _count(text)
            except ValueError as error:
                raise BadRequest(f"{path}, line {lines.line_num}, {column}: {error}") from None
            of_model[column] += amount
    return figures


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ValueError(f"no whole number of at most 18 digits: {text[:40]!r}")
    return int(text)


async def compare(
    store: Store, catalogue: Catalogue, provider: str, theirs: Figures, since: float, until: float
) -> list[Difference]:
    """Hold an invoice against the rows of requests admitted in that time, every model of either side."""
    if provider not in catalogue.providers:
        raise BadRequest(f"there is no provider {provider!r} in the configuration")
    columns = next(iter(theirs.values())).keys() if theirs else COUNTS
    prices = _operator_prices(catalogue, provider)
    ours: Figures = {}
    unpriced: set[str] = set()
    async for row in store.usage(UsageQuery(provider=provider, since=since, until=until)):
        model = row.provider_model or ""
        usage = row.usage
        if usage.input_tokens is None and usage.output_tokens is None:
            continue  # nothing was made
        of_model = ours.setdefault(model, dict.fromkeys((*COUNTS, COST), 0))
        of_model["requests"] += 1
        for column in COUNTS[1:]:
            of_model[column] += getattr(usage, column) or 0
        if model in prices:
            of_model[COST] += charge(served.Price(prices[model]), usage)[0]
        else:
            unpriced.add(model)
    found = []
    for model in sorted(ours.keys() | theirs.keys()):
        for column in columns:
            known = None if column == COST and model in unpriced else ours.get(model, {}).get(column, 0)
            found.append(Difference(model, column, known, theirs.get(model, {}).get(column, 0)))
    return found


def _operator_prices(catalogue: Catalogue, provider: str) -> dict[str, Price]:
    return {
        deployment.model: deployment.cost
        for model in catalogue.models.values()
        for deployment in model.deployments
        if deployment.provider == provider and deployment.cost is not None
    }


def show_difference(each: Difference, tolerance_percent: float) -> dict[str, object]:
    """Write one figure as `--json` shows it; costs as nano-USD."""
    what = each.what.replace(COST, "cost_nano_usd")
    fits = each.within(tolerance_percent)
    return {"model": each.model, "what": what, "ours": each.ours, "theirs": each.theirs, "fits": fits}


def table_of_differences(differences: Sequence[Difference], tolerance_percent: float) -> Table:
    """Lay the figures out for people."""
    table = Table("model", "what", "ours", "theirs", "difference", "", box=None, pad_edge=False)
    for column in table.columns[2:5]:
        column.justify = "right"
    for each in differences:
        difference = "" if each.ours is None else _written(each.what, each.theirs - each.ours)
        ours = "unknown" if each.ours is None else _written(each.what, each.ours)
        verdict = "" if each.within(tolerance_percent) else "differs"
        table.add_row(each.model, each.what, ours, _written(each.what, each.theirs), difference, verdict)
    return table


def _written(what: str, amount: int) -> str:
    return format_usd(amount) if what == COST else str(amount)
