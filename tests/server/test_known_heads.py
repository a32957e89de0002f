"""Heads that come again are read once, and mean the same as when they were read anew."""

import gc
import json
import re

import pytest

from sluicegate.errors import BadRequest
from sluicegate.server.http_head import RequestHead
from sluicegate.server.known_heads import MAX_KNOWN, MAX_KNOWN_BYTES, KnownHeads, LastHead
from tests.conftest import KEY
from tests.fakes import Client, ask, chat
from tests.inprocess import InProcessGate

SECRET = b"sg-a-secret-that-nobody-keeps-0123456789"
LINES = (
    b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: gate:4000\r\nAuthorization: Bearer " + SECRET + b"\r\n"
    b"X-Sluicegate-Provider: p\r\nContent-Length: %s\r\nUser-Agent: x\r\n\r\n"
)


def read(heads: KnownHeads, data: bytes, *, concluded: bool = True) -> RequestHead:
    head = RequestHead()
    heads.read(head, data)
    if concluded:
        head.memo.key_hashes = [b"h"]
    return head


def said(head: RequestHead) -> dict[str, object]:
    names = set(dir(head)) - {"headers", "memo"}
    told = {name: getattr(head, name) for name in names if not name.startswith("_")}
    return {name: value for name, value in told.items() if not callable(value)}


def test_a_head_that_came_before_says_the_same_with_its_own_length() -> None:
    heads = KnownHeads()
    first, second, third = (read(heads, LINES % length) for length in (b"7", b"7", b"123456"))
    assert said(second) == said(first)
    assert said(third) == said(first) | {"content_length": 123456}
    assert third.memo is second.memo, "it is known by now"
    kept = [(name, b"" if name == b"authorization" else value) for name, value in first.headers]
    assert [header for header in third.headers if header[0] != b"content-length"] == [
        header for header in kept if header[0] != b"content-length"
    ]


def test_no_credential_and_no_head_stays_in_memory() -> None:
    heads = KnownHeads()
    last = known_by_a_connection(heads, LINES % b"1")
    seen: set[int] = set()
    waiting: list[object] = [heads, last, last._mark, last.known]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        assert not (isinstance(one, bytes) and SECRET in one)
        waiting += gc.get_referents(one)
    assert len(seen) > 10, "it has been looked through"


def known_by_a_connection(heads: KnownHeads, data: bytes) -> LastHead:
    for _ in range(2):
        read(heads, data)
    last = heads.read(RequestHead(), data)
    assert last is not None
    return last


def test_a_connection_knows_the_head_that_came_last_on_it() -> None:
    heads = KnownHeads()
    first = read(heads, LINES % b"7")
    last = known_by_a_connection(heads, LINES % b"7")
    for length in (b"7", b"0", b"0012", b"9" * 15):
        head = RequestHead()
        assert heads.read(head, LINES % length, last) is last
        assert said(head) == said(first) | {"content_length": int(length)}
        assert head.memo is last.known.memo


def test_what_differs_in_more_than_its_length_is_not_taken_for_the_last_head() -> None:
    heads = KnownHeads()
    data = LINES % b"7"
    last = known_by_a_connection(heads, data)
    at = data.index(b"7\r\nUser")
    others = [data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] for place in range(at)]
    others += [
        data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] for place in range(at + 1, len(data))
    ]
    others += [data[:place] + data[place + 1 :] for place in range(len(data))]
    others += [data[:place] for place in range(len(data))]
    others += [
        LINES % wrong for wrong in (b"", b"+7", b"7 ", b" 7", b"7, 7", b"7_7", b"-7", b"1" * 16, b"7\r\n")
    ]
    assert [other for other in others if last.length_in(other) >= 0] == []


def test_a_connection_reads_anew_what_was_forgotten() -> None:
    heads = KnownHeads()
    last = known_by_a_connection(heads, LINES % b"7")
    heads.clear()
    head = RequestHead()
    assert heads.read(head, LINES % b"7", last) is None
    assert (b"authorization", b"Bearer " + SECRET) in head.headers


