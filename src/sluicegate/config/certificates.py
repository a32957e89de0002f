"""Tries the certificates and keys that the configuration names, before a worker or a first request fails by them."""

import ssl
from collections.abc import Iterator
from pathlib import Path

from sluicegate.config.document import Path as SettingPath
from sluicegate.config.document import Problem
from sluicegate.config.schema import Sections


def problems(sections: Sections) -> Iterator[Problem]:
    """Tell which files cannot be read, or are not what they should be."""
    yield from _pair(("server", "tls"), sections.server.tls.cert_file, sections.server.tls.key_file)
    for name, row in sections.providers.items():
        here = ("providers", name, "tls")
        yield from _pair(here, row.tls.cert_file, row.tls.key_file)
        yield from _authorities((*here, "ca_file"), row.tls.ca_file)


def _pair(here: SettingPath, cert_file: Path | None, key_file: Path | None) -> Iterator[Problem]:
    if cert_file is None or key_file is None:
        return
    unreadable = [*_unreadable((*here, "cert_file"), cert_file), *_unreadable((*here, "key_file"), key_file)]
    yield from unreadable
    if unreadable:
        return
    try:
        # The password is never asked for: nobody sits at a worker's terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, password=lambda: "")
    except (ssl.SSLError, ValueError):
        yield Problem(
            (*here, "cert_file"),
            f"is no PEM certificate that fits key_file, whose key must need no password ({cert_file})",
        )


def _authorities(here: SettingPath, ca_file: Path | None) -> Iterator[Problem]:
    if ca_file is None:
        return
    unreadable = _unreadable(here, ca_file)
    yield from unreadable
    if unreadable:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
    except ssl.SSLError:
        yield Problem(here, f"holds no PEM certificate ({ca_file})")


def _unreadable(here: SettingPath, file: Path) -> list[Problem]:
    try:
        file.read_bytes()
    except OSError as error:
        return [Problem(here, f"cannot be read: {error.strerror} ({file})")]
    return []
