"""The JSON Schema of the configuration, for editors and for docs/configuration.md: bounds, defaults and help."""

import ast
import inspect
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from annotated_types import Ge, Le
from pydantic import SecretStr

from sluicegate.config import values
from sluicegate.config.scalars import plain
from sluicegate.config.schema import Sections
from sluicegate.config.section import Section
from sluicegate.config.stream_settings import StreamOverrides
from sluicegate.config.values import Address
from sluicegate.money import format_usd


def json_schema(root: type[Section] = Sections) -> dict[str, Any]:
    """Return the JSON Schema of the file, for editors and for the reference in docs/."""
    schema = root.model_json_schema()
    schema.pop("title")
    sections: list[type[Section]] = list(_sections_below(Section))
    helps = _help(sections)
    for section in sections:
        definition = schema if section is root else schema["$defs"].get(section.__name__, {})
        definition.pop("title", None)
        for form in definition.get("anyOf", [definition]):
            form.pop("title", None)
            fields = {field.alias or name: name for name, field in section.model_fields.items()}
            for spelled, setting in form.get("properties", {}).items():
                name = fields[spelled]
                setting.pop("title", None)
                setting["description"] = helps[section.__name__][name]
                for bound in section.model_fields[name].metadata:
                    if setting.get("type") == "integer":
                        setting |= {"minimum": bound.ge} if isinstance(bound, Ge) else {}
                        setting |= {"maximum": bound.le} if isinstance(bound, Le) else {}
                if section is StreamOverrides:
                    setting.pop("default", None)
                if "default" in setting:
                    setting["default"] = _written(section.model_fields[name].default, setting)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Sluicegate", **schema}


def _sections_below(base: type[Section]) -> Iterator[type[Section]]:
    for section in base.__subclasses__():
        yield section
        yield from _sections_below(section)


def _written(default: Any, setting: dict[str, Any]) -> Any:
    """Return a default as it would stand in a file."""
    if isinstance(default, Section):
        return {}
    if isinstance(default, SecretStr | Address | Path):
        return plain(default)
    if setting.get("format") == "duration":
        return values.format_duration(default)
    if setting.get("format") == "usd":
        return json.loads(format_usd(default))
    if not default and {"const": "auto"} in setting.get("anyOf", []):
        return "auto"
    if isinstance(default, float) and default.is_integer():
        return int(default)
    return list(default) if isinstance(default, tuple) else default


def _help(sections: list[type[Section]]) -> dict[str, dict[str, str]]:
    """Read the strings beneath the fields of each section, inherited ones included, out of their modules' source.

    pydantic can do it too, but parses the whole module anew for every section, each time the gate starts.
    """
    own: dict[str, dict[str, str]] = {}
    for module in {section.__module__ for section in sections}:
        for node in ast.parse(inspect.getsource(sys.modules[module])).body:
            if isinstance(node, ast.ClassDef):
                own[node.name] = {
                    ast.unparse(setting.target): " ".join(ast.literal_eval(text.value).split())
                    for setting, text in itertools.pairwise(node.body)
                    if isinstance(setting, ast.AnnAssign) and isinstance(text, ast.Expr)
                }
    return {
        section.__name__: {
            name: text
            for base in reversed(section.__mro__)
            for name, text in own.get(base.__name__, {}).items()
        }
        for section in sections
    }
