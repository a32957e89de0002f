"""Getting a connection to a provider: name look-up, TCP, HTTP proxies, TLS.

The connection that comes out speaks for itself (`upstream`); all errors on the way become `ConnectFailed`.
Time is bounded by the caller. Which proxy applies was decided when the configuration was loaded
(`routing.proxy_env`).

Source: RFC 9112, 3.2.2 (absolute form to proxies) and RFC 9110, 9.3.6 (CONNECT); RFC 8305 (trying another
address).
"""

import asyncio
import base64
import os
import socket
import ssl
from itertools import chain, zip_longest
from typing import NamedTuple, cast
from urllib.parse import unquote, urlsplit

from sluicegate.errors import ConnectFailed
from sluicegate.routing.catalog_shapes import TlsFiles
from sluicegate.server.upstream import UpstreamConnection
from sluicegate.server.upstream_tls import TlsConnection

ADDRESS_S = 1.0
"""How long an address is tried while there are others: a dead IPv6 route must not cost the whole time."""
UNACKED_MAX_MS = 20_000
"""How long sent bytes may stay unacknowledged (TCP_USER_TIMEOUT).

A path that died without a word then fails within 20 s, and a reused connection is tried again, instead of
waiting out the time that the provider has to answer.
"""
PROBE_AFTER_S = 60
"""Silence after which the kernel probes the peer; also keeps middle boxes from forgetting us."""
MAX_PROXY_HEAD_BYTES = 16_384


class Origin(NamedTuple):
    """Where requests of a kind go: connections are shared among those with an equal origin."""

    scheme: str
    host: str
    """Without brackets where it is an IPv6 address."""
    port: int
    proxy: str | None = None
    """URL of an HTTP proxy."""
    tls: TlsFiles = TlsFiles()
    max_connections: int = 0
    """At once, from this worker; 0: no limit."""

    @property
    def authority(self) -> str:
        """Host and port as they stand in a request's target."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _ProxyAddress(NamedTuple):
    host: str
    port: int
    authorization: bytes
    """Header line with the proxy's credentials; empty where the URL has none."""


def proxy_request_prefix(origin: Origin) -> tuple[bytes, bytes] | None:
    """Return what requests to an `http` origin need on their way through its proxy, or None without one.

    Returns: what stands before the path in the request line, and a header line with the proxy's credentials.
    """
    if origin.proxy is None or origin.scheme != "http":
        return None
    return f"http://{origin.authority}".encode(), _parse_proxy(origin.proxy).authorization


class Dialer:
    """Opens connections; keeps one TLS context for each set of files."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._contexts: dict[TlsFiles, ssl.SSLContext] = {}

    async def dial(self, origin: Origin, connection: UpstreamConnection) -> None:
        """Connect a connection to its origin.

        Raises:
            ConnectFailed: it cannot be reached, or is not who it should be.
        """
        try:
            proxy = None if origin.proxy is None else _parse_proxy(origin.proxy)
            context = await self._context(origin.tls) if origin.scheme == "https" else None
            sock = await self._connect(*((origin.host, origin.port) if proxy is None else proxy[:2]))
            try:
                if proxy is not None and context is not None:
                    await self._open_tunnel(sock, origin, proxy)
                secured = None
                if context is not None:
                    secured = cast(TlsConnection, connection).begin_tls(context, origin.host)
                await self._loop.create_connection(lambda: cast(asyncio.BaseProtocol, connection), sock=sock)
                if secured is not None:
                    await secured
            except BaseException:
                sock.close()
                raise
        except (OSError, UnicodeError) as error:
            raise ConnectFailed(_explain(error)) from error

    async def _connect(self, host: str, port: int) -> socket.socket:
        """Connect to one address of a host, the families taking turns."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        sixes = [info for info in found if info[0] == socket.AF_INET6]
        others = [info for info in found if info[0] != socket.AF_INET6]
        first, second = (sixes, others) if found and found[0][0] == socket.AF_INET6 else (others, sixes)
        turns = [info for info in chain.from_iterable(zip_longest(first, second)) if info is not None]
        for family, kind, protocol, _, address in turns[:-1]:
            try:
                async with asyncio.timeout(ADDRESS_S):
                    return await self._connect_to(family, kind, protocol, address)
            except OSError:  # TimeoutError is one
                continue
        family, kind, protocol, _, address = turns[-1]
        return await self._connect_to(family, kind, protocol, address)

    async def _connect_to(self, family: int, kind: int, protocol: int, address: object) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKED_MAX_MS)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_AFTER_S // 3)
            await self._loop.sock_connect(sock, address)  # type: ignore[arg-type]  # as getaddrinfo gave it
        except BaseException:
            sock.close()
            raise
        return sock

    async def _open_tunnel(self, sock: socket.socket, origin: Origin, proxy: _ProxyAddress) -> None:
        authority = origin.authority.encode()
        request = b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (authority, authority, proxy.authorization)
        await self._loop.sock_sendall(sock, request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = await self._loop.sock_recv(sock, MAX_PROXY_HEAD_BYTES)
            answer += data
            if not data or len(answer) > MAX_PROXY_HEAD_BYTES:
                raise ConnectFailed("the proxy gave no answer that HTTP allows")
        version, _, rest = answer.partition(b" ")
        status = rest[:3]
        if not version.startswith(b"HTTP/1.") or not status.isdigit() or not status.startswith(b"2"):
            raise ConnectFailed(f"the proxy refused a tunnel to the provider: {status.decode('latin-1')}")
        if not answer.endswith(b"\r\n\r\n"):
            raise ConnectFailed("the proxy sent bytes of its own into the tunnel")

    async def _context(self, tls: TlsFiles) -> ssl.SSLContext:
        context = self._contexts.get(tls)
        if context is None:  # reading the system's certificates takes some 20 ms: not in the loop
            context = await self._loop.run_in_executor(None, make_tls_context, tls)
            self._contexts[tls] = context
        return context


def make_tls_context(tls: TlsFiles) -> ssl.SSLContext:
    """Build the client side's TLS context for one set of files.

    Raises:
        OSError: a file cannot be read or holds no certificate or key.
    """
    context = ssl.create_default_context(cafile=tls.ca_file)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _parse_proxy(url: str) -> _ProxyAddress:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ConnectFailed("only http:// proxies are supported")
    authorization = b""
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        authorization = b"proxy-authorization: Basic %b\r\n" % base64.b64encode(credentials)
    return _ProxyAddress(parts.hostname, parts.port or 80, authorization)


def _explain(error: Exception) -> str:
    """Say what failed, without addresses: the client may read it."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return "the provider's host name could not be resolved"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the provider's certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS with the provider failed: {error.reason or 'handshake'}"
    number = error.errno if isinstance(error, OSError) else None
    return f"no connection to the provider: {os.strerror(number).lower() if number else 'connection closed'}"
