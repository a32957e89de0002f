"""The reference page and the schema say what the code does."""

import json
from pathlib import Path

import pytest

from sluicegate.config import reference
from sluicegate.config.json_schema import json_schema
from sluicegate.config.loading import load
from sluicegate.config.not_built_yet import NOT_BUILT_YET
from sluicegate.config.schema import Sections
from sluicegate.config.section import Section
from sluicegate.config.starter import STARTER
from sluicegate.config.values import format_duration, parse_duration
from tests.test_config import NOW, write

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"


def test_the_page_is_what_make_docs_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.render(), "run `make docs`"


def test_every_setting_is_described() -> None:
    schema = json_schema()
    forms = [schema, *(form for one in schema["$defs"].values() for form in one.get("anyOf", [one]))]
    described = 0
    for form in forms:
        for name, setting in form.get("properties", {}).items():
            assert len(setting["description"]) > 8, name
            described += 1
    assert described > 120


def test_every_setting_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")

    def names(section: type[Section]) -> set[str]:
        below = [names(inner) for inner in section.__subclasses__()]
        own = {field.alias or name for name, field in section.model_fields.items()}
        return own.union(*below)

    for name in names(Section) - {"free", "unlimited"}:
        assert f"`{name}`" in page


def test_defaults_in_the_schema_stand_as_in_a_file(tmp_path: Path) -> None:
    """What the schema gives as defaults, written into a file, is what an empty file means."""
    schema = json_schema()

    def defaults(form: dict[str, object]) -> dict[str, object]:
        found: dict[str, object] = {}
        properties = form["properties"]
        assert isinstance(properties, dict)
        for name, setting in properties.items():
            if "$ref" in setting:
                inner = schema["$defs"][setting["$ref"].rpartition("/")[2]]
                found[name] = defaults(inner)
            elif setting.get("default") is not None:
                found[name] = setting["default"]
        return found

    written = load(write(tmp_path, json.dumps(defaults(schema))), {}, NOW)
    bare = load(write(tmp_path, "models: {}"), {}, NOW)
    assert written.worker_settings(b"", {}) == bare.worker_settings(b"", {})
    assert written.sections.admin == bare.sections.admin
    assert written.store_url == bare.store_url


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.25, 1.0, 1.5, 60.0, 75.0, 300.0, 3600.0, 86400.0, 172800.0])
def test_durations_are_written_as_they_are_read(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


def test_what_is_not_built_yet_names_settings_that_exist() -> None:
    schema = json_schema()
    for setting in NOT_BUILT_YET:
        form = schema
        for part in setting.path.split("."):
            form = next((one for one in form.get("anyOf", [form]) if one.get("type") != "null"), form)
            if "$ref" in form:
                form = schema["$defs"][form["$ref"].rpartition("/")[2]]
            if part == "*":
                form = form.get("additionalProperties") or form["items"]
            else:
                assert part in form["properties"], setting.path
                form = form["properties"][part]


def test_the_starter_is_right_and_without_warnings(tmp_path: Path) -> None:
    config = load(write(tmp_path, STARTER), {"OPENAI_API_KEY": "k"}, NOW)
    assert config.warnings == ()
    assert config.prices["gpt-5-mini"].price is not None
    uncommented = (
        STARTER.replace("# token:", "token:").replace("\n# keys:", "\nkeys:").replace("\n#   - {", "\n  - {")
    )
    env = {"OPENAI_API_KEY": "k", "SLUICEGATE_ADMIN_TOKEN": "t", "DEV_KEY": "d" * 20}
    assert load(write(tmp_path, uncommented), env, NOW).bootstrap().keys[0].account == "team"


def test_sections_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Sections().translation = "strict"  # type: ignore[misc]
