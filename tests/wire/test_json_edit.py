"""Offsets and edits of JSON text, checked against `json` on random text with white space, escapes and duplicates."""

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import DecodeError
from sluicegate.wire import json_edit
from sluicegate.wire.json_edit import Member

Pairs = list[tuple[str, Any]]

keys = st.one_of(
    st.sampled_from(["a", "b", "id", "usage", "", "é", 'q"', "back\\", "u\n"]), st.text(max_size=4)
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8), st.sampled_from(['"', "\\", "}", "]", '","', '{"a":1}', "\\u", "\ud7ff", "😀"]),
)  # fmt: skip


class Object(list[tuple[str, Any]]):
    """An object as its pairs, duplicates kept."""


def pairs_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    return st.lists(st.tuples(keys, inner), max_size=4).map(Object)


values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), pairs_of(inner)), max_leaves=8
)
objects = pairs_of(values)
seeds = st.integers(0, 2**32)


def spell(value: Any, chance: random.Random) -> str:
    """Write JSON in one of its many spellings."""
    space = chance.choice(["", "", " ", "\n", "\t \r"])
    if isinstance(value, Object):
        inner = ("," + space).join(
            spell_text(key, chance) + space + ":" + space + spell(item, chance) for key, item in value
        )
        return "{" + space + inner + space + "}"
    if isinstance(value, list):
        return "[" + space + ("," + space).join(spell(item, chance) for item in value) + space + "]"
    if isinstance(value, str):
        return spell_text(value, chance)
    if isinstance(value, float) and chance.random() < 0.3:
        return f"{value:e}"
    return json.dumps(value)


def spell_text(text: str, chance: random.Random) -> str:
    if chance.random() < 0.3:
        units = text.encode("utf-16-be", "surrogatepass")
        return '"' + "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2)) + '"'
    return json.dumps(text, ensure_ascii=chance.random() < 0.5)


def pairs(text: bytes | str) -> Any:
    return json.loads(text, object_pairs_hook=Object)


def object_text(value: Object, seed: int) -> bytes:
    chance = random.Random(seed)
    return (
        chance.choice(["", " ", "\n\t"]) + spell(value, chance) + chance.choice(["", " ", "\r\n"])
    ).encode()


def places(members: list[Member]) -> list[tuple[str, int, int, int]]:
    return [(member.key, member.key_at, member.start, member.end) for member in members]


@given(objects, seeds)
def test_members_are_what_json_reads(value: Object, seed: int) -> None:
    data = object_text(value, seed)
    found = json_edit.members(data)
    assert [(member.key, pairs(data[member.start : member.end])) for member in found] == pairs(data)
    for member in found:
        assert data[member.key_at : member.key_at + 1] == b'"'
    assert places(json_edit.inner_members(data, data.index(b"{"))) == places(found)


@given(objects, seeds)
def test_inner_members_and_elements_lie_in_the_whole(value: Object, seed: int) -> None:
    data = object_text(Object([("x", [value, 1, [value]]), ("y", value)]), seed)
    x, y = json_edit.members(data)
    inner = json_edit.inner_members(data, y.start)
    assert [(member.key, pairs(data[member.start : member.end])) for member in inner] == pairs(
        data[y.start : y.end]
    )
    assert [pairs(data[start:end]) for start, end in json_edit.elements(data, x.start)] == pairs(
        data[x.start : x.end]
    )
    assert json_edit.value_end(data, x.start) == x.end


def edited(before: Pairs, wanted: dict[str, Any], dropped: set[str]) -> Pairs:
    after: Pairs = []
    missing = dict(wanted)
    for key, item in before:
        if key in missing:
            after.append((key, missing.pop(key)))
        elif key not in dropped and key not in wanted:
            after.append((key, item))
    return after + list(missing.items())


@given(objects, seeds, st.data())
def test_edits_set_add_and_drop(value: Object, seed: int, data: st.DataObject) -> None:
    text = object_text(value, seed)
    names = sorted({key for key, _ in value} | {"new", "other"})
    wanted_keys = data.draw(st.sets(st.sampled_from(names)))
    # keys that are written must need no escape
    plain = [key for key in sorted(wanted_keys) if json.dumps(key, ensure_ascii=False) == f'"{key}"']
    wanted = {key: index for index, key in enumerate(plain)}
    dropped = data.draw(st.sets(st.sampled_from(names))) - set(wanted)
    out = json_edit.changed(text, {key: b"%d" % item for key, item in wanted.items()}, dropped)
    assert pairs(out) == edited(pairs(text), wanted, dropped)
    # what is not edited keeps its bytes
    kept = [
        text[member.start : member.end]
        for member in json_edit.members(text)
        if member.key not in dropped and member.key not in wanted
    ]
    still = [out[member.start : member.end] for member in json_edit.members(out) if member.key not in wanted]
    assert still == kept


@given(objects, seeds)
def test_settings_edit_an_object_inside(value: Object, seed: int) -> None:
    text = object_text(Object([("before", 1), ("x", value), ("after", [2])]), seed)
    at = json_edit.members(text)[1].start
    out = json_edit.splice(text, json_edit.settings(text, at, {"n": b"7"}))
    assert pairs(out) == [("before", 1), ("x", edited(pairs(text)[1][1], {"n": 7}, set())), ("after", [2])]


