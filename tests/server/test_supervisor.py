"""Real processes: workers and supervisors are killed, ports and stores are taken."""

import concurrent.futures
import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec
import pytest

from sluicegate.errors import BadRequest, StoreUnavailable
from sluicegate.server.settings_shapes import TlsServer
from tests.gate import held_port
from tests.server.supervisor_world import RUN, alive, configured_key, eventually, running, settings

SPEND = "/spend?account=acme&reserve={reserve}&charge={charge}&hold_ms={hold_ms}"


def spend(reserve: int, charge: int, hold_ms: int = 0) -> str:
    return SPEND.format(reserve=reserve, charge=charge, hold_ms=hold_ms)


def test_a_request_is_charged_and_its_row_is_there_in_half_a_second(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1_000)) as gate:
        gate.wait_serving()
        assert gate.get(spend(100, 30))[0] == 200
        eventually(lambda: gate.rows(), 0.5)
        assert gate.balance("acme") == 970
        assert gate.stop() == 0
        assert not (tmp_path / "journal" / "control.sock").exists()
        assert list((tmp_path / "journal").glob("*.journal")) == []


def test_x6_a_killed_worker_is_replaced_and_its_lease_comes_free(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1_000)) as gate:
        gate.wait_serving()
        with concurrent.futures.ThreadPoolExecutor() as threads:
            lost = threads.submit(gate.get, spend(900, 900, -1))
            gate.wait_held()
            assert gate.get(spend(950, 0))[0] == 402
            (worker,) = gate.workers()
            os.kill(worker["pid"], signal.SIGKILL)
            with pytest.raises(OSError, match=r"reset|closed|Remote"):
                lost.result()
        assert eventually(lambda: gate.get(spend(1_000, 10))[0] == 200)
        (successor,) = gate.workers()
        assert successor["number"] > worker["number"]
        eventually(lambda: gate.balance("acme") == 990)
        assert ("interrupted", 0) in [(row.status, row.cost_nano_usd) for row in gate.rows()]


def test_while_a_slot_has_no_worker_another_accepts_for_it(tmp_path: Path) -> None:
    """Connections queued on the dead worker's socket are answered, not reset."""
    with running(tmp_path, settings(tmp_path, workers=2, acme=1_000)) as gate:
        gate.wait_serving()
        victim, _ = gate.workers()
        os.kill(victim["pid"], signal.SIGSTOP)
        clients = []
        for _ in range(40):
            client = socket.create_connection(gate.clients)
            client.sendall(b"GET /who HTTP/1.1\r\nhost: x\r\n\r\n")
            client.settimeout(10)
            clients.append(client)
        os.kill(victim["pid"], signal.SIGKILL)
        answers = []
        for client in clients:
            with client:
                answers.append(client.recv(1000))
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
        eventually(lambda: len(gate.workers()) == 2)
        served = {gate.get("/who")[1]["number"] for _ in range(100)}
        assert victim["number"] not in served
        assert len(served) == 2


def test_a_worker_told_to_go_gets_its_successor_before_it_has_drained(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1_000)) as gate:
        gate.wait_serving()
        (old,) = gate.workers()
        with concurrent.futures.ThreadPoolExecutor() as threads:
            held = threads.submit(gate.get, spend(100, 70, -1))
            gate.wait_held()
            os.kill(old["pid"], signal.SIGTERM)
            (new,) = eventually(lambda: [w for w in gate.workers() if w["number"] != old["number"]])
            assert not held.done()
            eventually(lambda: gate.get(spend(900, 0))[0] == 200)
            gate.let_go()
            assert held.result()[1]["status"] == "ok"
        eventually(lambda: not alive(old["pid"]))
        assert [worker["number"] for worker in gate.workers()] == [new["number"]]
        assert "worker_died" not in gate.log.read_text()
        assert gate.get(spend(930, 0))[0] == 200


def test_workers_killed_before_they_serve_are_replaced_however_many(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1_000)) as gate:
        killed = [0]
        for _ in range(5):
            starting = eventually(
                lambda: [one for one in gate.ask("status")["workers"] if one["number"] > killed[-1]]
            )
            os.kill(starting[0]["pid"], signal.SIGKILL)
            killed.append(starting[0]["number"])
        gate.wait_serving()
        assert gate.workers()[0]["number"] > killed[-1]


