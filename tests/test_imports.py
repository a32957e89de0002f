"""Imports point down, and a worker stays lean: the rungs of ARCHITECTURE.md, walked and checked."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "sluicegate"
SOURCE = Path(__file__).parent.parent / "src" / PACKAGE

RUNGS = {
    1: ("errors", "messages", "money", "capabilities"),
    2: ("wire", "routing", "billing"),
    3: ("store", "config"),
    4: ("server", "cli", "simulator", "local_model", "children", "__main__"),
}
RUNG_OF = {name: rung for rung, names in RUNGS.items() for name in names}

DATA = {"billing.account_shapes", "server.settings_shapes"}
"""Modules of structs and nothing else. `config` makes them, so it may know them wherever they stand."""

ACROSS = {
    ("billing", "routing.catalog"),
    ("billing", "routing.catalog_shapes"),
    ("config", "server.settings_shapes"),
}
"""Arrows that do not point down, decided once: plain data."""

EVERYWHERE = {"msgspec", "httptools", "uvloop", "mypy_extensions"}
"""Foreign libraries that any module may import."""

HOMES = {
    "sqlalchemy": ("store",),
    "typer": ("cli",),
    "rich": ("cli",),
    "pydantic": ("config", "server.admin"),
    "starlette": ("server.admin",),
}
"""Foreign libraries whose one home is a package. Any other has one module."""

IMPURE = {
    "asyncio", "concurrent", "ctypes", "fcntl", "glob", "http", "io", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "random", "secrets", "select", "selectors", "shutil", "signal",
    "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
"""Standard modules that the two lower rungs do without: `now`, `seed` and bytes come in as arguments."""

HEAVY = {
    "pydantic", "sqlalchemy", "aiosqlite", "starlette", "uvicorn", "jinja2", "typer", "click", "rich", "yaml",
    "prometheus_client", "genai_prices",
}  # fmt: skip
"""Libraries that must not take up memory in every worker."""


class Import(NamedTuple):
    """One import statement's target, `sluicegate.` left off for our own."""

    where: str
    line: int
    target: str
    ours: bool


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, ast.Module]:
    paths = sorted(SOURCE.rglob("*.py"))
    return {module_name(path): ast.parse(path.read_text(), str(path)) for path in paths}


def imports(name: str, tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _import(name, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: relative import"
            assert node.module is not None
            if node.module == PACKAGE:
                for alias in node.names:
                    yield _import(name, node.lineno, f"{PACKAGE}.{alias.name}")
            else:
                yield _import(name, node.lineno, node.module)


def _import(where: str, line: int, target: str) -> Import:
    ours = target == PACKAGE or target.startswith(PACKAGE + ".")
    return Import(where, line, target.removeprefix(PACKAGE).removeprefix(".") if ours else target, ours)


def is_within(name: str, home: str) -> bool:
    return name == home or name.startswith(home + ".")


def top(name: str) -> str:
    return name.split(".")[0]


ALL = [found for name, tree in modules().items() for found in imports(name, tree)]


def test_every_module_stands_on_a_rung() -> None:
    assert {top(name) for name in modules() if name} <= RUNG_OF.keys()


def test_imports_point_down() -> None:
    arrows = []
    for found in ALL:
        if not found.ours or not found.where or found.target in ("", "__version__"):
            continue
        here, there = top(found.where), top(found.target)
        lower, upper = RUNG_OF[here], RUNG_OF[there]
        sideways = here != there and lower == upper and lower in (2, 3)
        if (upper > lower or sideways) and (here, found.target) not in ACROSS:
            arrows.append(f"{found.where}:{found.line} (rung {lower}) -> {found.target} (rung {upper})")
    assert not arrows, "imports that point up or sideways:\n" + "\n".join(arrows)


def test_configuration_knows_the_vocabulary_and_what_it_makes() -> None:
    arrows = [
        f"config:{found.line} -> {found.target}"
        for found in ALL
        if found.ours and top(found.where) == "config"
        if top(found.target) not in (*RUNGS[1], "config", "routing") and found.target not in DATA
    ]
    assert not arrows, "\n".join(arrows)


def test_data_is_only_data() -> None:
    """Modules that may be known from below hold no functions of their own, only structs."""
    functions = [
        f"{name}:{node.lineno}: {node.name}"
        for name, tree in modules().items()
        if name in DATA
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert not functions, "\n".join(functions)


def test_lower_rungs_touch_nothing_outside() -> None:
    touched = []
    for name, tree in modules().items():
        if RUNG_OF.get(top(name), 4) > 2:
            continue
        touched += [f"{name}:{i.line}: {i.target}" for i in imports(name, tree) if top(i.target) in IMPURE]
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in ("open", "input", "print") or called.endswith((".now", ".utcnow", ".today")):
                touched.append(f"{name}:{node.lineno}: {called}()")
    assert not touched, "not pure:\n" + "\n".join(touched)


def test_a_foreign_library_has_one_home() -> None:
    importers: dict[str, set[str]] = defaultdict(set)
    for found in ALL:
        library = top(found.target)
        if not found.ours and library not in sys.stdlib_module_names and library not in EVERYWHERE:
            importers[library].add(found.where)
    strays = []
    for library, where in sorted(importers.items()):
        homes = HOMES.get(library) or sorted(where)[:1]
        outside = sorted(name for name in where if not any(is_within(name, home) for home in homes))
        strays += [f"{library}: {name} (its home: {', '.join(homes)})" for name in outside]
    assert not strays, "imported outside its home:\n" + "\n".join(strays)


@pytest.mark.parametrize("module", ["sluicegate.server.worker", "sluicegate.server.app"])
def test_a_worker_is_lean(module: str) -> None:
    code = f"import {module}, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    brought = HEAVY & {top(name) for name in run.stdout.split()}
    assert not brought, f"{module} brings {sorted(brought)}"
