"""Every fault that users of such systems reported has a test that names it, or says why not yet.

`cases/table.toml` holds the list: an id, and the tests that carry it (`file` or `file::test`, below `tests`), or a
reason. Tests name the ids in their names, parameters, or comments.
"""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE: dict[str, list[str] | str] = tomllib.loads((HERE / "cases" / "table.toml").read_text())
FAULTS = 107
"""How many were collected."""
NOT_YET = "not yet: "


def test_the_table_is_whole() -> None:
    assert len(TABLE) == FAULTS
    assert list(TABLE) == sorted(TABLE)


@pytest.mark.parametrize("id_", TABLE)
def test_case_has_a_test(id_: str) -> None:
    places = TABLE[id_]
    if isinstance(places, str):
        assert places.removeprefix(NOT_YET).strip()
        assert places.startswith(NOT_YET)
        return
    assert places
    for place in places:
        file, _, name = place.partition("::")
        text, functions = read(file)
        assert id_ in text, f"{file} does not name it"
        assert not name or name in functions, f"{file} has no {name}"


@cache
def read(file: str) -> tuple[str, frozenset[str]]:
    """Return a test file's text in upper case, and the functions in it."""
    text = (HERE / file).read_text()
    return text.upper(), frozenset(re.findall(r"^(?:async )?def (\w+)", text, re.MULTILINE))
