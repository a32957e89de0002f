"""Settings that are accepted but do nothing yet. Each gives one warning line at start; take its line out
when it works."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from sluicegate.config.document import Path, show
from sluicegate.config.scalars import plain
from sluicegate.config.schema import Sections
from sluicegate.config.section import Section


class NotBuilt(NamedTuple):
    """A setting without effect; at its default it is never warned of."""

    path: str
    """Dotted; `*` stands for any name or place in a list."""
    works: tuple[str, ...] = ()
    """Values that do work, by how they begin."""
    so: str = "it has no effect"
    """What follows."""


NOT_BUILT_YET = (
    NotBuilt("server.cors_origins"),
    NotBuilt("store", works=("sqlite:",), so="the gate does not start with it"),
    NotBuilt("counters", works=("memory",)),
    NotBuilt(
        "providers.*.auth",
        works=("bearer", "x-api-key", "x-goog-api-key", "api-key", "none"),
        so="its requests go without credentials",
    ),
)
"""Every setting that the schema takes and the gate does not act on."""


def warnings(sections: Sections) -> Iterator[str]:
    """Tell, once each, which settings of a file do nothing yet."""
    for setting in NOT_BUILT_YET:
        places = [
            path
            for path, value in _set_at(sections, tuple(setting.path.split(".")), ())
            if not (setting.works and plain(value).startswith(setting.works))
        ]
        if places:
            more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
            yield f"{show(places[0])}{more}: accepted, but not built yet; {setting.so}"


def _set_at(value: Any, parts: tuple[str, ...], path: Path) -> Iterator[tuple[Path, Any]]:
    """Go through what a file sets, other than the default, at the places of a pattern."""
    if not parts:
        yield path, value
    elif isinstance(value, Section):
        name = parts[0]
        inner = getattr(value, name)
        if name in value.model_fields_set and inner != type(value).model_fields[name].default:
            yield from _set_at(inner, parts[1:], (*path, name))
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _set_at(inner, parts[1:], (*path, name))
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _set_at(inner, parts[1:], (*path, index))
