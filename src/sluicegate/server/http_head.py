"""One HTTP/1.1 request's head and chunked body, without I/O: what is read, and what is refused as ambiguous.

httptools checks the syntax of a head; this module checks what it lets pass (a missing or double Host,
versions that are not ours, unknown transfer codings) and takes the framing into its own hands: a body is
read by the length or the chunks that the head declares, whatever `Upgrade` says. Sockets and
limits of bodies are `client_connection`'s, answers `exchange`'s.

Source: RFC 9112 (message syntax, framing, smuggling), RFC 9110 (Host, Expect, Connection).
"""

import re
from collections.abc import Callable
from typing import Final

import httptools

from sluicegate.errors import (
    BadRequest,
    ClientError,
    ExpectationFailed,
    HeadersTooLarge,
    MethodNotAllowed,
    UriTooLong,
)

MAX_HEAD_BYTES: Final = 65_536
MAX_HEADERS = 128
MAX_TARGET_BYTES = 8_192
MAX_CHUNK_LINE_BYTES = 256
MAX_TRAILER_BYTES = 8_192

END_OF_HEAD: Final = b"\r\n\r\n"
ALLOWED_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,31}) ([!-~]+) HTTP/1\.([01])\r\n")
_LINE_BEGINNING = re.compile(rb"(?:[A-Z][A-Z-]{0,31}(?: [!-~]*(?: [!-~]*\r?)?)?)?")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_METHODS = {name.encode(): name for name in ALLOWED_METHODS.split(", ")}
_HOST = re.compile(rb"[^\s,/@?#]*")
FOR_GATE = frozenset((b"x-sluicegate-provider", b"x-sluicegate-continuous-usage", b"x-sluicegate-timeouts"))
"""Headers by which a client asks something of the gate itself."""
_WATCHED = FOR_GATE | {b"host", b"content-length", b"transfer-encoding", b"expect", b"idempotency-key"}
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_CHUNK_LINE = re.compile(
    rb"([0-9A-Fa-f]{1,15})(?:;%b(?:=(?:%b|\"[\t !#-\[\]-~]*\"))?)*" % (_TOKEN, _TOKEN)  # no quoted pairs
)
_CHUNK_LINE_BEGINNING = re.compile(rb"[0-9A-Fa-f]{0,15}(?:;[\t -~]*)?\r?")
_TRAILER_LINE = re.compile(rb"%b:[\t -~\x80-\xff]*" % _TOKEN)

Header = tuple[bytes, bytes]


class _HeaderSink:
    """Where httptools puts headers; one serves all, since a head is parsed in one go."""

    headers: list[Header]
    watched: list[Header]
    complete: bool
    keep_alive: bool
    parser: httptools.HttpRequestParser

    def on_header(self, name: bytes, value: bytes) -> None:
        header = (name.lower(), value.rstrip(b" \t"))
        self.headers.append(header)
        if header[0] in _WATCHED:
            self.watched.append(header)

    def on_headers_complete(self) -> None:
        self.complete = True
        self.keep_alive = self.parser.should_keep_alive()  # it forgets when a message without body ends


_SINK = _HeaderSink()


class HeadMemo:
    """What the application concluded from a head, for all requests that bring the same one."""

    __slots__ = ("key_hashes", "route")

    def __init__(self) -> None:
        self.route: object = None
        """What is asked for, once it is known that the head alone holds nothing against it."""
        self.key_hashes: list[bytes] = []
        """Of the credentials that it brings, once they were looked at."""


