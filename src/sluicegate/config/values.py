"""The words a configuration's scalars may say: durations, addresses, URLs, money, names. Text in, plain
values out.

Every function takes the scalar's own text and raises ValueError with what is allowed. Nothing here reads a
file, the environment or a clock. Money is read by `money.parse_usd`."""

import ipaddress
import re
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from sluicegate.money import MAX_NANO, NANO_PER_USD, AmountTooFine, AmountTooLarge, parse_usd

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)", re.ASCII)
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ASPECT_RATIO = re.compile(r"[1-9]\d{0,3}:[1-9]\d{0,3}", re.ASCII)
_MAX_DURATION_S = 366 * 86400.0
MAX_PRICE_NANO = 10**15
"""A million USD: a dollar for each token."""
_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings")
"""What is joined to a base URL, and so cannot be its end."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING_HEADERS = frozenset(
    [
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)


class Address(NamedTuple):
    """Where a listener binds. An IPv6 host stands without its brackets."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Tell whether a host, IPv6 without brackets, is this machine by its name or address alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_duration(text: str) -> float:
    """Read `250ms`, `15s`, `5m`, `1h` or `0` as seconds."""
    text = text.strip()
    if text == "0":
        return 0.0
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("must be a duration such as 250ms, 30s, 5m or 1h")
    seconds = float(match[1]) * _UNIT_S[match[2]]
    if seconds > _MAX_DURATION_S:
        raise ValueError("must not be longer than a year")
    return seconds


def format_duration(seconds: float) -> str:
    """Write seconds as the shortest text that `parse_duration` reads back."""
    if seconds == 0:
        return "0"
    for unit in ("d", "h", "m", "s"):
        if seconds % _UNIT_S[unit] == 0 and (unit != "d" or seconds > 86400):
            return f"{seconds / _UNIT_S[unit]:.0f}{unit}"
    return f"{seconds * 1000:g}ms"


def parse_amount(text: str) -> int:
    """Read an amount of USD that is not negative, as nano-USD."""
    try:
        nano = parse_usd(text)
    except AmountTooLarge:
        raise ValueError(f"must be at most {MAX_NANO // NANO_PER_USD} USD") from None
    except AmountTooFine:
        raise ValueError("must have at most nine decimals: no amount is finer than 0.000000001 USD") from None
    except ValueError:
        raise ValueError("must be a decimal amount of USD such as 1.25, with at most nine decimals") from None
    if nano < 0:
        raise ValueError("must not be negative")
    return nano


def parse_price(text: str) -> int:
    """Read a price: an amount of USD that is not absurd."""
    nano = parse_amount(text)
    if nano > MAX_PRICE_NANO:
        raise ValueError("must be at most 1000000 USD; rates are per million tokens")
    return nano


def parse_multiplier(text: str) -> int:
    """Read a factor of 0 to 100 with at most six decimals, as millionths."""
    match = re.fullmatch(r"([0-9]{1,3})(?:\.([0-9]{1,6}))?", text.strip())
    millionths = int(match[1]) * 10**6 + int((match[2] or "").ljust(6, "0")) if match else -1
    if not 0 <= millionths <= 100 * 10**6:
        raise ValueError("must be a factor of 0 to 100 such as 0.5, with at most six decimals")
    return millionths


def parse_percent(text: str) -> int:
    """Read a percentage of 0 to 10000 with at most six decimals, as millionths of a percent."""
    match = re.fullmatch(r"([0-9]{1,5})(?:\.([0-9]{1,6}))?", text.strip())
    millionths = int(match[1]) * 10**6 + int((match[2] or "").ljust(6, "0")) if match else -1
    if not 0 <= millionths <= 10_000 * 10**6:
        raise ValueError("must be a percentage of 0 to 10000 such as 20, with at most six decimals")
    return millionths


