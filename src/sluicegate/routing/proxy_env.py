"""Which proxy the environment wants for a provider: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.

A pure function over a mapping. Lower-case spellings win, as in curl; a name in NO_PROXY covers its
subdomains. Nothing is excepted by itself, loopback neither, as in curl and in the vendors' own SDKs.

Source: curl's manual, "Environment"; Go's x/net/http/httpproxy for ports and address ranges in NO_PROXY.
"""

import ipaddress
from collections.abc import Mapping


def choose_proxy(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> str | None:
    """Return the proxy's URL for requests to a host, or None for a direct connection.

    Args:
        scheme: http or https, of the provider.
        host: name or address, an IPv6 address without brackets.
    """
    proxy = _read(environ, f"{scheme}_proxy") or _read(environ, "all_proxy")
    if not proxy or _is_excepted(host.lower().rstrip("."), port, _read(environ, "no_proxy")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _read(environ: Mapping[str, str], name: str) -> str:
    if name == "http_proxy" and "REQUEST_METHOD" in environ:
        return environ.get(name, "").strip()  # in a CGI process HTTP_PROXY is a header that a client chose
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _is_excepted(host: str, port: int, no_proxy: str) -> bool:
    address = _parse_address(host)
    for entry in no_proxy.lower().replace(",", " ").split():
        if entry == "*":
            return True
        name, entry_port = _split_port(entry)
        if entry_port is not None and entry_port != port:
            continue
        if address is not None:
            network = _parse_network(name)
            if network is not None and address.version == network.version and address in network:
                return True
            continue
        name = name.removeprefix("*").strip(".")
        if name and (host == name or host.endswith("." + name)):
            return True
    return False


def _split_port(entry: str) -> tuple[str, int | None]:
    """Take `name:port` apart; an IPv6 address has a port only when bracketed."""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        port = rest.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        return entry, None
    if port and not port.isdigit():
        return entry, None
    return name, int(port) if port else None


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _parse_network(name: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(name, strict=False)
    except ValueError:
        return None
