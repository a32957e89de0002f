"""A parsed file as sections, or everything that is wrong with it in our words."""

import difflib
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import ValidationError

from sluicegate.config.document import Path as SettingPath
from sluicegate.config.document import Problem
from sluicegate.config.schema import Sections
from sluicegate.config.section import Section, SectionT


def read(data: dict[str, Any], folder: Path) -> Sections | list[Problem]:
    """Read a parsed file into sections, or tell everything that is wrong with it.

    Args:
        folder: what relative paths are relative to.
    """
    return read_as(Sections, data, folder)


def read_as(root: type[SectionT], data: dict[str, Any], folder: Path) -> SectionT | list[Problem]:
    """Do what `read` does for a file of another kind."""
    try:
        return root.model_validate(data, context={"folder": folder})
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=True, include_input=False)
        return [_problem(root, detail["type"], detail["loc"], detail.get("ctx") or {}) for detail in found]


def _problem(
    root: type[Section], kind: str, place: tuple[int | str, ...], context: dict[str, Any]
) -> Problem:
    if place and place[-1] == "[key]":
        place = place[:-1]
    if kind == "extra_forbidden":
        return Problem(place, _unknown(place, root))
    if kind == "value_error":
        return Problem(place, str(context["error"]))
    if kind in _REASONS:
        return Problem(place, _REASONS[kind].format(**context))
    return Problem(place, kind.replace("_", " "))


_REASONS = {
    "missing": "is required",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} entry",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "string_type": "must be text",
}
"""What pydantic finds, in our words."""


def _unknown(place: SettingPath, root: type[Section]) -> str:
    names = sorted(field.alias or name for name, field in _section_at(place[:-1], root).model_fields.items())
    near = difflib.get_close_matches(str(place[-1]), names, n=1, cutoff=0.6)
    if near:
        return f"unknown field; did you mean {near[0]}?"
    return f"unknown field; there are {', '.join(names)}"


def _section_at(place: SettingPath, root: type[Section]) -> type[Section]:
    """Return the section that stands at a path, for its field names."""
    kind: Any = root
    for part in place:
        section = _sections_in(kind)
        inner = section.model_fields[str(part)].annotation if section and isinstance(part, str) else None
        if section is not None and inner is not None:
            kind = inner
        else:
            kind = get_args(kind)[-1 if get_origin(kind) is dict else 0]
    section = _sections_in(kind)
    if section is None:
        raise AssertionError(f"no section at {place}")
    return section


def _sections_in(kind: Any) -> type[Section] | None:
    """Return the section that a type is, alone or beside None."""
    for choice in (kind, *(get_args(kind) if get_origin(kind) in (Union, UnionType) else ())):
        if isinstance(choice, type) and issubclass(choice, Section):
            return choice
    return None
