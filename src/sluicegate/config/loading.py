"""Loads the configuration in one go: parse, validate, resolve credentials, price the models; all problems
at once.

A relative path is relative to the file. Secrets are in the loaded values, and never in an error, a `repr`
or a warning."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from sluicegate.billing.account_shapes import Bootstrap, BootstrapAccount, BootstrapKey
from sluicegate.config import certificates, credentials, document, meaning, models, not_built_yet, reading
from sluicegate.config.document import Problem
from sluicegate.config.prices import PriceFile, load_price_file
from sluicegate.config.schema import KeyRow, Sections, ServerTls
from sluicegate.config.values import is_loopback, parse_proxy
from sluicegate.errors import ConfigError
from sluicegate.routing.health import HealthRules
from sluicegate.routing.probing import ProbeRules
from sluicegate.routing.proxy_env import choose_proxy
from sluicegate.server.settings_shapes import (
    BillingSettings,
    JobSettings,
    JournalSettings,
    MediaSettings,
    ResponsesStoreSettings,
    RetrySettings,
    ServerSettings,
    TlsServer,
    WorkerSettings,
)

DEFAULT_FILE = Path("sluicegate.yaml")


@dataclass(frozen=True)
class Config:
    """A configuration that was loaded and found right."""

    path: Path
    """The file, absolute."""
    sections: Sections
    """All settings, by the names they have in the file."""
    warnings: tuple[str, ...]
    """One line each: settings without effect yet, and what is hardly meant."""
    prices: dict[str, models.Priced]
    """By public id: what is charged, and where the price came from."""
    _models: models.Models = field(repr=False)
    _credentials: dict[str, credentials.Credentials] = field(repr=False)

    @property
    def store_url(self) -> str:
        """The store's URL; a relative SQLite file is made absolute."""
        url = self.sections.store.get_secret_value()
        if not url.startswith("sqlite:///"):
            return url
        return f"sqlite:///{self.path.parent / url.removeprefix('sqlite:///')}"

    @property
    def store_file(self) -> Path | None:
        """The SQLite file, absolute; None for another store."""
        url = self.store_url
        return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None

    @property
    def counters_url(self) -> str:
        """Where limits are counted: memory, or a Redis URL."""
        return self.sections.counters.get_secret_value()

    @property
    def journal_dir(self) -> Path:
        """Folder of the journal, absolute."""
        return self.path.parent / self.sections.journal.dir

    @property
    def admin_token(self) -> str | None:
        """The operator's token; None: health and metrics only."""
        token = self.sections.admin.token
        return None if token is None else token.get_secret_value()

    @property
    def key_hash_secret(self) -> str | None:
        """Key of the keyed hash; None: the gate makes one beside the store."""
        secret = self.sections.secrets.key_hash
        return None if secret is None else secret.get_secret_value()

    def worker_settings(self, key_secret: bytes, env: Mapping[str, str]) -> WorkerSettings:
        """Return what a worker needs to know.

        Args:
            key_secret: key of the keyed hash of gateway keys.
            env: the environment, for the proxies of providers that name none.
        """
        sections = self.sections
        server, stream, billing = sections.server, sections.stream, sections.billing
        return WorkerSettings(
            server=ServerSettings(
                host=server.listen.host,
                port=server.listen.port,
                workers=server.workers,
                tls=_tls(server.tls),
                max_body_bytes=server.max_body_bytes,
                max_upload_bytes=server.max_upload_bytes,
                max_inflight_bytes=server.max_inflight_bytes,
                keepalive_after_s=server.keepalive_after,
                keepalive_every_s=server.keepalive_every,
                request_timeout_s=server.request_timeout,
                write_timeout_s=server.write_timeout,
                idle_connection_s=server.idle_connection,
                drain_timeout_s=server.drain_timeout,
                max_streams=server.max_streams,
                max_memory_bytes=server.max_memory,
                max_lag_s=server.max_lag,
                queue_for_s=server.queue_for,
                cors_origins=server.cors_origins,
                expose_provider=server.expose_provider,
            ),
            switches=msgspec.structs.replace(
                models.switches(stream),
                profile=stream.profile,
                on_disconnect=billing.on_disconnect,
                on_error=billing.on_error,
            ),
            clocks=models.clocks(stream),
            billing=BillingSettings(
                on_crash=billing.on_crash,
                drain_cap_s=billing.drain_cap,
                reserve_output_tokens=billing.reserve_output_tokens,
                shortfall_limit_nano=billing.shortfall_limit_usd,
            ),
            retry=RetrySettings(
                max_attempts=sections.retry.max_attempts,
                after_send=sections.retry.after_send,
                budget_percent=sections.retry.budget_percent,
            ),
            health=HealthRules(
                failures=sections.health.failures,
                failure_percent=sections.health.failure_percent,
                min_requests=sections.health.min_requests,
                open_s=sections.health.open_for,
                max_open_s=max(sections.health.open_for, sections.health.max_open_for),
            ),
            probes=ProbeRules(
                kind=sections.health.probe,
                every_s=sections.health.probe_every,
                closed_every_s=sections.health.probe_closed_every,
                timeout_s=sections.health.probe_timeout,
            ),
            journal=JournalSettings(
                dir=str(self.journal_dir),
                sync=sections.journal.sync,
                fsync_every_s=sections.journal.fsync_every,
                drain_every_s=sections.journal.drain_every,
            ),
            media=MediaSettings(
                fetch=sections.media.fetch,
                max_bytes=sections.media.max_bytes,
                timeout_s=sections.media.timeout,
                allow_hosts=sections.media.allow_hosts,
            ),
            jobs=JobSettings(
                poll_every_s=sections.jobs.poll_every, give_up_after_s=sections.jobs.give_up_after
            ),
            responses_store=ResponsesStoreSettings(
                enabled=sections.responses_store.enabled,
                ttl_s=sections.responses_store.ttl,
                max_bytes=sections.responses_store.max_bytes,
            ),
            translation=sections.translation,
            catalogue=self._models.catalogue(self._credentials, partial(_environment_proxy, env)),
            key_secret=key_secret,
            account_limits={
                name: stated
                for name, row in sections.accounts.items()
                if (stated := models.limits(f"account:{name}", row)) is not None
            },
        )

    def bootstrap(self) -> Bootstrap:
        """Return the accounts and keys that the store must have."""
        accounts = {
            name: BootstrapAccount(name=name, unlimited=row.unlimited, credit_nano=row.balance_usd)
            for name, row in self.sections.accounts.items()
        }
        for key in self.sections.keys:
            name = key.account or key.name
            accounts.setdefault(name, BootstrapAccount(name=name))
        return Bootstrap(
            accounts=tuple(accounts.values()), keys=tuple(_key(row) for row in self.sections.keys)
        )


