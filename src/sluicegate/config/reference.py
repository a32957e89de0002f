"""Writes docs/configuration.md from the schema, so that the page cannot say anything else than the code.

`python -m sluicegate.config.reference FILE` writes it; without a file it prints.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sluicegate.config.json_schema import json_schema
from sluicegate.config.not_built_yet import NOT_BUILT_YET
from sluicegate.config.price_rows import CatalogueFile

HEAD = """\
# Configuration

<!-- Written by `make docs` from the settings' own help in src/sluicegate/config; change it there. -->

One YAML file, `sluicegate.yaml` unless `-c FILE` or `SLUICEGATE_CONFIG` names another. `sluicegate config init` writes
one to start from, `sluicegate config check` says whether a file is right and what each model costs,
`sluicegate config schema` prints its JSON Schema.

- Unknown fields are refused, and so is a key that stands twice.
- `${NAME}` in a value is taken from the environment; one that is not set is an error, `${NAME:-default}` gives a
  default, `$$` is a dollar sign.
- Durations have a unit: `250ms`, `30s`, `5m`, `1h`, `1d`. Money is in decimal USD, with at most nine decimals.
- Relative paths are relative to the file.
- A value that is left out or `null` has its default.
- Settings marked *not built yet* are accepted, and named in one warning when the gate starts.
"""

_FORMATS = {
    "duration": "duration",
    "usd": "USD",
    "host:port": "host:port",
    "path": "path",
    "uri": "URL",
    "password": "secret",
    "date-time": "date or time",
}
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
}


def render() -> str:
    """Return the whole page."""
    schema, shown = json_schema(), set[str]()
    prices = json_schema(CatalogueFile)
    return "\n".join(
        [
            HEAD,
            *_section("", schema, schema["$defs"], shown),
            *_section("(billing.catalogue_file)", prices, prices["$defs"], shown),
        ]
    )


def _section(
    path: str, schema: dict[str, Any], definitions: dict[str, Any], shown: set[str]
) -> Iterator[str]:
    """Write one section's table, then the sections inside it."""
    inner: list[tuple[str, str]] = []
    yield f"## {path.replace('.*', '.NAME') or 'The whole file'}\n"
    if path:
        yield " ".join(schema["description"].split()) + "\n"
    yield "| setting | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    required = schema.get("required", [])
    for name, setting in schema["properties"].items():
        here = f"{path}.{name}" if path else name
        kind, reference, suffix = _kind(setting)
        if reference:
            inner.append((here + suffix, reference))
        default = "required" if name in required else _default(setting, reference)
        unbuilt = " *Not built yet.*" if _is_unbuilt(here) else ""
        yield f"| `{name}` | {kind} | {default} | {setting.get('description', '')}{unbuilt} |"
    yield ""
    for here, reference in inner:
        definition = definitions[reference]
        words = [word for form in definition.get("anyOf", []) for word in form.get("enum", [])]
        form = next((form for form in definition.get("anyOf", []) if "properties" in form), definition)
        if reference in shown:
            text = " ".join(form["description"].split())
            yield f"## {here.replace('.*', '.NAME')}\n\n{text} Settings as above.\n"
            continue
        shown.add(reference)
        yield from _section(here, form, definitions, shown)
        if words:
            yield f"Instead of the mapping the word `{'` or `'.join(words)}` may stand.\n"


def _kind(setting: dict[str, Any]) -> tuple[str, str | None, str]:
    """Return a setting's type in words, the section it holds if any, and what leads to that section's own
    settings."""
    forms = [form for form in setting.get("anyOf", [setting]) if form.get("type") != "null"]
    form = forms[0]
    if "$ref" in form:
        return "mapping", form["$ref"].rpartition("/")[2], ""
    if len(forms) == 2 and forms[0].get("const"):
        return f"`{forms[0]['const']}` or {_kind(forms[1])[0]}", None, ""
    if form.get("type") == "array":
        kind, reference, _ = _kind(form["items"])
        return f"list of {kind}", reference, "[]"
    if isinstance(form.get("additionalProperties"), dict):
        kind, reference, _ = _kind(form["additionalProperties"])
        return f"mapping of names to {kind}", reference, ".*"
    if "enum" in form:
        return (
            ", ".join(f"`{json.dumps(word) if isinstance(word, bool) else word}`" for word in form["enum"]),
            None,
            "",
        )
    kind = _FORMATS.get(form.get("format", "")) or _TYPES[form["type"]]
    return kind + _bounds(form), None, ""


def _bounds(form: dict[str, Any]) -> str:
    low, high = form.get("minimum"), form.get("maximum")
    if low is not None and high is not None:
        return f", {low}–{high}"
    return f", at least {low}" if low else ""


def _default(setting: dict[str, Any], reference: str | None) -> str:
    default = setting.get("default")
    if reference or default in (None, {}, []):
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _is_unbuilt(path: str) -> bool:
    spelled = path.replace("[]", ".*")
    return any(not setting.works and setting.path.removesuffix(".*") == spelled for setting in NOT_BUILT_YET)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(render(), encoding="utf-8")
    else:
        print(render(), end="")
