"""The project around the code keeps its word: documents name what exists, no file names a machine of ours."""

import io
import re
import shutil
import subprocess
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pytest

import sluicegate
from sluicegate.cli import main

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
NAMES = [document.relative_to(ROOT).as_posix() for document in DOCUMENTS]

FOREIGN = re.compile(
    # spelt so that this file does not match itself
    "|".join(
        (
            r"pypi\.(org)",
            r"pythonhosted\.(org)",
            r"registry\.npmjs\.(org)",
            r"registry\.yarnpkg\.(com)",
            r"proxy\.golang\.(org)",
            r"(?:deb|security)\.debian\.(org)",
            r"(?<![\w./-])/(root|home)/\w",
            r"(?<![\w./-])/(work)/\w",
            r"(?<![\w./-])/(tmp)/\w",
        )
    )
)
"""Hosts of package registries, and folders that only some machine has."""


@cache
def project_files() -> list[Path]:
    """Return what is tracked; without git, what lies where tracked files lie."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [
            path
            for pattern in ("*", "src/**/*", "tests/**/*", "docs/*", "scripts/*")
            for path in ROOT.glob(pattern)
        ]
        paths = [path for path in paths if not {"node_modules", "__pycache__"} & set(path.parts)]
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_registry_or_a_machine() -> None:
    found = []
    for path in project_files():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if FOREIGN.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)


def test_tests_run_the_node_that_they_bring() -> None:
    by_path = re.compile(r"""(?:(?<!\w)\[|exec\()\s*["']node["']""")
    found = [path.name for path in (ROOT / "tests").rglob("*.py") if by_path.search(path.read_text())]
    assert not found, "Debian's may be too old: tests.node.NODE"


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == sluicegate.__version__
    assert versions == sorted(versions, key=lambda v: [int(part) for part in v.split(".")], reverse=True)


def test_the_lock_file_holds_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(d for extra in project["optional-dependencies"].values() for d in extra),
    ]
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    names = {re.split(r"[<>=!~\[ ;]", requirement)[0].lower() for requirement in wanted}
    assert not names - locked


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("name", NAMES)
def test_named_make_targets_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^ *(?:\$ )?)make ([a-z-]+)", (ROOT / name).read_text(), re.MULTILINE))
    assert not named - targets


@cache
def help_of(*command: str) -> str | None:
    """Return the help of a subcommand, or None where there is no such command."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        try:
            main([*command, "--help"])
        except SystemExit as ended:
            return printed.getvalue() if not ended.code else None
    raise AssertionError("the command line has not ended")


@pytest.mark.parametrize("name", NAMES)
def test_named_commands_and_options_exist(name: str) -> None:
    named = re.findall(
        r"(?:`|^ *(?:\$ )?)sluicegate ((?:[^`\n#|]|\\\n)+)", (ROOT / name).read_text(), re.MULTILINE
    )
    wrong = []
    for line in named:
        words = line.replace("\\\n", " ").split()
        command = [word for word in words[:2] if re.fullmatch(r"[a-z]+", word)]
        text = help_of(*command) or help_of(*command[:1])
        if text is None:
            wrong.append(line)
            continue
        wrong += [
            f"{line}: {word}" for word in words if word.startswith("--") and word.split("=")[0] not in text
        ]
    assert not wrong, "\n".join(wrong)