class RequestHead:
    """What a request's head says.

    Unset until `clear`, `parse` or `be_like`. Invariant after the last two: at most one of `content_length` and
    `chunked` is set, and the body is framed by that alone.
    """

    __slots__ = (
        "asks_gate",
        "chunked",
        "content_length",
        "expects_continue",
        "headers",
        "http10",
        "idempotency_key",
        "keep_alive",
        "memo",
        "method",
        "path",
        "query",
    )

    method: str
    path: str
    """Still percent-encoded, without query."""
    query: str
    http10: bool
    headers: list[Header]
    """Names in lower case, values stripped, in order."""
    asks_gate: bool
    """Whether it has one of `FOR_GATE`: hardly any request has."""
    content_length: int
    """0 where the head gives none."""
    chunked: bool
    expects_continue: bool
    idempotency_key: bytes | None
    keep_alive: bool
    """Whether the client lets the connection go on."""
    memo: HeadMemo

    def clear(self) -> None:
        """Say nothing yet."""
        self.method = self.path = self.query = ""
        self.http10 = self.asks_gate = self.chunked = self.expects_continue = self.keep_alive = False
        self.headers = []
        self.content_length = 0
        self.idempotency_key = None
        self.memo = HeadMemo()

    def be_like(self, known: "RequestHead", content_length: int) -> None:
        """Say what a head says that was read before, which differs in its length alone."""
        self.method = known.method
        self.path = known.path
        self.query = known.query
        self.http10 = known.http10
        self.headers = known.headers
        self.asks_gate = known.asks_gate
        self.content_length = content_length
        self.chunked = known.chunked
        self.expects_continue = known.expects_continue
        self.idempotency_key = known.idempotency_key
        self.keep_alive = known.keep_alive
        self.memo = known.memo

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header, asked for in lower case."""
        for known, value in self.headers:
            if known == name:
                return value
        return None

    def parse(self, data: bytes) -> None:
        """Read one whole head, its empty line included.

        Raises:
            ClientError: it is malformed, ambiguous, too large, or asks for what HTTP/1.1 servers may refuse. What was
                understood before is set: `path` tells in which format the refusal should be written.
        """
        self.clear()
        line = _REQUEST_LINE.match(data)
        if line is None:
            raise _bad_request_line(data)
        method, target, minor = line.groups()
        if len(target) > MAX_TARGET_BYTES:
            raise UriTooLong(f"the request's URI is longer than {MAX_TARGET_BYTES} bytes")
        self.http10 = minor == b"0"
        self._split_target(target)
        known = _METHODS.get(method)
        if known is None:
            raise MethodNotAllowed(f"the method {method.decode()} is not served here", ALLOWED_METHODS)
        self.method = known

        sink = _SINK
        sink.headers = self.headers
        watched: list[Header] = []
        sink.watched = watched
        sink.complete = False
        sink.parser = parser = httptools.HttpRequestParser(sink)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # an Upgrade that we do not take; the body is framed as if it were not there
        except httptools.HttpParserError as error:
            raise BadRequest(f"malformed HTTP request: {error}") from None
        if not sink.complete:
            raise BadRequest("malformed HTTP request: the head does not end where it should")
        if len(self.headers) > MAX_HEADERS:
            raise HeadersTooLarge(f"the request has more than {MAX_HEADERS} headers")
        self.keep_alive = sink.keep_alive and not self.http10
        self._check(watched)

    def _split_target(self, target: bytes) -> None:
        if not target.startswith(b"/"):
            lowered = target[:8].lower()
            if lowered.startswith((b"http://", b"https://")):
                rest = target[target.index(b"//") + 2 :]
                slash = rest.find(b"/")
                target = rest[slash:] if slash >= 0 else b"/"
            elif target != b"*":
                raise BadRequest("malformed HTTP request: the target is not a path")
        if b"#" in target:
            raise BadRequest("malformed HTTP request: the target holds a fragment")
        self.path, _, self.query = target.decode("ascii").partition("?")

    def _check(self, watched: list[Header]) -> None:
        hosts = 0
        has_length = False
        for name, value in watched:
            if name == b"host":
                hosts += 1
                if _HOST.fullmatch(value) is None:
                    raise BadRequest("malformed HTTP request: the Host header is not a host")
            elif name == b"content-length":
                if has_length or not value.isdigit() or len(value) > 15:
                    raise BadRequest("malformed HTTP request: bad Content-Length")
                has_length = True
                self.content_length = int(value)
            elif name == b"transfer-encoding":
                if self.chunked or self.http10 or value.lower() != b"chunked":
                    raise BadRequest("malformed HTTP request: Transfer-Encoding must be chunked, once")
                self.chunked = True
            elif name == b"idempotency-key":
                if self.idempotency_key not in (None, value):
                    raise BadRequest("there are two Idempotency-Key headers that differ")
                self.idempotency_key = value
            elif name in FOR_GATE:
                self.asks_gate = True
            elif not self.http10:
                if value.lower() != b"100-continue":
                    raise ExpectationFailed("the only expectation that can be met is 100-continue")
                self.expects_continue = True
        if hosts != 1 and not (hosts == 0 and self.http10):
            raise BadRequest("malformed HTTP request: there must be exactly one Host header")
        if self.chunked and has_length:
            raise BadRequest("malformed HTTP request: both Content-Length and Transfer-Encoding")


def check_beginning(data: bytes | bytearray) -> None:
    """Refuse as early as possible a head that has not ended yet and cannot become one of ours.

    Raises:
        ClientError: no continuation of `data` is a request that we take, or it has grown too large.
    """
    if _BARE_LF.search(data):
        raise BadRequest("malformed HTTP request: a line ends with LF alone")
    first, found, _ = data.partition(b"\r\n")
    if found:
        if _REQUEST_LINE.match(data) is None:
            raise _bad_request_line(bytes(data))
    elif _LINE_BEGINNING.fullmatch(first) is None:
        raise BadRequest("malformed HTTP request: bad request line")
    if len(first) > MAX_TARGET_BYTES + 64:
        raise UriTooLong(f"the request's URI is longer than {MAX_TARGET_BYTES} bytes")
    if len(data) > MAX_HEAD_BYTES:
        raise HeadersTooLarge(f"the request's head is larger than {MAX_HEAD_BYTES} bytes")


def _bad_request_line(data: bytes) -> ClientError:
    line = data.partition(b"\r\n")[0]
    if len(line) > MAX_TARGET_BYTES + 64:
        return UriTooLong(f"the request's URI is longer than {MAX_TARGET_BYTES} bytes")
    rest = line.partition(b" ")[2]
    if re.fullmatch(rb"[!-~]+ HTTP/[0-9.]+", rest) and not rest.endswith((b" HTTP/1.0", b" HTTP/1.1")):
        return BadRequest("only HTTP/1.1 and HTTP/1.0 are spoken here")
    return BadRequest("malformed HTTP request: bad request line")


class ChunkedBody:
    """A chunked request body, decoded strictly: CRLF everywhere, bounded sizes, extensions and trailers.

    `feed` hands what the read brought to `accept` in one piece, however small its chunks: each piece that is kept costs
    more than a small one holds. Trailers are checked and dropped.
    Source: RFC 9112, 7.1.
    """

    __slots__ = ("_accept", "_held", "_left", "_pieces", "_trailer_bytes", "rest")

    rest: bytes
    """What followed the body in the last piece fed, once `feed` has returned True."""

    def __init__(self, accept: Callable[[bytes], None]) -> None:
        self._accept = accept
        self._held = b""
        self._left = -1
        """Bytes of the running chunk and its CRLF; -1: a size line is due; -2: trailers."""
        self._trailer_bytes = 0
        self._pieces: list[bytes] = []
        self.rest = b""

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; return True when the body is whole.

        Raises:
            BadRequest: the chunks are malformed.
        """
        whole = self._read(data)
        pieces, self._pieces = self._pieces, []
        if pieces:
            self._accept(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return whole

    def _read(self, data: bytes) -> bool:
        if self._held:
            data = self._held + data
            self._held = b""
        at, size = 0, len(data)
        while at < size:
            if self._left >= 0:
                at = self._read_chunk(data, at)
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._hold_line(data, at)
                return False
            if self._left == -1:
                self._read_size(data[at:end])
            elif end == at:
                self.rest = data[end + 2 :]
                return True
            else:
                self._read_trailer(data[at:end])
            at = end + 2
        return False

    def _read_chunk(self, data: bytes, at: int) -> int:
        """Take content and the CRLF after it from `at` on; return where the next thing begins."""
        content = self._left - 2
        if content > 0:
            piece = data[at : at + content] if at or len(data) > content else data
            self._pieces.append(piece)
            self._left -= len(piece)
            return at + len(piece)
        mark = data[at : at + self._left]
        if mark != b"\r\n"[2 - self._left : 2 - self._left + len(mark)]:
            raise BadRequest("malformed chunked body: a chunk is longer than its size")
        self._left -= len(mark)
        if self._left == 0:
            self._left = -1
        return at + len(mark)

    def _read_size(self, line: bytes) -> None:
        found = _CHUNK_LINE.fullmatch(line)
        if found is None or len(line) > MAX_CHUNK_LINE_BYTES:
            raise BadRequest("malformed chunked body: bad chunk size")
        size = int(found[1], 16)
        self._left = size + 2 if size else -2

    def _read_trailer(self, line: bytes) -> None:
        self._trailer_bytes += len(line) + 2
        if self._trailer_bytes > MAX_TRAILER_BYTES or _TRAILER_LINE.fullmatch(line) is None:
            raise BadRequest("malformed chunked body: bad trailer")

    def _hold_line(self, data: bytes, at: int) -> None:
        self._held = held = data[at:]
        limit = MAX_CHUNK_LINE_BYTES if self._left == -1 else MAX_TRAILER_BYTES
        if (
            len(held) > limit
            or b"\n" in held
            or (self._left == -1 and not _CHUNK_LINE_BEGINNING.fullmatch(held))
        ):
            part = "chunk size" if self._left == -1 else "trailer"
            raise BadRequest(f"malformed chunked body: bad {part}")
