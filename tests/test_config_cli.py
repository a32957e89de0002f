"""`sluicegate` and `sluicegate config`, as a shell sees them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from sluicegate import __version__
from sluicegate.cli import main
from tests.compiled import COMPILED
from tests.test_config import DESIGN, ENV, write


class Shown(NamedTuple):
    """What one command left behind."""

    returncode: int
    stdout: str
    stderr: str


class Run(Protocol):
    def __call__(self, *arguments: str) -> Shown: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str) -> Shown:
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        out, err = capsys.readouterr()
        return Shown(int(left.value.code or 0), out, err)

    return run


def test_help_names_every_command(run: Run) -> None:
    shown = run("--help")
    assert shown.returncode == 0
    for command in ("demo", "serve", "config", "keys", "usage", "ledger", "simulate"):
        assert f"\n  {command} " in shown.stdout


def test_help_loads_neither_configuration_nor_server() -> None:
    code = "import sys\nfrom sluicegate.cli import main\ntry: main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    brought = {name.split(".")[0] for name in shown.stdout.split()}
    assert not brought & {"pydantic", "yaml", "sqlalchemy", "genai_prices", "uvloop", "starlette"}


def test_version(run: Run) -> None:
    build = " (compiled)" if COMPILED else ""
    assert run("--version").stdout == f"sluicegate {__version__}{build}\n"


def test_an_unknown_command_and_none(run: Run) -> None:
    shown = run("srve")
    assert shown.returncode == 2
    assert "srve" in shown.stderr
    assert run().returncode == 2


def test_check_says_what_is_right(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    file = write(tmp_path, DESIGN)
    shown = run("config", "check", "-c", str(file))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"{file} is right." in shown.stdout
    assert "PUBLIC_ID · 1.25 / 10 · configuration · NAME/upstream-id" in shown.stdout
    assert "openai/* · by id · catalogue, openai, by id · NAME/*" in shown.stdout
    for secret in ENV.values():
        assert secret not in shown.stdout


def test_check_as_json(run: Run, tmp_path: Path) -> None:
    text = """
server: {cors_origins: ["http://a.b"]}
providers: {o: {base_url: "https://api.openai.com/v1", api_key: hidden-key}}
models: {m: {routes: [{provider: o, model: gpt-4o-mini}]}, f: {price: free, routes: [{provider: o, model: x}]}}
keys: [{name: a, key: hidden-gateway-key, balance_usd: 1}]
"""
    write(tmp_path, text)
    shown = run("config", "check", "--json")
    assert "hidden" not in shown.stdout
    said = json.loads(shown.stdout)
    assert said["ok"] is True
    assert said["keys"] == ["a"]
    assert said["warnings"] == ["server.cors_origins: accepted, but not built yet; it has no effect"]
    m, f = said["models"]
    assert (m["id"], m["price_source"]) == ("m", "catalogue, openai gpt-4o-mini")
    assert m["price_nano_usd_per_mtok"]["output"] == 600_000_000
    assert (f["free"], f["price_nano_usd_per_mtok"]) == (True, None)


def test_the_environment_may_name_the_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("server: {workers: 3}")
    monkeypatch.setenv("SLUICEGATE_CONFIG", str(other))
    assert "3 workers" in run("config", "check").stdout


@pytest.mark.parametrize("text", [None, "", "{", "server: {workers: 0}"])
def test_what_is_wrong_is_one_line_and_status_2(run: Run, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        write(tmp_path, text)
    shown = run("config", "check")
    assert (shown.returncode, shown.stdout) == (2, "")
    (line,) = shown.stderr.splitlines()
    assert line.startswith("sluicegate: sluicegate.yaml:")
    as_json = run("config", "check", "--json")
    assert as_json.returncode == 2
    said = json.loads(as_json.stdout)
    assert (said["ok"], said["errors"]) == (False, [line.removeprefix("sluicegate: ")])


def test_a_folder_instead_of_a_file_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sluicegate", "config", "check", "-c", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == f"sluicegate: {tmp_path}: is a folder, not a file\n"


def test_init_writes_a_file_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run("config", "init")
    assert first.returncode == 0
    assert "sluicegate config check" in first.stdout
    written = (tmp_path / "sluicegate.yaml").read_text()
    second = run("config", "init")
    assert second.returncode == 2
    assert second.stderr == "sluicegate: sluicegate.yaml: is there already, and is left as it is\n"
    assert (tmp_path / "sluicegate.yaml").read_text() == written
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert run("config", "check").returncode == 0
    assert run("config", "init", "-c", "no/such/folder.yaml").returncode == 2


def test_schema_is_json(run: Run) -> None:
    schema = json.loads(run("config", "schema").stdout)
    assert schema["properties"]["server"]["$ref"] == "#/$defs/Server"
    assert json.loads(run("config", "schema", "--json").stdout) == schema
