"""Builds the compiled wheel: the serving path as C, by mypyc. `make wheel` switches this on; other builds are plain.

The modules that `pyproject.toml` lists become one shared library and a small extension each, which Python prefers to
the sources beside them. Nothing is written into the source tree, so that no library outlives the code it was made
from. What compiled modules must not do is in CONTRIBUTING.md, and checked by `tests/test_compiled_modules.py`.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "sluicegate"
_FLAGS = ("-fvisibility=hidden", "-fno-plt", "-w")
"""Calls inside the library and into Python's go straight; what mypyc writes is not ours to tidy, so no warnings."""


def compiled_modules(source: Path, include: list[str], interpreted: list[str]) -> list[str]:
    """Return the paths of the modules to compile, relative to the source folder, in order."""
    paths = sorted(path.relative_to(source / PACKAGE).as_posix() for path in source.rglob("*.py"))
    return [
        f"{PACKAGE}/{path}"
        for path in paths
        if any(fnmatch(path, pattern) for pattern in include)
        and not any(fnmatch(path, pattern) for pattern in interpreted)
    ]


class CompiledBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled modules to a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and put what came of it beside the sources."""
        if version == "editable":
            return
        root = Path(self.root)
        output = Path(self.directory).resolve() / "mypyc"
        modules = compiled_modules(root / "src", self.config["include"], self.config["interpreted"])
        for path, place in _build(root, modules, output):
            build_data["force_include"][str(path)] = place
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _build(root: Path, modules: list[str], output: Path) -> list[tuple[Path, str]]:
    """Write C, compile and link it; return each library with its place in the wheel."""
    from mypyc.build import mypycify

    before = Path.cwd()
    os.chdir(root / "src")  # where mypyc finds modules by their names
    try:
        extensions = mypycify(
            ["--config-file", str(root / "pyproject.toml"), "--cache-dir", str(output / "cache"), *modules],
            opt_level="2",
            debug_level="0",
            multi_file=True,
            target_dir=str(output),
            group_name=PACKAGE,
        )
        made = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for extension in extensions:
                objects = list(pool.map(lambda source, of=extension: _compile(source, of), extension.sources))
                place = extension.name.replace(".", "/") + str(sysconfig.get_config_var("EXT_SUFFIX"))
                library = output / "libraries" / place
                library.parent.mkdir(parents=True, exist_ok=True)
                _run([*_words("LDSHARED"), *objects, "-o", str(library)])
                made.append((library, place))
    finally:
        os.chdir(before)
    return made


def _compile(source: str, extension: Any) -> str:
    compiled = source.removesuffix(".c") + ".o"
    folders = [f"-I{folder}" for folder in (*extension.include_dirs, sysconfig.get_path("include"))]
    flags = [*_words("CFLAGS"), *_words("CCSHARED"), *extension.extra_compile_args, *_FLAGS]
    _run([*_words("CC"), *flags, *folders, "-c", source, "-o", compiled])
    return compiled


def _words(variable: str) -> list[str]:
    """Return what a variable of Python's own build says, as words of a command."""
    return shlex.split(os.environ.get(variable) or str(sysconfig.get_config_var(variable) or ""))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stderr}")