@pytest.mark.parametrize("line", [b"Idempotency-Key: a\r\n", b"Expect: 100-continue\r\n"])
def test_what_differs_from_request_to_request_is_read_each_time(line: bytes) -> None:
    heads = KnownHeads()
    data = (LINES % b"1").replace(b"User-Agent: x\r\n", line)
    for _ in range(3):
        head = read(heads, data)
        assert head.expects_continue or head.idempotency_key == b"a"
    assert all(head is None for head in heads._known.values())


def test_a_key_in_the_query_is_not_kept() -> None:
    heads = KnownHeads()
    data = (LINES % b"1").replace(b"a=b", b"key=" + SECRET)
    for _ in range(3):
        assert "key=" in read(heads, data).query
    assert all(head is None for head in heads._known.values())


def test_a_head_whose_credentials_were_refused_is_looked_at_again() -> None:
    heads = KnownHeads()
    for _ in range(3):
        head = read(heads, LINES % b"1", concluded=False)
        assert (b"authorization", b"Bearer " + SECRET) in head.headers


@pytest.mark.parametrize("known", [0, 2])
def test_ambiguous_lengths_are_refused_beside_a_known_head(known: int) -> None:
    heads = KnownHeads()
    for _ in range(known):
        read(heads, LINES % b"5")
    for wrong in (
        (LINES % b"5").replace(b"User-Agent: x", b"Content-Length: 6"),
        (LINES % b"5").replace(b"User-Agent: x", b"Transfer-Encoding: chunked"),
        (LINES % b"5, 5"),
        (LINES % b""),
        (LINES % b"+5"),
        (LINES % b"1" * 16),
    ):
        with pytest.raises(BadRequest):
            read(heads, wrong)


def test_what_is_kept_is_bounded() -> None:
    heads = KnownHeads()
    for number in range(3 * MAX_KNOWN):
        data = (LINES % b"1").replace(b"User-Agent: x", b"User-Agent: %d" % number)
        read(heads, data)
        read(heads, data)
        assert len(heads._known) <= MAX_KNOWN
    long = (LINES % b"1").replace(b"User-Agent: x", b"User-Agent: " + b"x" * MAX_KNOWN_BYTES)
    before = len(heads._known)
    for _ in range(3):
        read(heads, long)
    assert len(heads._known) == before


async def test_c1_a_wrong_key_is_told_the_same_however_often_it_comes(gate_inprocess: InProcessGate) -> None:
    for key in ("short", "sg-nobody-knows-this-key-0123456789"):
        for _ in range(4):
            answer = await ask(gate_inprocess.url, "/v1/chat/completions", chat("m", stream=False), key=key)
            assert answer.status == 401
            assert answer.json()["error"]["message"] == "Incorrect API key provided."


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "x-goog-api-key", "api-key"])
async def test_who_comes_again_is_answered_in_the_same_shape(
    gate_inprocess: InProcessGate, header: str
) -> None:
    key = f"Bearer {KEY}" if header == "authorization" else KEY
    lines = f"Host: gate\r\n{header}: {key}\r\nContent-Length: 0\r\n\r\n"
    for target in ("/v1/models", "/v1/models/nothing"):
        async with await Client.connect(gate_inprocess.url) as client:
            told = []
            for _ in range(4):
                client.send(f"GET {target} HTTP/1.1\r\n{lines}".encode())
                told.append(json.dumps((await client.response()).json()))
        assert len({re.sub("req_[0-9a-f]+", "", one) for one in told}) == 1


async def test_c1_who_comes_again_is_known_and_charged_each_time(gate_inprocess: InProcessGate) -> None:
    for number in range(1, 6):
        answer = await ask(
            gate_inprocess.url, "/v1/chat/completions", chat("m", stream=False, user="u" * number), key=KEY
        )
        assert answer.status == 200
    rows = await gate_inprocess.wait_for_rows(5)
    assert [row.status for row in rows] == ["ok"] * 5
    assert len(gate_inprocess.gateway._inbound.heads._known) == 1, "all of them had the same head"
