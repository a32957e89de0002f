"""Every need in `needs.toml` has tests that exist, or is an SDK's own doing."""

import re
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = {
    "python": "sdk/test_needs_python.py",
    "node": "sdk/test_needs_node.py",
    "single": "sdk/test_needs_single_python.py",
    "grid": "grid/test_python_sdks.py",
    "grid_node": "grid/test_node_sdks.py",
}
NEEDS = {
    f"{group}.{need}": places
    for group, needs in tomllib.loads((HERE / "needs.toml").read_text()).items()
    for need, places in needs.items()
}


@pytest.mark.parametrize("need", NEEDS)
def test_need_has_a_test(need: str) -> None:
    places = NEEDS[need]
    if isinstance(places, str):
        assert places.startswith("sdk: ")
        return
    assert places
    for place in places:
        file, _, name = place.partition("::")
        text = (HERE.parent / FILES.get(file, file)).read_text()
        assert not name or re.search(rf"^(?:async )?def {name}\b", text, re.MULTILINE), f"no {place}"
