"""What `make wheel` compiles can be compiled: mypyc drops some things without a word, others only when they run."""

import ast
import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatch_build import compiled_modules

from tests.compiled import COMPILED

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
    "hooks"
]
MODULES = compiled_modules(SOURCE, HOOK["custom"]["include"], HOOK["custom"]["interpreted"])
TREES = {
    path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))
}


def classes(path: str) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(TREES[path]) if isinstance(node, ast.ClassDef))


def bases(node: ast.ClassDef) -> Iterator[str]:
    for base in node.bases:
        yield ast.unparse(base.value if isinstance(base, ast.Subscript) else base)


def allows_python(node: ast.ClassDef) -> bool:
    return any("allow_interpreted_subclasses=True" in ast.unparse(one) for one in node.decorator_list)


HOMES = {node.name: (path, node) for path in TREES for node in classes(path)}


@pytest.mark.parametrize("path", MODULES)
def test_no_struct_is_compiled(path: str) -> None:
    """Its keywords (frozen, tag, gc) would be dropped silently."""
    assert [node.name for node in classes(path) if {"Struct", "msgspec.Struct"} & set(bases(node))] == []


@pytest.mark.parametrize("path", MODULES)
def test_no_class_of_asyncio_is_a_base(path: str) -> None:
    """Its methods would be looked up in a dictionary; the loop asks for no base."""
    assert [
        node.name for node in classes(path) if any(base.startswith("asyncio.") for base in bases(node))
    ] == []


def test_no_family_of_classes_is_half_compiled() -> None:
    found = []
    for path in TREES:
        for node in classes(path):
            for base in bases(node):
                home, parent = HOMES.get(base, (path, node))
                if (home in MODULES) == (path in MODULES) or allows_python(parent):
                    continue
                if home not in MODULES and "Protocol" in bases(parent):
                    continue
                found.append(f"{node.name} ({path}) of {base} ({home})")
    assert found == []


def test_what_runs_is_the_build_that_was_asked_for() -> None:
    assert bool(os.environ.get("SLUICEGATE_COMPILED")) == COMPILED
    for path in MODULES:
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        assert str(module.__file__).endswith(".so" if COMPILED else ".py")
    command = [sys.executable, "-m", "sluicegate", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert ("compiled" in told) == COMPILED