def parse_address(text: str) -> Address:
    """Read `host:port`; IPv6 in brackets."""
    host, colon, port = text.strip().rpartition(":")
    problem = "must be host:port, such as 127.0.0.1:4000, 0.0.0.0:4000 or [::1]:4000"
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(problem)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(problem) from None
    elif not re.fullmatch(r"[A-Za-z0-9_.-]+", host):
        raise ValueError(problem)
    elif re.fullmatch(r"[0-9.]+", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError(problem) from None
    return Address(host, int(port))


def _split(text: str, schemes: tuple[str, ...], problem: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        raise ValueError(problem) from None
    odd = any(not 0x21 <= ord(character) <= 0x7E for character in text)
    if odd or parts.scheme not in schemes or not parts.hostname or not port_ok:
        raise ValueError(problem)
    return parts


def parse_base_url(text: str) -> str:
    """Check a provider's base URL: http or https, a host, neither credentials nor query; a last slash
    goes."""
    parts = _split(text, ("http", "https"), "must be an http:// or https:// URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must hold no credentials; put them in api_key")
    if parts.query or parts.fragment:
        raise ValueError("must have no query or fragment; put parameters in query")
    base = text.rstrip("/")
    for endpoint in _ENDPOINTS:
        if base.endswith(endpoint):
            raise ValueError(f"must end before {endpoint}, which the gate adds")
    return base


def parse_proxy(text: str) -> str:
    """Check a proxy's URL: http, a host, credentials allowed."""
    parts = _split(
        text, ("http",), "must be the http:// URL of a proxy (TLS goes through it by CONNECT), or none"
    )
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("must be the http:// URL of a proxy without a path")
    return text.rstrip("/")


def parse_origin(text: str) -> str:
    """Check a browser origin, `*` or scheme://host[:port]."""
    problem = "must be * or an origin such as https://app.example.com"
    if text == "*":
        return text
    parts = _split(text, ("http", "https"), problem)
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(problem)
    return text


def parse_header_name(text: str) -> str:
    """Check a header name that a provider's row may set, and lower it."""
    if not _HEADER_NAME.fullmatch(text):
        raise ValueError("is not a header name")
    if text.lower() in _FRAMING_HEADERS:
        raise ValueError("is set by the gate itself")
    return text.lower()


def parse_header_value(text: str) -> str:
    """Check a header value: printable, no line ends."""
    if not text.isascii() or not (text + " ").isprintable():
        raise ValueError("must be printable ASCII without line ends")
    return text.strip()


def parse_credential(text: str) -> str:
    """Check a provider's key, wherever it came from: printable ASCII in one line, not empty."""
    text = text.strip()
    if not text:
        raise ValueError("is empty")
    if not text.isascii() or not text.isprintable():
        raise ValueError("must be one line of printable ASCII")
    return text


def parse_gateway_key(text: str) -> str:
    """Check a key of our own: 16 to 128 printable characters, none of them a space at either end."""
    if not 16 <= len(text) <= 128:
        raise ValueError(f"must have 16 to 128 characters, has {len(text)}")
    if not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError("must be printable ASCII characters without a space at either end")
    return text


def parse_name(text: str) -> str:
    """Check a name of a key, account or provider."""
    if not 1 <= len(text) <= 100 or not text.isprintable() or text != text.strip():
        raise ValueError("must be a name of 1 to 100 printable characters")
    return text


def parse_model_id(text: str) -> str:
    """Check a public model id; `*` may stand once, at the end."""
    if not 1 <= len(text) <= 256 or not text.isprintable() or " " in text:
        raise ValueError("must be a model id of 1 to 256 printable characters without spaces")
    if "*" in text[:-1]:
        raise ValueError("may have one * only, at the end")
    return text


def parse_upstream_id(text: str) -> str:
    """Check a provider's model id; `*` may stand once, anywhere."""
    if not 1 <= len(text) <= 256 or not text.isprintable() or " " in text:
        raise ValueError("must be a model id of 1 to 256 printable characters without spaces")
    if text.count("*") > 1:
        raise ValueError("may have one * only")
    return text


def parse_instant(text: str) -> datetime:
    """Read an ISO 8601 date or time; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a date or time such as 2026-12-31 or 2026-12-31T18:00:00Z") from None


def parse_store_url(text: str) -> str:
    """Check the store's URL: sqlite:///FILE, or postgresql://…"""
    if text.startswith("sqlite:///") and len(text) > len("sqlite:///") and ":memory:" not in text:
        return text
    if re.match(r"postgres(ql)?://[^/]", text):
        return text
    raise ValueError("must be sqlite:///FILE or postgresql://USER@HOST/NAME")


def parse_counters_url(text: str) -> str:
    """Check where limits are counted: memory, or Redis."""
    if text == "memory" or re.match(r"(rediss?|valkeys?)://[^/]|unix://", text):
        return text
    raise ValueError("must be memory or redis://HOST:PORT/DB")


def parse_key_hash(text: str) -> str:
    """Check the key of the keyed hash: at least 32 characters of any kind."""
    if len(text) < 32:
        raise ValueError("must have at least 32 characters; `openssl rand -hex 32` makes one")
    return text


def parse_aspect_ratio(text: str) -> str:
    """Read an aspect ratio, width before height."""
    if _ASPECT_RATIO.fullmatch(text) is None:
        raise ValueError("must be an aspect ratio, such as 16:9")
    return text


def parse_cost_header(text: str) -> str:
    """Check the cost header's name; `none` and the empty text send no header."""
    if text in ("", "none"):
        return ""
    return parse_header_name(text)
