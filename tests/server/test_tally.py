"""The tally: what a settled request counts, and how many label sets there may be."""

from sluicegate.billing.ledger import UsageRow
from sluicegate.messages import Usage
from sluicegate.server import telemetry
from sluicegate.server.tally import MAX_LABEL_SETS, Tally
from tests.records import make_row


def rows() -> list[UsageRow]:
    made = []
    for number in range(60):
        row = make_row(
            f"r{number}",
            cost=number % 7,
            shortfall=number % 3,
            status=("ok", "client_closed")[number % 2],
            model=f"m{number % 4}",
            provider=f"p{number % 3}",
        )
        row.usage = Usage(input_tokens=number % 5 or None, output_tokens=number)
        row.duration_ms = number * 40.0
        row.ttft_ms = None if number % 2 else number * 10.0
        row.tokens_per_s = None if number % 3 else float(number)
        row.provider = None if number % 11 == 0 else row.provider
        made.append(row)
    return made


def counted_singly(row: UsageRow, tally: Tally) -> None:
    model, provider = row.model, row.provider or ""
    tally.add(telemetry.REQUESTS, 1, model, row.status)
    if row.usage.input_tokens:
        tally.add(telemetry.TOKENS, row.usage.input_tokens, model, "input")
    if row.usage.output_tokens:
        tally.add(telemetry.TOKENS, row.usage.output_tokens, model, "output")
    if row.cost_nano_usd:
        tally.add(telemetry.CHARGED, row.cost_nano_usd, model)
    if row.shortfall_nano_usd:
        tally.add(telemetry.SHORTFALL, row.shortfall_nano_usd)
    tally.observe(telemetry.DURATION, row.duration_ms / 1000, model, provider)
    if row.ttft_ms is not None:
        tally.observe(telemetry.FIRST_TOKEN, row.ttft_ms / 1000, model, provider)
    if row.tokens_per_s is not None:
        tally.observe(telemetry.SPEED, row.tokens_per_s, model, provider)


def plain(tally: Tally) -> dict[str, dict[tuple[str, ...], object]]:
    def rounded(value: object) -> object:
        return [round(count, 6) for count in value] if isinstance(value, list) else value

    return {
        name: {tuple(labels): rounded(value) for labels, value in samples}
        for name, samples in tally.snapshot().items()
    }


def test_a_settled_request_counts_in_every_metric_it_belongs_to() -> None:
    at_once, singly = Tally(), Tally()
    for number, row in enumerate(rows()):
        at_once.served.settled(row)
        counted_singly(row, singly)
        if number % 20 == 0:  # a snapshot counts nothing twice
            assert plain(at_once) == plain(singly)
    assert plain(at_once) == plain(singly)
    assert plain(at_once) == plain(singly)


def test_more_models_than_a_metric_has_room_for_are_counted_together() -> None:
    tally = Tally()
    for number in range(3 * MAX_LABEL_SETS):
        tally.served.settled(make_row(f"r{number}", model=f"m{number}"))
    requests = tally.snapshot()[telemetry.REQUESTS.name]
    assert len(requests) == MAX_LABEL_SETS + 1
    assert sum(count for _, count in requests) == 3 * MAX_LABEL_SETS