def test_a_stop_during_the_start_ends_it(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1_000)) as gate:
        eventually(lambda: gate.ask("status")["workers"])
        assert gate.stop() == 0


def test_workers_that_cannot_start_end_the_start_in_one_line(tmp_path: Path) -> None:
    wanted = settings(tmp_path, workers=2)
    tls = TlsServer(cert_file=str(tmp_path / "none.pem"), key_file=str(tmp_path / "none.key"))
    server = msgspec.structs.replace(wanted.worker.server, tls=tls)
    wanted = msgspec.structs.replace(wanted, worker=msgspec.structs.replace(wanted.worker, server=server))
    with running(tmp_path, wanted) as gate:
        assert gate.process.wait(60) == 1
        assert gate.log.read_text().splitlines()[-1].startswith("error: the workers cannot start")
        assert "No such file" in gate.log.read_text()


def test_settings_that_no_worker_can_be_told_end_the_start_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "beyond-64-bits").touch()
    with running(tmp_path, settings(tmp_path, workers=2, acme=1_000)) as gate:
        assert gate.process.wait(20) == 1
        told = gate.log.read_text()
        assert told.splitlines()[-1].startswith("error: the workers cannot start")
        assert "worker_failed" in told
        assert "Boot cannot be encoded" in told


def test_a_reload_that_no_worker_can_be_told_is_refused_whole(tmp_path: Path) -> None:
    wanted = settings(tmp_path, acme=1_000)
    with running(tmp_path, wanted) as gate:
        gate.wait_serving()
        (worker,) = gate.workers()
        (tmp_path / "beyond-64-bits").touch()
        gate.configure(msgspec.structs.replace(wanted, keys=(configured_key("second"),)))
        with pytest.raises(StoreUnavailable, match="Configure cannot be encoded"):
            gate.ask("reload")
        assert "config_refused" in gate.log.read_text()
        assert gate.get("/who")[1]["keys"] == ["first"]
        os.kill(worker["pid"], signal.SIGKILL)  # its successor gets what was in effect
        eventually(lambda: gate.get("/who")[1]["number"] != worker["number"])
        assert gate.stop() == 0


def test_what_a_worker_cannot_say_fails_for_who_asked_alone(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1_000)) as gate:
        gate.wait_serving()
        began = time.monotonic()
        status, answer = gate.get("/unsayable")
        assert (status, time.monotonic() - began < 0.9) == (503, True)
        assert "GenerationAsked cannot be encoded" in answer["error"]
        assert "message_unsent" in gate.log.read_text()
        assert gate.get(spend(10, 0))[0] == 200
        assert len(gate.workers()) == 1
        assert gate.workers()[0]["number"] == gate.get("/who")[1]["number"]


def test_a_silent_worker_is_killed_and_replaced(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1_000)) as gate:
        gate.wait_serving()
        (worker,) = gate.workers()
        os.kill(worker["pid"], signal.SIGSTOP)
        stopped = time.monotonic()
        eventually(lambda: [w for w in gate.workers() if w["number"] != worker["number"]], 30)
        assert time.monotonic() - stopped > 4
        assert not alive(worker["pid"])


def test_a_worker_that_sends_nonsense_is_replaced_and_the_supervisor_lives(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1_000)) as gate:
        gate.wait_serving()
        (worker,) = gate.workers()
        with contextlib.suppress(OSError):  # it may die before it has answered
            gate.get("/confuse")
        eventually(lambda: [w for w in gate.workers() if w["number"] != worker["number"]])
        assert gate.get(spend(10, 0))[0] == 200


