"""JSON Schemas in the dialect that Messages takes: object roots for tools, closed objects for structured output.

Only schema positions are looked at: a property that happens to be called `format` or `minimum` is a property. What the
dialect lacks is told in words in the description, so that the model still knows. Source: translation matrix, sections
7 and 13.
"""

from typing import Any

from sluicegate.wire import json_edit

Schema = dict[str, Any]
_LIMITS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
)
_ONE = ("items", "contains", "not", "if", "then", "else")
_MANY = ("anyOf", "allOf", "oneOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_MAX_DEPTH = 64


def tool_schema(parameters: Schema | None) -> Schema | None:
    """Return the schema of a tool's arguments; None where its root is something else than an object."""
    if not parameters:
        return {"type": "object", "properties": {}}
    kind = parameters.get("type")
    if kind == "object":
        return parameters
    if kind is None and not any(key in parameters for key in ("anyOf", "oneOf", "allOf", "$ref", "enum")):
        return {"type": "object", **parameters}
    return None


def closed_schema(schema: Schema) -> Schema:
    """Return a schema for structured output: every object closed, limits told in descriptions.

    Raises:
        RecursionError: it is nested too deeply.
    """
    closed: Schema = _closed(schema, _MAX_DEPTH)
    return closed


def has_open_objects(schema: Any) -> bool:
    """Whether members of any name are allowed somewhere, which closing takes away."""
    waiting = [schema]
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, list):
            waiting += schema
        elif isinstance(schema, dict):
            more = schema.get("additionalProperties")
            if isinstance(more, dict) or more is True:
                return True
            waiting += [schema.get(key) for key in (*_ONE, *_MANY)]
            for key in _NAMED:
                waiting += _values(schema.get(key))
    return False


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _closed(schema: Any, depth: int) -> Any:
    if not isinstance(schema, dict):
        return schema
    if depth == 0:
        raise RecursionError("a schema is nested too deeply")
    closed: Schema = {}
    limits: Schema = {}
    for key, value in schema.items():
        if key in _LIMITS and not (key == "minItems" and value in (0, 1)):
            limits[key] = value
        elif key in _ONE:
            closed[key] = _closed(value, depth - 1)
        elif key in _MANY and isinstance(value, list):
            closed[key] = [_closed(item, depth - 1) for item in value]
        elif key in _NAMED and isinstance(value, dict):
            closed[key] = {name: _closed(inner, depth - 1) for name, inner in value.items()}
        else:
            closed[key] = value
    kind = closed.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in closed:
        closed["additionalProperties"] = False
    if limits:
        told = ", ".join(f"{key}: {json_edit.dumps(value).decode()}" for key, value in limits.items())
        before = closed.get("description")
        closed["description"] = f"{before} ({told})" if isinstance(before, str) and before else told
    return closed
