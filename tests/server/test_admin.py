"""The admin process: health, readiness and metrics without a token."""

import os
import signal
from pathlib import Path

import pytest

from sluicegate.server.admin.metrics import metrics_text
from sluicegate.server.tally import MAX_LABEL_SETS, Tally, merge, without_gauges
from sluicegate.server.telemetry import FIRST_TOKEN, METRICS, REFUSED, REQUESTS, RUNNING
from tests.server.supervisor_world import eventually, http_get, running, settings

SPEND = "/spend?account=acme&reserve=100&charge=30&hold_ms=0"


def test_the_admin_port_tells_health_readiness_and_metrics(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, workers=2, acme=1_000)) as gate:
        gate.wait_serving()
        eventually(lambda: http_get(gate.admin, "/healthz") == (200, b"ok\n"))
        assert http_get(gate.admin, "/readyz") == (200, b"ready\n")
        for _ in range(5):
            assert gate.get(SPEND)[0] == 200
        text = http_get(gate.admin, "/metrics")[1].decode()
        assert 'sluicegate_requests_total{model="test",status="ok"} 5.0' in text
        assert "sluicegate_workers_serving 2.0" in text
        assert "sluicegate_store_up 1.0" in text
        victim, _ = gate.workers()
        os.kill(victim["pid"], signal.SIGKILL)
        eventually(lambda: len([w for w in gate.workers() if w["number"] != victim["number"]]) == 2)
        later = http_get(gate.admin, "/metrics")[1].decode()
        assert 'sluicegate_requests_total{model="test",status="ok"} 5.0' in later
        assert "sluicegate_worker_deaths_total 1.0" in later
        gate.process.kill()
        with pytest.raises(OSError, match="refused"):
            eventually(lambda: http_get(gate.admin, "/healthz") and False, 2)


def test_a_killed_admin_process_is_started_again_on_the_same_port(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1)) as gate:
        gate.wait_serving()
        eventually(lambda: http_get(gate.admin, "/healthz")[0] == 200)
        children = Path(f"/proc/{gate.process.pid}/task/{gate.process.pid}/children").read_text().split()
        (admin,) = [
            int(pid)
            for pid in children
            if b"sluicegate.server.admin" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(admin, signal.SIGKILL)
        eventually(lambda: "admin_died" in gate.log.read_text())
        assert eventually(lambda: http_get(gate.admin, "/readyz", 10)) == (200, b"ready\n")


def test_counts_of_processes_add_up() -> None:
    first, second = Tally(), Tally()
    for tally in (first, second):
        tally.add(REQUESTS, 2, "m", "ok")
        tally.add(RUNNING, 3)
        tally.observe(FIRST_TOKEN, 0.02, "m", "p")
        tally.observe(FIRST_TOKEN, 1000.0, "m", "p")
    second.add(REQUESTS, 1, "m", "rejected")
    both = merge([first.snapshot(), second.snapshot()])
    text, content_type = metrics_text(both, "")
    lines = text.decode().splitlines()
    assert content_type.startswith("text/plain")
    assert 'sluicegate_requests_total{model="m",status="ok"} 4.0' in lines
    assert 'sluicegate_requests_total{model="m",status="rejected"} 1.0' in lines
    assert "sluicegate_requests_running 6.0" in lines
    assert 'sluicegate_first_token_seconds_bucket{le="0.01",model="m",provider="p"} 0.0' in lines
    assert 'sluicegate_first_token_seconds_bucket{le="0.025",model="m",provider="p"} 2.0' in lines
    assert 'sluicegate_first_token_seconds_bucket{le="+Inf",model="m",provider="p"} 4.0' in lines
    assert 'sluicegate_first_token_seconds_count{model="m",provider="p"} 4.0' in lines
    assert 'sluicegate_first_token_seconds_sum{model="m",provider="p"} 2000.04' in lines
    assert "requests_running" not in without_gauges(both)
    assert metrics_text(both, "application/openmetrics-text")[0].endswith(b"# EOF\n")


def test_names_that_clients_choose_do_not_grow_the_metrics_without_end() -> None:
    tallies = [Tally() for _ in range(3)]
    for n in range(3 * MAX_LABEL_SETS):
        tallies[n % 3].add(REFUSED, 1, f"kind {n}")
    sums = merge(tally.snapshot() for tally in tallies)
    assert len(sums[REFUSED.name]) <= MAX_LABEL_SETS + 1
    assert sum(value for _, value in sums[REFUSED.name]) == 3 * MAX_LABEL_SETS


def test_every_metric_has_a_name_of_its_own_and_help() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.help.endswith(".")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
