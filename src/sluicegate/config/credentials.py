"""Fetches the providers' keys: from the file itself, from a file beside it, or from a command's output.

A command gets no shell, no input, and ten seconds. Neither a key nor what a command printed is ever part of
an error."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sluicegate.config.document import Problem
from sluicegate.config.provider_rows import ProviderRow
from sluicegate.config.values import parse_credential

COMMAND_TIMEOUT_S = 10.0
MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, repr=False)
class Credentials:
    """What a provider is called with."""

    keys: tuple[str, ...] = ()
    google: str | None = None
    """Content of a service account's key file."""


def fetch(name: str, row: ProviderRow, folder: Path, env: Mapping[str, str]) -> Credentials:
    """Return a provider's credentials.

    Args:
        folder: where a command runs.
        env: what a command finds as its environment.
    Raises:
        Problem: names the setting that did not work.
    """
    here = ("providers", name)
    if row.api_keys is not None:
        return Credentials(tuple(key.get_secret_value() for key in row.api_keys))
    if row.api_key is not None:
        return Credentials((row.api_key.get_secret_value(),))
    if row.api_key_file is not None:
        text = _read(row.api_key_file, (*here, "api_key_file"))
        if row.auth == "google":
            return Credentials(google=_service_account(text, (*here, "api_key_file")))
        return Credentials((_credential(text, (*here, "api_key_file"), "the file"),))
    if row.api_key_command is not None:
        text = _run(row.api_key_command, (*here, "api_key_command"), folder, env)
        return Credentials((_credential(text, (*here, "api_key_command"), "what it printed"),))
    return Credentials()


def _credential(text: str, path: tuple[str, ...], what: str) -> str:
    try:
        return parse_credential(text)
    except ValueError as error:
        raise Problem(path, f"{what} {error}") from None


def _read(file: Path, path: tuple[str, ...]) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Problem(path, f"cannot be read: {error.strerror or type(error).__name__} ({file})") from None
    if len(content) > MAX_FILE_BYTES:
        raise Problem(path, f"is larger than {MAX_FILE_BYTES // 1024} KiB ({file})")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Problem(path, f"is not text ({file})") from None


def _service_account(text: str, path: tuple[str, ...]) -> str:
    try:
        account = json.loads(text)
    except ValueError:
        account = None
    if not isinstance(account, dict) or not {"client_email", "private_key", "token_uri"} <= account.keys():
        raise Problem(path, "is not the key file of a Google service account")
    return text


def _run(command: tuple[str, ...], path: tuple[str, ...], folder: Path, env: Mapping[str, str]) -> str:
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=dict(env),
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Problem(path, f"did not end within {COMMAND_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise Problem(
            path, f"cannot be run: {error.strerror or type(error).__name__} ({command[0]})"
        ) from None
    if ended.returncode != 0:
        raise Problem(path, f"ended with status {ended.returncode} ({command[0]})")
    return ended.stdout[:MAX_FILE_BYTES].decode(errors="replace")
