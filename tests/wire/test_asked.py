"""What an answer's writer knows of the request, under another id."""

import msgspec

from sluicegate.wire.asked import Asked


def test_under_another_id_all_else_is_the_same() -> None:
    asked = Asked(
        model="m", id="a" * 24, created=7, hide_provider=True, input_estimate=3, usage_shown=False,
        continuous_usage=True, array=True, legacy_functions=True, echo=("p",), tool_names={"a": "b"},
        custom_tools=frozenset({"c"}), namespaces={"n_t": ("n", "t")}, search_tool="s",
        raw={"x": msgspec.Raw(b"1")},
    )  # fmt: skip
    asked.search_sources = asked.kept = True
    asked.close_id, asked.previous_id = str.upper, "before"
    other = asked.under("b" * 24)
    facts = [name for name in dir(asked) if not name.startswith("_") and name != "under"]
    assert len(facts) == 19
    assert {name for name in facts if getattr(other, name) != getattr(asked, name)} == {"id"}
    assert (asked.id, other.id) == ("a" * 24, "b" * 24)
