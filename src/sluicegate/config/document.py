"""Reads the configuration's YAML as text, with the line of every value; nothing is turned into a number or
a float.

A mapping becomes a dict, a sequence a list, an empty or `null` scalar None, any other scalar `Text`. So
`1.10` stays `1.10` and money is exact. Keys that stand twice are refused; anchors, aliases and `<<` work.
`${NAME}` is put in here, after parsing, so that no value from the environment can change the structure.

Source: YAML 1.1 as PyYAML reads it; expansion `${X:-default}` as in POSIX shells, 2.6.2.
"""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from sluicegate.errors import ConfigError

Path = tuple[str | int, ...]

MAX_BYTES = 4 * 1024 * 1024
MAX_NODES = 50_000
MAX_DEPTH = 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHELL_NAME = re.compile(r"\$[A-Z_][A-Z0-9_]*")
_MERGE = "tag:yaml.org,2002:merge"
_NULL = "tag:yaml.org,2002:null"
_BINARY = "tag:yaml.org,2002:binary"


class Text(str):
    """A scalar: its text after expansion, and `written`, which may be shown (it holds no value of the
    environment)."""

    written: str

    def __new__(cls, value: str, written: str | None = None) -> "Text":
        text = super().__new__(cls, value)
        text.written = value if written is None else written
        return text


class Problem(ConfigError):
    """One thing wrong at one path."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{show(path)}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def show(path: Path) -> str:
    """Write a path as an operator would: models.gpt.routes[0].provider; odd names are quoted."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z0-9_$-]+", part):
            shown += f".{part}" if shown else part
        else:
            shown += f'["{part}"]'
    return shown


class Document:
    """A parsed file. `data` is its top mapping, `problems` what was wrong on the way, `lines` where each
    path stands."""

    def __init__(self, text: str, env: Mapping[str, str]) -> None:
        self.lines: dict[Path, int] = {}
        self.problems: list[Problem] = []
        self.literal: list[Path] = []
        """Where a value is `$NAME` without braces, which stays as it is."""
        self._env = env
        self._left = MAX_NODES
        self.data: dict[str, Any] = self._top(text)

    def line(self, path: Path) -> int | None:
        """Return the line of a path, or of the nearest thing around it."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return None

    def _top(self, text: str) -> dict[str, Any]:
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            raise ConfigError(f"not YAML: {_explained(error, text)}") from None
        except yaml.YAMLError as error:
            raise ConfigError(f"not YAML: {str(error).splitlines()[0]}") from None
        except RecursionError:
            raise ConfigError("nested too deep") from None
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == _NULL):
            raise ConfigError("the file is empty; `sluicegate config init` writes one to start from")
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError("the file must hold a mapping (`server: …`, `providers: …`, `models: …`)")
        data: dict[str, Any] = self._mapping(node, (), frozenset())
        return data

    def _value(self, node: yaml.Node, path: Path, above: frozenset[int]) -> Any:
        self.lines[path] = node.start_mark.line + 1
        self._left -= 1
        if self._left < 0:
            raise ConfigError("the file is too large once its aliases are followed")
        if id(node) in above:
            raise Problem(path, "an alias that contains itself")
        if len(path) > MAX_DEPTH:
            raise Problem(path[:3], "nested too deep")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, above)
        if isinstance(node, yaml.SequenceNode):
            inside = above | {id(node)}
            return [self._value(child, (*path, index), inside) for index, child in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path, above: frozenset[int]) -> dict[str, Any]:
        inside = above | {id(node)}
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._wrong(path, "a key must be a plain word", key_node)
                continue
            if key_node.tag == _MERGE:
                self._merge(value_node, path, inside, merged)
                continue
            key = str(key_node.value)
            if key in own:
                self._wrong((*path, key), "stands twice", key_node)
                continue
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            own[key] = self._value(value_node, (*path, key), inside)
        return {**merged, **own}

    def _merge(self, node: yaml.Node, path: Path, inside: frozenset[int], merged: dict[str, Any]) -> None:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if not isinstance(source, yaml.MappingNode) or id(source) in inside:
                self._wrong(path, "<< takes a mapping or a list of mappings", node)
                continue
            for key, value in self._mapping(source, path, inside).items():
                merged.setdefault(key, value)

    def _scalar(self, node: yaml.Node, path: Path) -> Text | None:
        if node.tag == _NULL:
            return None
        if node.tag == _BINARY:
            self._wrong(path, "binary values have no meaning here", node)
        if _SHELL_NAME.fullmatch(node.value):
            self.literal.append(path)
        try:
            return Text(expand(node.value, self._env), node.value)
        except ValueError as error:
            self._wrong(path, str(error), node)
            return Text(node.value)

    def _wrong(self, path: Path, reason: str, node: yaml.Node) -> None:
        self.lines[path] = node.start_mark.line + 1
        self.problems.append(Problem(path, reason))


def _explained(error: yaml.MarkedYAMLError, text: str) -> str:
    """Say where a file stops being YAML, and what is likely meant where the parser's own words do not."""
    problem, context = error.problem or "", error.context or ""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return problem or context
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "'\\t'" in problem:
        problem = "a tab where only spaces may stand"
    elif "cannot start any token" in problem:
        problem += "; a text that begins with it stands in quotes"
    elif context in ("while scanning an alias", "while scanning an anchor"):
        problem = f"{line.strip()[:1] or '*'} begins an alias or an anchor; as a text it stands in quotes"
    elif context == "while scanning a quoted scalar" and error.context_mark is not None:
        mark, problem = error.context_mark, "the quote that opens here is not closed"
    elif problem.startswith("expected <block end>"):
        problem = "its indentation does not fit the lines above"
    elif "got '{'" in problem and "${" in line:
        problem = "${…} stands in quotes inside braces and brackets"
    elif problem.startswith("mapping values are not allowed"):
        problem += "; a text with a colon and a space stands in quotes"
    return f"line {mark.line + 1}: {problem}"


def expand(text: str, env: Mapping[str, str]) -> str:
    """Put the environment into `${NAME}` and `${NAME:-default}`; `$$` is one dollar, any other dollar stays.

    Raises:
        ValueError: a variable without default is not set, or the braces are wrong.
    """
    if "$" not in text:
        return text
    parts: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        parts.append(text[at:dollar])
        following = text[dollar + 1 : dollar + 2]
        if following == "$":
            parts.append("$")
            at = dollar + 2
        elif following == "{":
            close = text.find("}", dollar)
            if close < 0:
                raise ValueError("${ is not closed (write $$ for a dollar sign)")
            parts.append(_lookup(text[dollar + 2 : close], env))
            at = close + 1
        else:
            parts.append("$")
            at = dollar + 1
    parts.append(text[at:])
    return "".join(parts)


def _lookup(inner: str, env: Mapping[str, str]) -> str:
    name, has_default, default = inner.partition(":-")
    if not _NAME.fullmatch(name):
        raise ValueError("${…} takes the name of an environment variable, such as ${OPENAI_API_KEY}")
    value = env.get(name)
    if has_default:
        return value or default
    if value is None:
        raise ValueError(f"the environment variable {name} is not set (${{{name}:-…}} gives a default)")
    return value