def test_x6_when_the_supervisor_is_killed_its_workers_end_and_a_new_one_takes_over(tmp_path: Path) -> None:
    with (
        held_port() as port,
        running(tmp_path, settings(tmp_path, workers=2, port=port, acme=1_000)) as first,
    ):
        first.wait_serving()
        assert first.get(spend(100, 40))[0] == 200
        pids = [worker["pid"] for worker in first.ask("status")["workers"]]
        with concurrent.futures.ThreadPoolExecutor() as threads:
            ended = threads.submit(first.get, spend(200, 70, -1))
            first.wait_held()
            assert first.get(spend(950, 0))[0] == 402
            first.process.kill()
            killed = time.monotonic()
            assert ended.result()[1]["status"] == "interrupted"
        eventually(lambda: not any(alive(pid) for pid in pids))
        assert time.monotonic() - killed < 3
        same_port = settings(tmp_path, workers=2, port=port, acme=1_000)
        with running(tmp_path, same_port) as second:
            second.wait_serving()
            assert second.balance("acme") == 890
            assert second.get(spend(890, 0))[0] == 200


def test_a_taken_port_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(tmp_path, settings(tmp_path, port=port)) as gate:
            assert gate.process.wait(60) == 1
            lines = gate.log.read_text().splitlines()
            assert lines == [f"error: port {port} on 127.0.0.1 is taken by another program"]


def test_a_second_supervisor_on_the_same_store_is_refused_in_one_line(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1)) as first:
        first.wait_serving()
        other = tmp_path / "other"
        other.mkdir()
        same_store = msgspec.structs.replace(settings(other), store_url=first.settings.store_url)
        with running(other, same_store) as second:
            assert second.process.wait(60) == 1
            (line,) = second.log.read_text().splitlines()
            assert f"process {first.process.pid}" in line
            assert "already serves this store" in line
        assert first.get("/who")[0] == 200


def test_sigterm_drains_and_refuses_new_requests(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1_000)) as gate:
        gate.wait_serving()
        with concurrent.futures.ThreadPoolExecutor() as threads:
            finishing = threads.submit(gate.get, spend(100, 50, -1))
            gate.wait_held()
            assert gate.get(spend(950, 0))[0] == 402
            gate.process.send_signal(signal.SIGTERM)
            eventually(lambda: gate.get("/who")[0] == 503)
            gate.let_go()
            assert finishing.result()[1]["status"] == "ok"
        assert gate.process.wait(30) == 0
        assert gate.balance("acme") == 950


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, acme=1_000)) as gate:
        gate.wait_serving()
        with concurrent.futures.ThreadPoolExecutor() as threads:
            cut = threads.submit(gate.get, spend(100, 50, -1))
            gate.wait_held()
            assert gate.get(spend(950, 0))[0] == 402
            gate.process.send_signal(signal.SIGINT)
            eventually(lambda: gate.get("/who")[0] == 503)
            gate.process.send_signal(signal.SIGINT)
            assert cut.result()[1]["status"] == "interrupted"
            assert gate.process.wait(30) == 0
        assert gate.balance("acme") == 950


def test_ctrl_c_for_the_whole_process_group_is_a_drain(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, workers=2, acme=1_000)) as gate:
        gate.wait_serving()
        with concurrent.futures.ThreadPoolExecutor() as threads:
            finishing = threads.submit(gate.get, spend(100, 50, -1))
            gate.wait_held()
            assert gate.get(spend(950, 0))[0] == 402
            os.killpg(gate.process.pid, signal.SIGINT)
            eventually(lambda: gate.get("/who")[0] == 503)
            gate.let_go()
            assert finishing.result()[1]["status"] == "ok"
        assert gate.process.wait(30) == 0
        assert "worker_died" not in gate.log.read_text()


def test_a_reload_reaches_the_workers_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    wanted = settings(tmp_path, acme=1_000)
    with running(tmp_path, wanted) as gate:
        gate.wait_serving()
        assert gate.get("/who")[1]["keys"] == ["first"]
        server = msgspec.structs.replace(wanted.worker.server, drain_timeout_s=7.0, workers=5)
        gate.configure(
            msgspec.structs.replace(
                wanted,
                worker=msgspec.structs.replace(wanted.worker, server=server),
                accounts=settings(tmp_path, acme=1_000, later=50).accounts,
                keys=(configured_key("second"),),
            )
        )
        gate.process.send_signal(signal.SIGHUP)
        eventually(lambda: gate.get("/who")[1]["keys"] == ["second"], 1)
        assert gate.get("/who")[1]["drain_timeout_s"] == 7.0
        assert "needs_restart=server.workers" in gate.log.read_text()
        assert gate.get("/spend?account=later&reserve=50&charge=50&hold_ms=0")[0] == 200
        gate.file.write_bytes(b"\xc1")
        gate.process.send_signal(signal.SIGHUP)
        eventually(lambda: "config_refused" in gate.log.read_text())
        assert gate.get("/who")[1]["keys"] == ["second"]


