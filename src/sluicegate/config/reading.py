"""A parsed file as sections, or everything that is wrong with it in our words."""

import difflib
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import ValidationError, WithJsonSchema

from sluicegate.config.document import Path as SettingPath
from sluicegate.config.document import Problem
from sluicegate.config.schema import Sections
from sluicegate.config.section import Section, SectionT
from sluicegate.config.values import format_duration


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
        return [
            _problem(root, detail["type"], detail["loc"], detail.get("ctx") or {})
            for detail in found
            if not (detail["type"] == "too_short" and _holds_another(detail["loc"], found))
        ]


def _holds_another(place: tuple[int | str, ...], found: list[Any]) -> bool:
    """Tell whether entries of a list are wrong, which pydantic then finds too short as well."""
    return any(len(other["loc"]) > len(place) and other["loc"][: len(place)] == place for other in found)


def _problem(
    root: type[Section], kind: str, place: tuple[int | str, ...], context: dict[str, Any]
) -> Problem:
    if place and place[-1] == "[key]":
        place = place[:-1]
    if kind == "extra_forbidden":
        return Problem(place, _unknown(place, root))
    if kind == "value_error":
        return Problem(place, str(context["error"]))
    if kind in _BOUNDS:
        bound = next(iter(context.values()))
        shown = format_duration(bound) if _is_duration(place, root) else bound
        return Problem(place, f"{_BOUNDS[kind]} {shown}")
    if kind in _REASONS:
        return Problem(place, _REASONS[kind].format(**context))
    return Problem(place, kind.replace("_", " "))


_BOUNDS = {
    "greater_than_equal": "must be at least",
    "less_than_equal": "must be at most",
    "greater_than": "must be more than",
    "less_than": "must be less than",
}
_REASONS = {
    "missing": "is required",
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

_OUR_WORDS = {
    "address": "listen",
    "api_base": "base_url",
    "bind": "listen",
    "completion": "output",
    "endpoint": "base_url",
    "format": "speaks",
    "formats": "speaks",
    "host": "listen",
    "port": "listen",
    "prompt": "input",
    "protocol": "speaks",
    "type": "speaks",
    "vision": "images",
}
"""What others call a setting, and what it is here."""


def _unknown(place: SettingPath, root: type[Section]) -> str:
    names = sorted(field.alias or name for name, field in _section_at(place[:-1], root).model_fields.items())
    word = str(place[-1])
    before, colon, _ = word.partition(":")
    if colon and before in names:
        return f"unknown field; a space is missing after `{before}:`"
    near = (
        [name for name in (_OUR_WORDS.get(word.lower()),) if name in names]
        or [name for name in names if word.startswith(f"{name}_")]
        or difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    )
    if near:
        return f"unknown field; did you mean {near[0]}?"
    return f"unknown field; there are {', '.join(names)}"


def _is_duration(place: SettingPath, root: type[Section]) -> bool:
    field = _section_at(place[:-1], root).model_fields.get(str(place[-1]))
    return field is not None and _says_duration(field.annotation, field.metadata)


def _says_duration(kind: Any, metadata: Any) -> bool:
    for form in metadata:
        if isinstance(form, WithJsonSchema) and (form.json_schema or {}).get("format") == "duration":
            return True
    return any(_says_duration(inner, getattr(inner, "__metadata__", ())) for inner in get_args(kind))


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
