"""Schemas: Gemini's own dialect turned into JSON Schema, and JSON Schema into what that dialect takes.

Only positions that hold a schema are touched: a property may be called `type` or `format`. What the dialect cannot say
goes into the description, in words. Source: wire formats page `gemini.md`, "Function declarations and schema".
"""

from collections.abc import Callable
from typing import Any

import msgspec

from sluicegate.wire.gemini_fields import camel

MAX_DEPTH = 64
_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
_ALLOWED = frozenset(
    {
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "items",
        "properties",
        "required",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "anyOf",
        "propertyOrdering",
        "default",
        "example",
    }
)
_SILENT = frozenset({"$schema", "$id", "$defs", "definitions", "$comment", "additionalProperties", "strict"})
"""Keywords that say nothing a model would need in words."""

Schema = dict[str, Any]


def to_json_schema(schema: Any, depth: int = 0) -> Schema:
    """Return a schema of Gemini's dialect, in either spelling, as JSON Schema."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return {}
    fields = {camel(key): value for key, value in schema.items() if value is not None}
    found: Schema = {}
    for key, value in fields.items():
        if key == "type":
            kind = str(value).upper()
            if kind in _TYPES:
                found["type"] = kind.lower()
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            found[key] = to_json_schema(value, depth + 1)
        elif key in ("properties", "$defs", "defs") and isinstance(value, dict):
            found["$defs" if key == "defs" else key] = {
                name: to_json_schema(inner, depth + 1) for name, inner in value.items()
            }
        elif key == "anyOf" and isinstance(value, list):
            found[key] = [to_json_schema(inner, depth + 1) for inner in value]
        elif key in _COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
            found[key] = int(value)
        elif key == "example":
            found["examples"] = [value]
        elif key == "ref":
            found["$ref"] = value
        elif key not in ("nullable", "propertyOrdering"):
            found[key] = value
    if fields.get("nullable") is True:
        _make_nullable(found)
    return found


def from_either_dialect(schema: Any) -> Any:
    """Return what stands where a JSON Schema belongs, Gemini's own dialect turned into it.

    Clients of the vendor write that dialect there too, and its server reads it.
    """
    kind = schema.get("type") if isinstance(schema, dict) else None
    is_own = isinstance(kind, str) and kind in _TYPES
    return to_json_schema(schema) if is_own else schema


def _make_nullable(schema: Schema) -> None:
    if "type" in schema:
        schema["type"] = [schema["type"], "null"]
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
    elif isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]


def from_json_schema(schema: Schema, lost: Callable[[str], None]) -> Schema:
    """Return JSON Schema in the dialect that every server of this format takes.

    Args:
        lost: told each keyword that could only be put into words.
    """
    definitions = {**_dict(schema.get("definitions")), **_dict(schema.get("$defs"))}
    return _Cleaner(definitions, lost).clean(schema, ())


class _Cleaner:
    """Writes one schema, its references put in place."""

    def __init__(self, definitions: Schema, lost: Callable[[str], None]) -> None:
        self._definitions = definitions
        self._lost = lost

    def clean(self, schema: Any, within: tuple[str, ...]) -> Schema:
        """Return one schema.

        Args:
            within: the references that lead here; one that leads to itself ends as an object.
        """
        if not isinstance(schema, dict) or len(within) > MAX_DEPTH:
            return {"type": "OBJECT"} if len(within) > MAX_DEPTH else {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            name = reference.rsplit("/", 1)[-1]
            if name in within or name not in self._definitions:
                self._lost("$ref")
                return {"type": "OBJECT"}
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return self.clean({**_dict(self._definitions[name]), **rest}, (*within, name))
        schema = _rewritten(schema)
        found: Schema = {}
        words: list[str] = []
        for key, value in schema.items():
            if key == "type":
                found["type"] = str(value).upper()
            elif key == "properties" and isinstance(value, dict):
                found[key] = {name: self.clean(inner, (*within, "")) for name, inner in value.items()}
            elif key == "items":
                found[key] = self.clean(value, (*within, ""))
            elif key == "anyOf" and isinstance(value, list):
                found[key] = [self.clean(inner, (*within, "")) for inner in value]
            elif key == "enum" and isinstance(value, list):
                found[key] = [item if isinstance(item, str) else _text(item) for item in value]
            elif key in _ALLOWED:
                found[key] = value
            elif key not in _SILENT:
                self._lost(key)
                words.append(f"{key}: {_text(value)}")
        if found.get("type") == "ARRAY" and "items" not in found:
            found["items"] = {}
        if words:
            described = found.get("description")
            found["description"] = " ".join([described, *words] if isinstance(described, str) else words)
        return found


def _rewritten(schema: Schema) -> Schema:
    """Say with keywords of the dialect what JSON Schema says with others: unions with null, const, oneOf, examples."""
    found = dict(schema)
    kinds = found.get("type")
    if isinstance(kinds, list):
        real = [kind for kind in kinds if kind != "null"]
        if len(real) < len(kinds):
            found["nullable"] = True
        if len(real) == 1:
            found["type"] = real[0]
        else:
            del found["type"]
            if real and "anyOf" not in found:
                found["anyOf"] = [{"type": kind} for kind in real]
    if "oneOf" in found and "anyOf" not in found:
        found["anyOf"] = found.pop("oneOf")
    unions = found.get("anyOf")
    if isinstance(unions, list):
        real = [inner for inner in unions if inner != {"type": "null"}]
        if len(real) < len(unions):
            found["nullable"] = True
            if len(real) == 1 and isinstance(real[0], dict):
                del found["anyOf"]
                found = {**real[0], **found}
            else:
                found["anyOf"] = real
    if "const" in found and "enum" not in found:
        found["enum"] = [found.pop("const")]
        found.setdefault("type", "string")
    if isinstance(found.get("enum"), list) and None in found["enum"]:
        found["enum"] = [item for item in found["enum"] if item is not None]
        found["nullable"] = True
    if isinstance(found.get("examples"), list) and found["examples"]:
        found["example"] = found.pop("examples")[0]
    return found


def _dict(value: Any) -> Schema:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