def test_b4_credit_is_not_overspent_by_three_workers(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, workers=3, acme=20_000)) as gate:
        gate.wait_serving()
        with concurrent.futures.ThreadPoolExecutor(24) as threads:
            done = list(threads.map(lambda n: gate.get(spend(100 + n, 100, n % 20))[0], range(300)))
        paid = done.count(200)
        assert set(done) == {200, 402}
        assert 150 <= paid <= 200
        eventually(lambda: gate.balance("acme") == 20_000 - 100 * paid)
        left = gate.balance("acme")
        if left:
            assert gate.get(spend(left, left))[0] == 200
            eventually(lambda: gate.balance("acme") == 0)


def test_all_workers_accept_from_an_inherited_socket(tmp_path: Path) -> None:
    """As a service manager passes it: descriptor 3, and the environment names the process."""
    with socket.create_server(("127.0.0.1", 0)) as inherited:
        script = f'exec 3<&{inherited.fileno()}; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@"'
        command = ("bash", "-c", script, "-", sys.executable, RUN)
        wanted = settings(tmp_path, workers=2, port=1, acme=1_000)
        with running(tmp_path, wanted, command, inherited.fileno()) as gate:
            gate.wait_serving()
            assert gate.clients.port == inherited.getsockname()[1]
            first, second = gate.workers()
            for stopped, awake in ((first, second), (second, first)):
                os.kill(stopped["pid"], signal.SIGSTOP)
                assert gate.get("/who")[1]["number"] == awake["number"]
                os.kill(stopped["pid"], signal.SIGCONT)


def test_credit_and_keys_changed_by_hand_are_effective_at_once(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, workers=2, acme=1_000)) as gate:
        gate.wait_serving()
        assert gate.get(spend(1_001, 0))[0] == 402
        gate.ask("accounts.topup", account="acme", amount_nano=1, reference="invoice 7")
        assert gate.get(spend(1_001, 0))[0] == 200
        gate.ask("accounts.topup", account="acme", amount_nano=1, reference="invoice 7")
        assert gate.get(spend(1_002, 0))[0] == 402
        created = gate.ask(
            "keys.create", id="key_new", name="new", prefix="sg-n", hash=(b"n" * 32).hex(), balance_nano=70
        )["key"]
        assert (created["account"], created["balance_nano_usd"]) == ("new", 70)
        eventually(lambda: gate.get("/who")[1]["keys"] == ["first", "new"], 1)
        assert gate.get("/spend?account=new&reserve=70&charge=0&hold_ms=0")[0] == 200
        gate.ask("keys.revoke", key="new")
        for _ in range(10):
            eventually(lambda: gate.get("/who")[1]["keys"] == ["first"], 1)
        with pytest.raises(BadRequest, match="no operation"):
            gate.ask("keys.forget", key="new")
        with pytest.raises(BadRequest):
            gate.ask("keys.create", nonsense=1)


def test_a_debit_by_hand_takes_free_credit_only(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path, workers=2, acme=1_000_000)) as gate:
        gate.wait_serving()
        with concurrent.futures.ThreadPoolExecutor() as threads:
            held = threads.submit(gate.get, spend(1_000, 1_000, -1))
            gate.wait_held()
            with pytest.raises(BadRequest, match=r"only 0\.000999 USD that are free"):
                gate.ask("accounts.adjust", account="acme", amount_nano=-999_001)
            done = gate.ask("accounts.adjust", account="acme", amount_nano=-999_000)
            assert done["account"]["balance_nano_usd"] == 1_000
            assert gate.get(spend(1, 0))[0] == 402
            gate.let_go()
            assert held.result()[0] == 200
        eventually(lambda: gate.balance("acme") == 0)
