"""Every metric and every log event by name, and the line that is written.

Metrics are counted in `tally`; the admin process alone turns them into text (`admin/metrics.py`). Source:
prometheus.io, "Metric and label naming" (base units, `_total` for counters).
"""

import logging
import sys
import time
from typing import Literal, NamedTuple

_LOG = logging.getLogger("sluicegate")

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
OVERHEAD_SECONDS = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 1.0)
TOKENS_PER_SECOND = (1.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0)


class Metric(NamedTuple):
    """One metric: its name without the prefix `sluicegate_`, and what it means."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without the last one (infinity)."""


REQUESTS = Metric(
    "requests_total", "counter", "Requests that passed admission, by outcome.", ("model", "status")
)
REFUSED = Metric(
    "refused_total", "counter", "Requests refused before admission, by kind of error.", ("kind",)
)
RUNNING = Metric("requests_running", "gauge", "Requests between admission and settlement.")
STREAMS = Metric("streams_open", "gauge", "Streams with a byte of the answer out and no end yet.")
CONNECTIONS = Metric("connections_open", "gauge", "Connections of clients.")
ATTEMPTS = Metric("attempts_total", "counter", "Attempts at providers, by outcome.", ("provider", "outcome"))
TOKENS = Metric("tokens_total", "counter", "Tokens billed, input cached or not.", ("model", "direction"))
CHARGED = Metric("charged_nano_usd_total", "counter", "Charged to accounts, in nano-USD.", ("model",))
SHORTFALL = Metric(
    "shortfall_nano_usd_total", "counter", "Used beyond credit, borne by the operator, in nano-USD."
)
FIRST_TOKEN = Metric(
    "first_token_seconds",
    "histogram",
    "From the whole request to the first content, streams only.",
    ("model", "provider"),
    SECONDS,
)
DURATION = Metric(
    "request_seconds", "histogram", "From the first byte to the settlement.", ("model", "provider"), SECONDS
)
SPEED = Metric(
    "tokens_per_second", "histogram", "Output of a stream.", ("model", "provider"), TOKENS_PER_SECOND
)
OVERHEAD = Metric(
    "overhead_seconds", "histogram", "Spent in the gate before the provider was called.", (), OVERHEAD_SECONDS
)
BREAKER_OPENED = Metric(
    "breaker_opened_total",
    "counter",
    "Deployments whose circuit breaker opened, by the kind of the last error.",
    ("provider", "model", "why"),
)
UNHEALTHY = Metric(
    "deployment_unhealthy",
    "gauge",
    "1 for each deployment that is open, half_open or cooling; a healthy one has no sample.",
    ("provider", "model", "state"),
)
PROBES = Metric(
    "probes_total", "counter", "Probes of providers, by what they found.", ("provider", "finding")
)
RETRIES_REFUSED = Metric(
    "retries_refused_total",
    "counter",
    "Failures whose provider had no budget for another retry.",
    ("provider",),
)
STREAMS_CONTINUED = Metric(
    "streams_continued_total",
    "counter",
    "Streams that broke off elsewhere and that this provider continued.",
    ("provider",),
)
OVERLOADED = Metric("overloaded_total", "counter", "Requests refused because a worker had too much to do.")
LOOP_LAG = Metric("loop_lag_seconds", "gauge", "How late the workers' loops are, smoothed, all together.")
MEMORY = Metric("worker_memory_bytes", "gauge", "Resident memory of all workers together.")
LIMIT_WAITS = Metric(
    "limit_waits_total", "counter", "Requests that had to ask the supervisor for a slice of a limit."
)
QUEUED = Metric("queued_requests", "gauge", "Requests that wait in line for a limit.")
LEASE_WAITS = Metric("lease_waits_total", "counter", "Requests that had to ask the supervisor for credit.")
LEASE_REFUSALS = Metric("lease_refusals_total", "counter", "Leases refused for lack of credit.")
WORKERS = Metric("workers_serving", "gauge", "Worker processes that accept connections.")
WORKER_STARTS = Metric("worker_starts_total", "counter", "Worker processes started.")
WORKER_DEATHS = Metric("worker_deaths_total", "counter", "Worker processes that ended unasked.")
SETTLED = Metric("settlements_total", "counter", "Requests whose settlement is in the store.")
CLAMPED = Metric(
    "clamped_charges_total",
    "counter",
    "Charges that passed their account's balance; anything but 0 is a fault.",
)
DAMAGED = Metric(
    "journal_damaged_bytes", "gauge", "Bytes of journals that could not be read; kept in .bad files."
)
JOURNALS_FAILED = Metric(
    "journals_failed", "gauge", "Workers that take no requests because the disk of their journal has failed."
)
JOURNAL_FAILURES = Metric(
    "journal_failures_total", "counter", "Failed attempts to bring a journal to its disk."
)
STORE_UP = Metric("store_up", "gauge", "1 while the store answers.")
BALANCE = Metric("balance_nano_usd", "gauge", "Sum of all prepaid balances, in nano-USD.")
LEASED = Metric("leased_nano_usd", "gauge", "Credit leased to workers, in nano-USD.")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All of them, in the order above."""


class Event(NamedTuple):
    """One thing worth a line in the log; the level is one of the standard library's."""

    name: str
    level: int


