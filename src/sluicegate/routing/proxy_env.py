"""Which proxy the environment asks for: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, read from a mapping.

Lower-case names go before upper-case ones. HTTP_PROXY in capitals is not looked at where REQUEST_METHOD is
set, since a CGI server takes it from a request's header. NO_PROXY holds hosts (with their subdomains),
addresses, networks in CIDR form, each with or without `:port`, or `*`. Loopback hosts never go through a
proxy.

Source: curl's manual, "Environment"; Go's golang.org/x/net/http/httpproxy for loopback and CIDR.
"""

import ipaddress
from collections.abc import Mapping


def proxy_for(scheme: str, host: str, port: int, env: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a target, or None to connect directly.

    Args:
        scheme: http or https.
        host: the target's host, IPv6 without brackets.
        env: the environment.
    """
    proxy = _value(f"{scheme}_proxy", env) or _value("all_proxy", env)
    if not proxy or _loopback(host) or _excepted(host, port, _value("no_proxy", env)):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _value(name: str, env: Mapping[str, str]) -> str:
    if name in env:
        return env[name].strip()
    if name == "http_proxy" and "REQUEST_METHOD" in env:
        return ""
    return env.get(name.upper(), "").strip()


def _loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _excepted(host: str, port: int, no_proxy: str) -> bool:
    host = host.lower().rstrip(".")
    address = _address(host)
    return any(
        _covers(rule.strip().lower(), host, port, address)
        for rule in no_proxy.replace(" ", ",").split(",")
        if rule.strip()
    )


def _covers(
    rule: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
) -> bool:
    if rule == "*":
        return True
    name, colon, rule_port = rule.rpartition(":")
    if colon and rule_port.isdigit() and (":" not in name or name.startswith("[")):
        if int(rule_port) != port:
            return False
        rule = name
    if address is not None:
        try:
            return address in ipaddress.ip_network(rule.strip("[]"), strict=False)
        except ValueError:
            return False
    suffix = rule.removeprefix("*").lstrip(".")
    return host == suffix or host.endswith("." + suffix)
