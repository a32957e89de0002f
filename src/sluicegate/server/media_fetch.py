"""Pictures and files that a request names by address, fetched for providers that take only their data.

Only where the configuration allows it, and with care: whoever writes a request chooses the address. So it is `https`,
its host must resolve to public addresses alone, the connection goes to the address that was judged and to no other,
each redirection is judged anew, and bytes, time and number are bounded. What went wrong is told without what is behind.

Source: OWASP, Server-Side Request Forgery Prevention; translation matrix, sections 4 and 6.
"""

import asyncio
import ipaddress
import socket
import ssl
from base64 import b64encode
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import httptools

from sluicegate.errors import BadRequest, ConnectFailed
from sluicegate.messages import File, Image
from sluicegate.routing.catalog_shapes import TlsFiles
from sluicegate.server.dialing import make_tls_context
from sluicegate.server.settings_shapes import MediaSettings
from sluicegate.wire.inline_media import media_type, type_by_name
from sluicegate.wire.translation import Wanted

MAX_REDIRECTS = 3
MAX_MEDIA = 20
"""Addresses in one request."""
MAX_AT_ONCE = 8
"""Fetches of one worker."""
READ_BYTES = 65_536
HANDSHAKE_GRACE_S = 0.5
"""A TLS handshake that nobody waits for any more is kept, with its buffers, until the loop's own timer ends: after 60 s
unless told."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_PORTS = {"https": 443, "http": 80}


class MediaFetcher:
    """Fetches for one worker."""

    def __init__(self, settings: MediaSettings) -> None:
        self._settings = settings
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._context: ssl.SSLContext | None = None

    async def fill(self, wanted: Sequence[Wanted]) -> None:
        """Put the data of each part in the place of its address.

        Raises:
            BadRequest: one cannot be had; `param` is its path.
        """
        if len(wanted) > MAX_MEDIA:
            path = wanted[MAX_MEDIA].path
            raise BadRequest(f"{path}: at most {MAX_MEDIA} addresses are fetched for a request", param=path)
        left = self._settings.max_bytes
        for part, path in wanted:
            try:
                async with self._turns, asyncio.timeout(self._settings.timeout_s):
                    body, declared = await self._fetch(part.url or "", left)
            except TimeoutError:
                raise _refused(path, "the address did not answer in time") from None
            except _Refused as error:
                raise _refused(path, str(error)) from None
            except (OSError, ConnectFailed, httptools.HttpParserError, UnicodeError, ValueError):
                raise _refused(path, "the address could not be fetched") from None
            left -= len(body)
            _fill(part, path, body, declared)

    async def _fetch(self, url: str, max_bytes: int) -> tuple[bytes, str]:
        """Return the body behind an address and the type that its head tells."""
        for _ in range(MAX_REDIRECTS + 1):
            parts = urlsplit(url)
            answer = await self._ask(parts, max_bytes)
            if answer.status not in _REDIRECTS or not answer.location:
                if answer.status != 200:
                    raise _Refused(f"the address answered {answer.status}")
                return b"".join(answer.pieces), answer.content_type
            url = urljoin(url, answer.location)
        raise _Refused("the address is redirected too often")

    async def _ask(self, parts: SplitResult, max_bytes: int) -> "_Answer":
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        trusted = host in self._settings.allow_hosts or f"{host}:{port}" in self._settings.allow_hosts
        if parts.scheme != "https" and not (trusted and parts.scheme == "http"):
            raise _Refused("only https addresses are fetched")
        if parts.username is not None or not host:
            raise _Refused("the address must name a host and no credentials")
        address = await self._address(host, port, trusted=trusted)
        context = await self._tls() if parts.scheme == "https" else None
        reader, writer = await asyncio.open_connection(
            *address,
            ssl=context,
            server_hostname=host if context else None,
            ssl_handshake_timeout=self._settings.timeout_s + HANDSHAKE_GRACE_S if context else None,
            limit=READ_BYTES,
        )
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            named = f"[{host}]" if ":" in host else host
            if port != _PORTS[parts.scheme]:
                named = f"{named}:{port}"
            writer.write(
                f"GET {_escaped(target)} HTTP/1.1\r\nhost: {named}\r\naccept: */*\r\naccept-encoding: identity\r\n"
                "user-agent: sluicegate\r\nconnection: close\r\n\r\n".encode("ascii")
            )
            answer = _Answer(max_bytes)
            while not answer.complete:
                data = await reader.read(READ_BYTES)
                if not data:
                    answer.finish()
                    break
                answer.feed(data)
            return answer
        finally:
            writer.transport.abort()

    async def _address(self, host: str, port: int, *, trusted: bool) -> tuple[str, int]:
        """Return the one address to connect to; a host with any address that is not public is refused."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [info[4][0] for info in found]
        if not trusted and not all(is_public(str(address)) for address in addresses):
            raise _Refused("the address is not a public one")
        return str(addresses[0]), port

    async def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = await asyncio.get_running_loop().run_in_executor(
                None, make_tls_context, TlsFiles()
            )
        return self._context


