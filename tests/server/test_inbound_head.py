"""Heads and chunked bodies of requests: what is read, what is refused, and that cuts change nothing."""

import contextlib
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import (
    BadRequest,
    ClientError,
    ExpectationFailed,
    HeadersTooLarge,
    MethodNotAllowed,
    UriTooLong,
)
from sluicegate.server.http_head import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_TARGET_BYTES,
    ChunkedBody,
    RequestHead,
    check_beginning,
)


def parse(data: bytes) -> RequestHead:
    head = RequestHead()
    head.parse(data)
    return head


def test_a_head_is_read() -> None:
    head = parse(
        b"POST /v1/models/a%2Fb?key=1&x=?y HTTP/1.1\r\nHost: gate:4000\r\nX-One:  1 \r\nx-one: 2\r\n"
        b"Empty:\r\nContent-Length: 12\r\n\r\n"
    )
    assert (head.method, head.path, head.query, head.http10) == (
        "POST",
        "/v1/models/a%2Fb",
        "key=1&x=?y",
        False,
    )
    assert head.headers == [
        (b"host", b"gate:4000"),
        (b"x-one", b"1"),
        (b"x-one", b"2"),
        (b"empty", b""),
        (b"content-length", b"12"),
    ]
    assert head.header(b"x-one") == b"1"
    assert head.header(b"absent") is None
    assert (head.content_length, head.chunked, head.keep_alive) == (12, False, True)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"http://gate:1/v1/models?a=b", "/v1/models", "a=b"),
        (b"HTTPS://gate", "/", ""),
        (b"*", "*", ""),
        (b"//double", "//double", ""),
        (b"/?", "/", ""),
    ],
)
def test_targets(target: bytes, path: str, query: str) -> None:
    head = parse(b"OPTIONS %b HTTP/1.1\r\nHost: x\r\n\r\n" % target)
    assert (head.path, head.query) == (path, query)


@pytest.mark.parametrize(
    ("lines", "keep_alive"),
    [
        (b"HTTP/1.1\r\nHost: x\r\n", True),
        (b"HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", False),
        (b"HTTP/1.1\r\nHost: x\r\nConnection: x-foo, Close\r\n", False),
        (b"HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n", False),
        (b"HTTP/1.0\r\n", False),
    ],
)
def test_who_lets_the_connection_go_on(lines: bytes, keep_alive: bool) -> None:
    assert parse(b"GET / %b\r\n" % lines).keep_alive is keep_alive


def test_an_upgrade_is_ignored_and_its_body_framed() -> None:
    head = parse(
        b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nContent-Length: 5\r\n\r\n"
    )
    assert (head.content_length, head.keep_alive) == (5, True)


MALFORMED = {
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: x\r\n\r\n",
    "another protocol": b"GET / RTSP/1.0\r\nHost: x\r\n\r\n",
    "lower-case method": b"get / HTTP/1.1\r\nHost: x\r\n\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "byte above ASCII in the target": b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    "fragment": b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n",
    "authority as target": b"GET gate:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT": b"CONNECT gate:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
    "two Hosts in HTTP/1.0": b"GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n",
    "a list as Host": b"GET / HTTP/1.1\r\nHost: x, y\r\n\r\n",
    "a path in Host": b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
    "both lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "both, turned": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "two equal lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
    "a list of lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\n",
    "signed length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n",
    "negative length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "hexadecimal length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x1\r\n\r\n",
    "empty length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n",
    "endless length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999999\r\n\r\n",
    "space before the colon": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 1\r\n\r\n",
    "unknown coding": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n",
    "two codings": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
    "chunked twice, in two lines": (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"
    ),
    "chunked not last": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
    "chunked after a tab": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\x0bchunked\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nHost: x\n\r\n\r\n",
    "bare LF after a header": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "bare CR": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n",
    "obs-fold": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "obs-fold first": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00\r\n\r\n",
    "NUL in a name": b"GET / HTTP/1.1\r\nHost: x\r\nA\x00: b\r\n\r\n",
    "header without colon": b"GET / HTTP/1.1\r\nHost: x\r\nabc\r\n\r\n",
    "header without name": b"GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_heads_are_refused(data: bytes) -> None:
    with pytest.raises(ClientError) as caught:
        parse(data)
    assert caught.value.status in (400, 405)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * MAX_TARGET_BYTES), UriTooLong),
        (b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n" % (b"A: b\r\n" * MAX_HEADERS), HeadersTooLarge),
        (b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n", MethodNotAllowed),
        (b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", MethodNotAllowed),
        (b"POST / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", ExpectationFailed),
    ],
)
def test_other_refusals(data: bytes, error: type[ClientError]) -> None:
    with pytest.raises(error):
        parse(data)


def test_what_was_understood_is_known_when_the_rest_is_refused() -> None:
    head = RequestHead()
    with pytest.raises(BadRequest):
        head.parse(b"POST /v1/messages HTTP/1.1\r\n\r\n")
    assert (head.method, head.path) == ("POST", "/v1/messages")


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00",
        b"G\x00",
        b"hello",
        b"GET / HTTP/1.1\n",
        b"GET / HTTP/1.1\r\nHost: x\nA",
        b"GET /\r\n",
        b"GET / HTTP/3.0\r\nHo",
    ],
)
def test_what_cannot_become_a_request_is_refused_before_its_end(data: bytes) -> None:
    with pytest.raises(BadRequest):
        check_beginning(data)