SUPERVISOR_SERVING = Event("supervisor_serving", logging.INFO)
SUPERVISOR_DRAINING = Event("supervisor_draining", logging.INFO)
SUPERVISOR_STOPPED = Event("supervisor_stopped", logging.INFO)
JOURNAL_RECOVERED = Event("journal_recovered", logging.WARNING)
"""Requests that a crash interrupted were settled."""
JOURNAL_FAILED = Event("journal_failed", logging.ERROR)
"""A worker's journal could not be written, rotated or brought to the disk."""
JOURNAL_RENEWED = Event("journal_renewed", logging.WARNING)
"""The disk works again, and a worker goes on in a new segment of its journal."""
SETTLEMENTS_OWED = Event("settlements_owed", logging.ERROR)
"""The journal takes no settlements: answers are broken off, and settled as soon as it does."""
CLAIMS_UNKEPT = Event("claims_unkept", logging.WARNING)
"""The store did not take what was said of an idempotency key; repeats are told to come back."""
JOB_GIVEN_UP = Event("job_given_up", logging.WARNING)
"""A job at a provider has not ended for `jobs.give_up_after`: settled as failed, nothing charged."""
JOURNAL_DAMAGED = Event("journal_damaged", logging.ERROR)
"""Bytes that no record explains, kept in a .bad file."""
JOURNAL_TORN = Event("journal_torn", logging.INFO)
"""The last write of a dead worker was cut; nobody had been told of it."""
JOURNAL_UNDRAINED = Event("journal_undrained", logging.ERROR)
"""Journals cannot be committed now; tried again every second, told once."""
JOURNAL_ENDED = Event("journal_ended", logging.WARNING)
"""A worker left requests open, and they are settled as interrupted."""
CHARGES_CLAMPED = Event("charges_clamped", logging.ERROR)
"""Charges passed their balance, against the leases; the rest became shortfall."""
SHORTFALL_PASSED = Event("shortfall_limit_passed", logging.WARNING)
"""An account has cost the operator more in a day than it may: its streams hold their whole output limit until the next.
"""
WORKER_OUTLIVED = Event("worker_outlived", logging.WARNING)
"""It did not end with its supervisor, and is killed by the next one."""
WORKER_SERVING = Event("worker_serving", logging.INFO)
WORKER_LEAVING = Event("worker_leaving", logging.INFO)
"""It was told by a signal to drain; its successor starts."""
WORKER_DIED = Event("worker_died", logging.ERROR)
WORKER_SILENT = Event("worker_silent", logging.ERROR)
WORKER_CONFUSED = Event("worker_confused", logging.ERROR)
"""It sent what is no message, or gave back credit it does not hold; it is killed and replaced."""
MESSAGE_UNSENT = Event("message_unsent", logging.ERROR)
"""What one of our processes had to tell another cannot be encoded; who asked for it is told that it failed."""
WORKER_FAILED = Event("worker_failed", logging.ERROR)
"""It could not start, or an error came out of it; told by the worker itself."""
DEPLOYMENT_OPENED = Event("deployment_opened", logging.WARNING)
"""It fails, and is left alone for a while; told by the worker that found it."""
DEPLOYMENT_REFUSES = Event("deployment_refuses", logging.ERROR)
"""The provider refuses our key, or our budget there is spent: nobody but the operator can mend that."""
DEPLOYMENT_HALF_OPENED = Event("deployment_half_opened", logging.INFO)
"""A probe found that it answers again: a request tries it before its time."""
DEPLOYMENT_CLOSED = Event("deployment_closed", logging.INFO)
"""It works again."""
ANSWER_UNTOLD = Event("answer_untold", logging.INFO)
"""An answer brought what the client's format has no word for: traces of hosted tools, a pause."""
SUPERVISOR_LOST = Event("supervisor_lost", logging.ERROR)
ADMIN_DIED = Event("admin_died", logging.ERROR)
CONFIG_RELOADED = Event("config_reloaded", logging.INFO)
CONFIG_REFUSED = Event("config_refused", logging.ERROR)
OPERATION_DONE = Event("operation_done", logging.INFO)
"""Keys or credit were changed by hand."""


def log(event: Event, **fields: object) -> None:
    """Write one line: the event's name, then the fields as key=value. Never keys or prompts."""
    if _LOG.isEnabledFor(event.level):
        told = "".join(f" {name}={_told(value)}" for name, value in fields.items() if value is not None)
        _LOG.log(event.level, "%s%s", event.name, told)


class _LineFormatter(logging.Formatter):
    """Time in UTC to the millisecond, level, process, message; an exception follows on lines of its own."""

    converter = staticmethod(time.gmtime)

    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s.%(msecs)03dZ %(levelname)s {process} %(message)s", "%Y-%m-%dT%H:%M:%S")


def start_logging(process: str) -> None:
    """Send this process's log to standard error, one line a record.

    Args:
        process: who speaks: `supervisor`, `worker-3`, `admin`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # A full disk or a closed terminal must not stop the gate, nor fill what is left of the log with
    # tracebacks.
    logging.raiseExceptions = False


def _told(value: object) -> str:
    text = str(value)
    if text.isprintable() and " " not in text and '"' not in text and text:
        return text
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\x{ord(c):02x}" for c in text) + '"'
