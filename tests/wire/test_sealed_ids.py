"""Ids that a provider keeps, as ours: bound to account and provider, and found in bodies by structure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.messages import Format
from sluicegate.wire import json_edit
from sluicegate.wire.kept_ids import may_name_ids, places, sealed
from sluicegate.wire.openai_chat_request import ChatRequest
from sluicegate.wire.sealed_id import IdSeal, Kept

SEAL = IdSeal(b"secret", ["one", "two"])


@given(
    st.text(max_size=20),
    st.from_regex(r"\A(?:resp_|file-|cachedContents/|https://h/v1beta/files/)?[A-Za-z0-9_\-.]{1,80}\Z"),
    st.text(max_size=70),
)
def test_an_id_comes_back_to_its_account_and_to_no_other(account: str, id: str, model: str) -> None:
    ours = SEAL.close(account, "two", id, model)
    assert id not in ours.removeprefix(id[:5]) or len(id) < 6
    assert ours == SEAL.close(account, "two", id, model)
    assert SEAL.open(account, ours) == Kept("two", id, model)
    assert SEAL.open(account + "x", ours) is None
    assert IdSeal(b"other", ["one", "two"]).open(account, ours) is None
    assert IdSeal(b"secret", ["one"]).open(account, ours) is None


@pytest.mark.parametrize("length", [1, 700, 800, 5_000, 100_000])
@pytest.mark.parametrize("front", ["resp_", "", "https://h/v1beta/files/", "é/", "é/msg_", "a b/file-"])
def test_an_id_may_be_as_long_as_it_comes(length: int, front: str) -> None:
    id = front + "aZ9" * length
    ours = SEAL.close("a", "two", id, "org/m:1")
    assert len(ours) < 1.4 * len(id.encode()) + 50
    assert SEAL.open("a", ours) == Kept("two", id, "org/m:1")
    assert SEAL.open("b", ours) is None
    assert SEAL.open("a", ours[:-1]) is None


@given(st.text(max_size=60))
def test_what_is_not_ours_is_nothing(text: str) -> None:
    for tried in (text, f"resp_{text}", f"resp_sg0{text}"):
        assert SEAL.open("a", tried) is None


def test_the_word_in_front_stays_and_is_bound_too() -> None:
    ours = SEAL.close("a", "one", "resp_68ab")
    assert ours.startswith("resp_sg0")
    assert SEAL.open("a", "conv_" + ours.removeprefix("resp_")) is None
    assert SEAL.open("a", ours[:-1]) is None


CASES: list[tuple[Format, bytes, list[str]]] = [
    ("chat", b'{"messages":[{"content":[{"type":"file","file":{"file_id":"file-1"}}]}]}', ["file-1"]),
    ("chat", b'{"messages":[{"content":[{"file":{"file\\u005fid":"file-1"}}]}]}', ["file-1"]),
    ("chat", b'{"tools":[{"function":{"parameters":{"file_id":"no"}}}]}', []),
    ("chat", b'{"messages":[{"content":"{\\"file_id\\":\\"no\\"}"}]}', []),
    ("responses", b'{"previous_response_id":"resp_1","conversation":{"id":"conv_1"}}', ["resp_1", "conv_1"]),
    (
        "responses",
        b'{"tools":[{"type":"file_search","vector_store_ids":["vs_1","vs_2"]},'
        b'{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-1"]}},'
        b'{"type":"code_interpreter","container":"cntr_1"}]}',
        ["vs_1", "vs_2", "file-1", "cntr_1"],
    ),
    ("responses", b'{"input":[{"type":"item_reference","id":"msg_1"},{"id":"rs_1"}]}', ["msg_1", "rs_1"]),
    ("messages", b'{"container":{"id":"container_1","skills":[{"skill_id":"pptx"}]}}', ["container_1"]),
    (
        "messages",
        b'{"messages":[{"content":[{"type":"tool_use","input":{"file_id":"no"}},'
        b'{"type":"document","source":{"type":"file","file_id":"file_1"}}]}]}',
        ["file_1"],
    ),
    (
        "gemini",
        b'{"cached_content":"cachedContents/1","contents":[{"parts":[{"fileData":{"fileUri":'
        b'"https://generativelanguage.googleapis.com/v1beta/files/1"}},{"fileData":{"fileUri":"https://h/files/x"}},'
        b'{"functionCall":{"args":{"fileUri":"files/no"}}}]}]}',
        ["cachedContents/1", "https://generativelanguage.googleapis.com/v1beta/files/1"],
    ),
]


@pytest.mark.parametrize(("format", "body", "ids"), CASES)
def test_ids_are_found_where_the_format_has_them(format: Format, body: bytes, ids: list[str]) -> None:
    assert json_edit.is_json(body)
    found = list(places(body, format))
    assert sorted(place.id for place in found) == sorted(ids)
    for place in found:
        assert body[place.start : place.end].startswith(b'"')
    if ids and format == "chat":
        assert may_name_ids(body, format)


def test_sealing_an_answer_changes_nothing_else() -> None:
    body = b'{ "id":"resp_1", "output":[{"id":"msg_1","x":[1.50]}],"n":{"container_id" : "cntr_1"} }'
    told = sealed(body, "responses", lambda id: f"ours<{id}>")
    assert told == body.replace(b"msg_1", b"ours<msg_1>").replace(b"cntr_1", b"ours<cntr_1>")
    ours = SEAL.close("a", "one", "msg_1")
    once = b'{"item_id":"%b"}' % ours.encode()
    assert sealed(once, "responses", lambda id: "twice") == once


def test_a_sound_of_an_earlier_answer_is_named_by_an_object_of_a_message() -> None:
    body = (
        b'{"model":"m","audio":{"voice":{"id":"no"}},'
        b'"messages":[{"role":"assistant","audio":{"id":"1"}},{"role":"user","content":"a","audio":"no"}]}'
    )
    assert [(place.path, place.id) for place in places(body, "chat")] == [("messages[0].audio.id", "1")]
    assert ChatRequest(body).names_kept_state
    assert not ChatRequest(
        body.replace(b',"audio":{"id":"1"}', b"").replace(b',"audio":"no"', b"")
    ).names_kept_state