def test_beginnings_are_bounded() -> None:
    with pytest.raises(UriTooLong):
        check_beginning(b"GET /" + b"a" * (MAX_TARGET_BYTES + 100))
    with pytest.raises(HeadersTooLarge):
        check_beginning(b"GET / HTTP/1.1\r\nA: " + b"a" * MAX_HEAD_BYTES)


def test_every_beginning_of_a_good_head_may_go_on() -> None:
    head = b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: gate\r\nContent-Length: 3\r\n\r\n"
    for length in range(1, len(head)):
        check_beginning(head[:length])


class Oracle:
    """The same body read by httptools."""

    def __init__(self) -> None:
        self.content = b""
        self.whole = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self.content += data

    def on_message_complete(self) -> None:
        self.whole = True


def decode(*pieces: bytes) -> tuple[bytes, bool, bytes]:
    content: list[bytes] = []
    body = ChunkedBody(content.append)
    whole = False
    for index, piece in enumerate(pieces):
        whole = body.feed(piece)
        if whole:
            return b"".join(content), True, body.rest + b"".join(pieces[index + 1 :])
    return b"".join(content), whole, b""


BODIES = {
    "empty": b"0\r\n\r\n",
    "two chunks": b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n",
    "trailers": b"A\r\n0123456789\r\n000\r\nX-Sum: 1\r\nY:\r\n\r\n",
    "content that looks like framing": b"7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n",
    "a request follows": b"1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("data", BODIES.values(), ids=BODIES)
def test_chunked_bodies_are_read_at_any_cut(data: bytes) -> None:
    whole = decode(data)
    oracle = Oracle()
    oracle.parser.feed_data(data)
    assert whole[1]
    assert whole[0] == oracle.content
    assert decode(*(data[at : at + 1] for at in range(len(data)))) == whole
    for cut in range(len(data)):
        assert decode(data[:cut], data[cut:]) == whole


@pytest.mark.parametrize(
    "data",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"0x1\r\n",
        b"1\nx\n",
        b"5\r\nhelloX\r\n",
        b"5\r\nhello\n0\n\n",
        b"5\r\nhello0\r\n\r\n",
        b"1000000000000000\r\n",
        b"5;" + b"a" * 300,
        b"5;" + b"a" * 300 + b"\r\n",
        b"5;\x00\r\nhello\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\nX: 1\n\n",
        b"0\r\n" + b"X: 1\r\n" * 2_000 + b"\r\n",
        b"0\r\nX: " + b"1" * 10_000,
    ],
)
def test_malformed_chunks_are_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        decode(data)
    with pytest.raises(BadRequest):
        decode(*(data[at : at + 1] for at in range(len(data))))


@given(chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=6), data=st.data())
def test_chunked_bodies_come_out_as_they_went_in(chunks: list[bytes], data: Any) -> None:
    raw = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\nrest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert decode(*pieces) == (b"".join(chunks), True, b"rest")


@given(
    st.lists(st.sampled_from([b"1", b"a", b"0", b"\r\n", b"\r", b"\n", b"x", b";", b" "]), max_size=14).map(
        b"".join
    )
)
def test_whatever_we_take_as_a_chunked_body_httptools_takes_too(raw: bytes) -> None:
    try:
        content, whole, _ = decode(raw)
    except BadRequest:
        return
    if not whole:
        return
    oracle = Oracle()
    with contextlib.suppress(httptools.HttpParserError):  # over what follows the body
        oracle.parser.feed_data(raw)
    assert oracle.whole
    assert oracle.content == content
