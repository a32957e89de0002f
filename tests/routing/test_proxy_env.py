"""Which proxy the environment chooses."""

import pytest

from sluicegate.routing.proxy_env import choose_proxy

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("environ", "scheme", "proxy"),
    [
        ({}, "https", None),
        ({"HTTPS_PROXY": PROXY}, "https", PROXY),
        ({"https_proxy": PROXY}, "https", PROXY),
        ({"HTTPS_PROXY": PROXY}, "http", None),
        ({"HTTP_PROXY": PROXY}, "http", PROXY),
        ({"HTTP_PROXY": PROXY}, "https", None),
        ({"ALL_PROXY": PROXY}, "http", PROXY),
        ({"all_proxy": PROXY}, "https", PROXY),
        ({"ALL_PROXY": "http://other", "HTTPS_PROXY": PROXY}, "https", PROXY),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other"}, "https", PROXY),
        ({"https_proxy": "", "HTTPS_PROXY": PROXY}, "https", PROXY),
        ({"HTTPS_PROXY": " "}, "https", None),
        ({"HTTPS_PROXY": "proxy:3128"}, "https", PROXY),
        ({"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, "http", None),
        ({"http_proxy": PROXY, "REQUEST_METHOD": "GET"}, "http", PROXY),
    ],
)
def test_which_variable_counts(environ: dict[str, str], scheme: str, proxy: str | None) -> None:
    assert choose_proxy(scheme, "api.example.com", 443, environ) == proxy


@pytest.mark.parametrize(
    ("no_proxy", "host", "excepted"),
    [
        ("*", "api.example.com", True),
        ("example.com", "api.example.com", True),
        ("example.com", "example.com", True),
        ("example.com", "notexample.com", False),
        (".example.com", "api.example.com", True),
        ("*.example.com", "api.example.com", True),
        ("API.Example.COM", "api.example.com.", True),
        ("other.com, example.com", "api.example.com", True),
        ("other.com example.com", "api.example.com", True),
        ("example.com:443", "api.example.com", True),
        ("example.com:8443", "api.example.com", False),
        ("example.com:x", "api.example.com", False),
        ("", "api.example.com", False),
        (" , ,", "api.example.com", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3:443", "10.1.2.3", True),
        ("10.1.2.3:80", "10.1.2.3", False),
        ("2.3", "10.1.2.3", False),
        ("::1", "::1", True),
        ("[::1]:443", "::1", True),
        ("[::1]:80", "::1", False),
        ("fd00::/8", "fd12::1", True),
        ("10.0.0.0/8", "fd12::1", False),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_what_no_proxy_excepts(no_proxy: str, host: str, excepted: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        proxy = choose_proxy("https", host, 443, {"HTTPS_PROXY": PROXY, name: no_proxy})
        assert (proxy is None) is excepted