def is_price_file(path: Path) -> bool:
    """Tell whether a file is one of prices, as `billing.catalogue_file` takes it, and no configuration.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return "prices" in document.Document(_read(path), {}).data
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None


def load(
    path: Path | str,
    env: Mapping[str, str],
    now: datetime | None = None,
    *,
    price_file: Path | None = None,
) -> Config:
    """Read and check a configuration file.

    Args:
        path: the file.
        env: the environment, for `${NAME}` and for key commands.
        now: chooses among catalogue prices that change on a date; the wall time when left out.
        price_file: takes the place of `billing.catalogue_file`.
    Raises:
        ConfigError: with one line for each thing that is wrong.
    """
    file = Path(os.path.abspath(path))
    try:
        parsed = document.Document(_read(file), env)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None
    sections = reading.read(parsed.data, file.parent)
    if parsed.problems or isinstance(sections, list):
        told = {problem.path for problem in parsed.problems}
        found = sections if isinstance(sections, list) else []
        more = [problem for problem in found if problem.path not in told]
        raise _refusal(path, parsed, [*parsed.problems, *more])
    prices = _price_file(sections, path, parsed) if price_file is None else load_price_file(price_file)
    wrong = [*meaning.problems(sections), *models.unknown_catalogues(sections, prices)]
    if wrong:
        raise _refusal(path, parsed, wrong)
    now = now or datetime.now(UTC)
    priced = models.Models(sections, now, prices)
    priced.build()
    fetched: dict[str, credentials.Credentials] = {}
    for name, row in sections.providers.items():
        try:
            fetched[name] = credentials.fetch(name, row, file.parent, env)
        except Problem as problem:
            priced.problems.append(problem)
    priced.problems += certificates.problems(sections)
    if priced.problems:
        raise _refusal(path, parsed, priced.problems)
    return Config(
        path=file,
        sections=sections,
        warnings=(
            *not_built_yet.warnings(sections),
            *meaning.warnings(sections, now),
            *models.unused_prices(sections, prices),
            *(
                f"{document.show(where)}: is taken as it stands; ${{NAME}}, with braces, takes a variable's value"
                for where in parsed.literal
            ),
        ),
        prices=priced.priced,
        _models=priced,
        _credentials=fetched,
    )


def _price_file(sections: Sections, path: Path | str, parsed: document.Document) -> PriceFile | None:
    file = sections.billing.catalogue_file
    if file is None:
        return None
    try:
        return load_price_file(file)
    except ConfigError as error:
        where = ("billing", "catalogue_file")
        wrong = [Problem(where, line) for line in error.message.splitlines()]
        raise _refusal(path, parsed, wrong) from None


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(document.MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            "there is no such file; `sluicegate config init` writes one to start from"
        ) from None
    except IsADirectoryError:
        raise ConfigError("is a folder, not a file") from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from None
    if len(content) > document.MAX_BYTES:
        raise ConfigError("is larger than 4 MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})") from None


def _refusal(path: Path | str, parsed: document.Document, problems: Iterable[Problem]) -> ConfigError:
    lines = []
    for problem in problems:
        line = parsed.line(problem.path)
        lines.append(f"{path}:{line}: {problem.message}" if line else f"{path}: {problem.message}")
    return ConfigError("\n".join(dict.fromkeys(lines)))


def _tls(section: ServerTls) -> TlsServer | None:
    if section.cert_file is None or section.key_file is None:
        return None
    return TlsServer(cert_file=str(section.cert_file), key_file=str(section.key_file))


def _key(row: KeyRow) -> BootstrapKey:
    return BootstrapKey(
        name=row.name,
        secret=row.key.get_secret_value(),
        account=row.account or row.name,
        credit_nano=row.balance_usd or 0,
        models=row.models,
        rpm=row.rpm,
        tpm=row.tpm,
        max_streams=row.max_streams,
        day_nano=row.day_usd,
        week_nano=row.week_usd,
        month_nano=row.month_usd,
        lifetime_nano=row.lifetime_usd,
        expires_at=row.expires_at,
        on_limit=row.on_limit,
        may_override=row.may_override,
        translation=row.translation,
        switches=models.switches(row),
    )


def _environment_proxy(env: Mapping[str, str], scheme: str, host: str, port: int) -> str | None:
    """Choose the environment's proxy for a provider; none for one on this machine, which no proxy could
    reach."""
    proxy = None if is_loopback(host) else choose_proxy(scheme, host, port, env)
    if proxy is None:
        return None
    try:
        return parse_proxy(proxy)
    except ValueError as error:
        raise ConfigError(
            f"the environment's proxy for {scheme}://{host} {error}; `proxy: none` on a provider goes without"
        ) from None