class _Refused(Exception):
    """Why an address is not fetched, in words that the client may read."""


class _Answer:
    """One HTTP answer, read until it ends, is too long or turns out to be of no use."""

    def __init__(self, max_bytes: int) -> None:
        self.status = 0
        self.content_type = ""
        self.location = ""
        self.pieces: list[bytes] = []
        self.complete = False
        self._parser = httptools.HttpResponseParser(self)
        self._max_bytes = self._left = max_bytes
        self._has_length = False
        self._refusal = ""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the connection. Raises _Refused, HttpParserError."""
        try:
            self._parser.feed_data(data)
        finally:
            if self._refusal:
                raise _Refused(self._refusal)

    def finish(self) -> None:
        """Take the end of the connection: only a body without a length ends so. Raises _Refused."""
        if self._has_length or not self.status:
            raise _Refused("the address broke off its answer")

    # what httptools calls

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"content-type":
                self.content_type = value.decode("latin-1").partition(";")[0].strip().lower()
            case b"location":
                self.location = value.decode("latin-1")
            case b"content-length":
                self._has_length = True
                if value.isdigit() and int(value) > self._left:
                    self._too_long()
            case b"transfer-encoding":
                self._has_length = True
            case b"content-encoding" if value.lower() != b"identity":
                self._refusal = "the address answered with compressed data"

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._left -= len(body)
        if self._left < 0:
            self._too_long()
        else:
            self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.complete = self.status >= 200

    def _too_long(self) -> None:
        self._refusal = f"what is behind the address is longer than {self._max_bytes} bytes"


def is_public(address: str) -> bool:
    """Whether an IP address, also one inside another, belongs to the public network."""
    found: Any = ipaddress.ip_address(address.partition("%")[0])
    if found.version == 6:
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if inner is None and found in _NAT64:
            inner = ipaddress.ip_address(int(found) & 0xFFFF_FFFF)
        if inner:
            return is_public(str(inner))
    return bool(found.is_global and not found.is_multicast)


def _escaped(target: str) -> str:
    """Return a request target without anything that could end its line."""
    if any(ord(character) <= 32 or ord(character) == 127 for character in target):
        raise _Refused("the address holds characters that no address has")
    return "".join(
        one if one.isascii() else "".join(f"%{byte:02X}" for byte in one.encode()) for one in target
    )


def _fill(part: Image | File, path: str, body: bytes, declared: str) -> None:
    data = b64encode(body).decode()
    known = media_type(data)
    if isinstance(part, Image):
        if known is None or not known.startswith("image/"):
            raise _refused(path, "what is behind the address is no picture")
        part.media_type = known
    else:
        part.media_type = known or type_by_name(urlsplit(part.url or "").path) or declared or None
    part.data, part.url = data, None


def _refused(path: str, reason: str) -> BadRequest:
    return BadRequest(f"{path}: {reason}", param=path)