@given(objects, seeds)
def test_changed_takes_out_every_member_of_a_name(value: Object, seed: int) -> None:
    text = object_text(value, seed)
    assert pairs(json_edit.changed(text, {}, ("a",))) == [pair for pair in pairs(text) if pair[0] != "a"]


def test_nothing_to_do_returns_the_same_bytes() -> None:
    data = b'{"a" : 1}'
    assert json_edit.changed(data, {"a": b"1"}, {"b"}) is data


def test_splice_takes_edits_in_any_order() -> None:
    assert json_edit.splice(b"0123456789", [(5, 7, b"xx"), (0, 1, b""), (10, 10, b"!")]) == b"1234xx789!"


def test_wrong_spans_of_duplicates_are_not_believed() -> None:
    for data in (
        b'{"a":1,"a":2}', b'{"a":1,"a":22}', b'{"a":11,"a":2}', b'{"a":"x}","a":1234}', b'{"a":"xx}}", "a":1234}',
        b'{"a":[{},1],"a":12}', b'{"a":{"a":1},"a":{"a":1}}', b'{"a":1,"\\u0061":2}', b'{"\\u0061":1,"a":2}',
    ):  # fmt: skip
        assert [
            (member.key, pairs(data[member.start : member.end])) for member in json_edit.members(data)
        ] == (pairs(data)), data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"[1]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"a":NaN}', "malformed"),
        (b'{"a":1,}', "malformed"),
        (b'{"a":1} x', "malformed"),
        (b'{"a":"\x00"}', r"malformed.*byte 6"),
        (b"{'a':1}", "malformed"),
        (b'{"a\xff":1}', "malformed"),
        (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested too deeply"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested too deeply"),
    ],
)
def test_what_is_no_object_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=f"(?i){reason}"):
        json_edit.members(data)


@given(st.binary(max_size=40))
def test_any_bytes_give_members_or_a_decode_error(data: bytes) -> None:
    try:
        found = json_edit.members(data)
    except DecodeError:
        return
    assert all(isinstance(member, Member) for member in found)


def test_a_long_string_is_walked_in_linear_time_and_space() -> None:
    text = b'{"a":"' + b"x\\n" * 1_000_000 + b'","b":[["' + b"y\\\\" * 1_000_000 + b'"]]}'
    start = time.process_time()
    inner = json_edit.inner_members(text, 0)
    assert [member.key for member in inner] == ["a", "b"]
    assert time.process_time() - start < 2


def test_many_lone_surrogates_and_duplicates_take_linear_time() -> None:
    start = time.process_time()
    json_edit.replace_lone_surrogates(b"\\ud800x" * 200_000)
    json_edit.changed(b"{" + b",".join([b'"a":1,"b":2'] * 50_000) + b"}", {}, ("a",))
    assert time.process_time() - start < 3


escapes = st.sampled_from(
    ["\\ud83d", "\\ude00", "\\uD83D", "\\uDE00", "\\\\", "\\n", "u", "x", '\\"', "\\u0041", "d83d"]
)


@given(st.lists(escapes, max_size=12))
def test_lone_surrogates_are_those_that_json_leaves_alone(parts: list[str]) -> None:
    text = '"' + "".join(parts) + '"'
    value = json.loads(text)
    alone = any(0xD800 <= ord(character) <= 0xDFFF for character in value)
    assert (json_edit.lone_surrogate(text.encode()) is not None) == alone
    mended = json.loads(json_edit.replace_lone_surrogates(text.encode()))
    assert mended == "".join(
        "\ufffd" if 0xD800 <= ord(character) <= 0xDFFF else character for character in value
    )


def test_is_json() -> None:
    assert json_edit.is_json(b' {"a":1} ')
    for data in (b"", b"{", b"{} {}", b"[" * 10_000, b"\xff"):
        assert not json_edit.is_json(data)


def _values(depth: int = 2) -> st.SearchStrategy[str]:
    flat = st.one_of(st.integers(0, 10**8).map(str), st.integers(0, 25).map(lambda size: f'"{"x" * size}"'))
    if not depth:
        return flat
    member = st.tuples(st.sampled_from("ab"), _values(depth - 1)).map(lambda pair: f'"{pair[0]}":{pair[1]}')
    return flat | st.builds(
        lambda space, members: "{" + " " * space + ",".join(members) + "}",
        st.integers(0, 16),
        st.lists(member, max_size=2),
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), _values()), min_size=2, max_size=4))
def test_duplicates_of_any_length_are_seen_where_they_stand(pairs: list[tuple[str, str]]) -> None:
    data = ("{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}").encode()
    assert places(json_edit.members(data)) == places(json_edit.inner_members(data, 0))


def test_a_duplicate_hides_no_member_from_an_edit() -> None:
    for space in range(30):
        for size in range(40):
            inner = b'{%b"model":"abc","y":1}' % (b" " * space)
            body = b'{"x":1,"model":"pub","y":%b,"x":"%b"}' % (inner, b"x" * size)
            assert json.loads(json_edit.changed(body, {"model": b'"up"'}))["model"] == "up"
