"""A configuration that is right: what it becomes, and what it never shows."""

import json
import os
import pickle
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from sluicegate.billing.account_shapes import BootstrapAccount
from sluicegate.capabilities import Capabilities
from sluicegate.config import Config, load
from sluicegate.config.provider_rows import Abilities
from sluicegate.errors import ConfigError
from sluicegate.money import NANO_PER_USD
from sluicegate.routing.catalog_shapes import Price, StreamSwitches
from sluicegate.routing.families import capabilities_of
from sluicegate.server.settings_shapes import WorkerSettings

NOW = datetime(2026, 11, 20, tzinfo=UTC)

DESIGN = r"""
server: {listen: "127.0.0.1:4000", workers: 1, tls: {cert_file: null, key_file: null}, max_body_bytes: 33554432,
  max_upload_bytes: 536870912, max_inflight_bytes: 268435456, keepalive_after: 15s, keepalive_every: 15s,
  request_timeout: 30s, write_timeout: 60s, idle_connection: 75s, drain_timeout: 300s, max_streams: auto, queue_for: 0s,
  cors_origins: [], expose_provider: true}
admin: {listen: "127.0.0.1:4001", token: "${SLUICEGATE_ADMIN_TOKEN}"}
secrets: {key_hash: null}
store: "sqlite:///sluicegate.db"
counters: memory
journal: {dir: ./journal, sync: process, fsync_every: 50ms, drain_every: 200ms}
stream: {profile: default, connect_timeout: 5s, first_token_timeout: 300s, idle_timeout: 300s, response_timeout: 600s,
  total_timeout: 3600s, plain_keepalive: 240s, usage_wait: 5s, max_event_bytes: 16777216, min_tokens_per_s: 0,
  continue_midstream: false}
billing: {on_crash: none, drain_cap: 60s, markup_percent: 0, reserve_output_tokens: 1024, shortfall_limit_usd: 1.00}
retry: {max_attempts: 3, after_send: 1, budget_percent: 20}
translation: default
responses_store: {enabled: false, ttl: 24h, max_bytes: 1073741824}
providers:
  NAME:
    base_url: "https://provider.example/v1"
    url: {messages: "https://other.example"}
    speaks: [chat]
    api_key: "${X}"
    auth: bearer
    paths: {chat: "/openai/deployments/{model}/chat/completions"}
    query: {api-version: "2026-01-01"}
    headers: {x-team: a}
    tls: {ca_file: null, cert_file: null, key_file: null, verify: true}
    proxy: "http://proxy.example:3128"
    max_connections: 0
    catalogue: openai
    repair: auto
    capabilities: {stream_options: true, continuous_usage: false, betas_deny: [], drop_fields: []}
models:
  PUBLIC_ID:
    aliases: [other-id]
    routes: [{provider: NAME, model: upstream-id, priority: 0, weight: 1, cost: {}}]
    strategy: weighted
    price: {input: 1.25, cache_read: 0.125, output: 10.0}
    max_output_tokens: 8192
    prompt_template: plain
    capabilities: {}
  "openai/*": {routes: [{provider: NAME, model: "*"}]}
accounts: {NAME: {balance_usd: 100}}
keys:
  - {name: dev, key: "${DEV_KEY}", balance_usd: 5, profile: default, models: ["*"], rpm: 600, tpm: 1000000,
     max_streams: 100, day_usd: null, week_usd: null, month_usd: null, lifetime_usd: null, expires_at: null,
     on_limit: stop, may_override: false}
"""
"""Every key there is, as the design shows it, at its default."""

ENV = {
    "SLUICEGATE_ADMIN_TOKEN": "admin-secret",
    "X": "provider-secret",
    "DEV_KEY": "dev-key-secret-0123456789",
}
SECRETS = tuple(ENV.values())


def write(folder: Path, text: str) -> Path:
    file = folder / "sluicegate.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def loaded(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Config:
    return load(write(folder, text), env or {}, NOW)


def settings(folder: Path, text: str, env: Mapping[str, str] | None = None) -> WorkerSettings:
    return loaded(folder, text, env).worker_settings(b"k" * 32, env or {})


def one_model(model: str = "{price: free, routes: [{provider: p, model: m}]}", provider: str = "") -> str:
    return f'providers: {{p: {{base_url: "https://p.example/v1"{provider}}}}}\nmodels: {{m: {model}}}\n'


def test_every_key_of_the_design_is_accepted_without_a_warning(tmp_path: Path) -> None:
    assert loaded(tmp_path, DESIGN, ENV).warnings == ()


def test_what_stands_at_its_default_is_what_an_absent_key_gives(tmp_path: Path) -> None:
    full, bare = settings(tmp_path, DESIGN, ENV), settings(tmp_path, "models: {}")
    for part in ("server", "clocks", "billing", "retry", "journal", "translation"):
        assert getattr(full, part) == getattr(bare, part), part
    assert full.switches == bare.switches == StreamSwitches(profile="default")
    plain = WorkerSettings(
        server=msgspec.convert({}, type(bare.server)),
        switches=StreamSwitches(profile="default"),
        clocks=type(bare.clocks)(),
        billing=type(bare.billing)(),
        retry=type(bare.retry)(),
        journal=type(bare.journal)(dir=str(tmp_path / "journal")),
        translation="default",
        catalogue=bare.catalogue,
        key_secret=b"k" * 32,
    )
    assert bare == plain, "the structs' own defaults differ from the configuration's"


def test_worker_settings_of_the_design(tmp_path: Path) -> None:
    made = settings(tmp_path, DESIGN, ENV)
    model = made.catalogue.find("other-id")
    assert model is not None
    assert model.id == "PUBLIC_ID"
    assert model.price == Price(input=1_250_000_000, cache_read=125_000_000, output=10_000_000_000)
    provider = made.catalogue.providers["NAME"]
    assert provider.api_keys == ("provider-secret",)
    assert provider.query == {"api-version": "2026-01-01"}
    assert provider.proxy == "http://proxy.example:3128"
    assert provider.repair
    wild = made.catalogue.find("openai/gpt-4o-mini")
    assert wild is not None
    assert wild.price is not None
    assert wild.price == Price(
        input=150_000_000, cache_read=75_000_000, output=600_000_000, per_web_search=wild.price.per_web_search
    )
    assert made.catalogue.find("openai/gpt-nonsense") is None


def test_worker_settings_cross_the_control_channel(tmp_path: Path) -> None:
    made = settings(tmp_path, DESIGN, ENV)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=WorkerSettings) == made
    assert pickle.loads(pickle.dumps(made)) == made


def test_bootstrap_of_the_design(tmp_path: Path) -> None:
    made = loaded(tmp_path, DESIGN, ENV).bootstrap()
    assert made.accounts == (
        BootstrapAccount(name="NAME", credit_nano=100 * NANO_PER_USD),
        BootstrapAccount(name="dev"),
    )
    (key,) = made.keys
    assert (key.name, key.secret, key.account) == ("dev", "dev-key-secret-0123456789", "dev")
    assert (key.credit_nano, key.rpm, key.tpm, key.max_streams) == (5 * NANO_PER_USD, 600, 1_000_000, 100)


def test_accounts_unlimited_and_shared(tmp_path: Path) -> None:
    text = """
accounts: {team: unlimited, paid: {balance_usd: "0.000000001"}}
keys:
  - {name: a, key: aaaaaaaaaaaaaaaa, account: team, cost: none, on_disconnect: drain}
  - {name: b, key: bbbbbbbbbbbbbbbb, account: paid, day_usd: 1e-3, expires_at: 2027-01-01, cost_header: none}
"""
    made = loaded(tmp_path, text).bootstrap()
    assert made.accounts == (
        BootstrapAccount(name="team", unlimited=True),
        BootstrapAccount(name="paid", credit_nano=1),
    )
    assert [key.account for key in made.keys] == ["team", "paid"]
    assert made.keys[0].switches == StreamSwitches(cost="none", on_disconnect="drain")
    assert made.keys[1].day_nano == 1_000_000
    assert made.keys[1].expires_at == datetime(2027, 1, 1, tzinfo=UTC)
    assert made.keys[1].switches == StreamSwitches(cost_header="")


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0.1", 100_000_000),
        ("1e-9", 1),
        ("0.30000000000000004e0", None),
        ("3", 3 * NANO_PER_USD),
        ('"2.50"', 2_500_000_000),
    ],
)
def test_money_is_read_from_its_text(tmp_path: Path, text: str, nano: int | None) -> None:
    model = f"{{price: {{input: {text}, output: 0}}, routes: [{{provider: p, model: m}}]}}"
    if nano is None:
        with pytest.raises(ConfigError, match="nine decimals"):
            loaded(tmp_path, one_model(model))
        return
    found = settings(tmp_path, one_model(model)).catalogue.find("m")
    assert found is not None
    assert found.price is not None
    assert found.price.input == nano


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    config = loaded(tmp_path, DESIGN, ENV)
    made = config.worker_settings(b"hash-secret-hash-secret-hash-secr", ENV)
    shown = "\n".join(
        [
            repr(config),
            str(config),
            repr(config.sections),
            repr(made),
            repr(made.catalogue),
            repr(config.bootstrap()),
        ]
    )
    for secret in (*SECRETS, "hash-secret"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("written", "env", "name"),
    [
        ("${A}", {"A": "x"}, "x"),
        ("a-${A}-b", {"A": "x"}, "a-x-b"),
        ("${A:-d}", {}, "d"),
        ("${A:-d}", {"A": ""}, "d"),
        ("${A:-d}", {"A": "x"}, "x"),
        ("$${A}", {}, "${A}"),
        ("a$b", {}, "a$b"),
        ("$$$$", {}, "$$"),
        ("${A}${B}", {"A": "1", "B": "2"}, "12"),
        ("${A}", {"A": "${B}"}, "${B}"),
        ("${A}", {"A": "x: [y]"}, "x: [y]"),
    ],
)
def test_the_environment_is_put_into_values(
    tmp_path: Path, written: str, env: dict[str, str], name: str
) -> None:
    text = f'keys: [{{name: "{written}", key: aaaaaaaaaaaaaaaa}}]'
    assert loaded(tmp_path, text, env).bootstrap().keys[0].name == name


def test_the_environment_gives_numbers_too(tmp_path: Path) -> None:
    made = settings(tmp_path, "server:\n  workers: ${W}\n  listen: 127.0.0.1:${P:-4100}", {"W": "3"})
    assert (made.server.workers, made.server.port) == (3, 4100)


def test_yaml_that_people_write(tmp_path: Path) -> None:
    text = """
# comments, anchors, merges, and words that YAML takes for something else
server:
admin:
providers:
  1: &base {base_url: "https://p.example/v1/", speaks: [chat], capabilities: {stream_options: no}}
  on: {<<: *base, max_connections: 7}
models:
  7b: {price: free, routes: [{provider: 1, model: 1.10}, {provider: on, model: 2026-01-01}]}
keys: []
"""
    made = settings(tmp_path, text).catalogue
    assert made.providers["on"].base_url == "https://p.example/v1"
    assert (made.providers["on"].max_connections, made.providers["1"].stream_options) == (7, False)
    found = made.find("7b")
    assert found is not None
    assert [deployment.model for deployment in found.deployments] == ["1.10", "2026-01-01"]


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "etc"
    inside.mkdir()
    certificate = trustme.CA().issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(inside / "c.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "k.pem")
    write(
        inside,
        "journal: {dir: j}\nstore: sqlite:///data/s.db\n"
        f"server: {{tls: {{cert_file: c.pem, key_file: {tmp_path}/k.pem}}}}",
    )
    monkeypatch.chdir(tmp_path)
    config = load("etc/sluicegate.yaml", {}, NOW)
    made = config.worker_settings(b"", {})
    assert config.journal_dir == inside / "j"
    assert made.journal.dir == str(inside / "j")
    assert config.store_file == inside / "data/s.db"
    assert config.store_url == f"sqlite:///{inside}/data/s.db"
    assert made.server.tls is not None
    assert (made.server.tls.cert_file, made.server.tls.key_file) == (
        str(inside / "c.pem"),
        str(tmp_path / "k.pem"),
    )


@pytest.mark.parametrize(
    ("listen", "host", "port"),
    [
        ("[::1]:4000", "::1", 4000),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("localhost:80", "localhost", 80),
        ("[::]:1", "::", 1),
    ],
)
def test_listen_addresses(tmp_path: Path, listen: str, host: str, port: int) -> None:
    made = settings(tmp_path, f'server: {{listen: "{listen}"}}')
    assert (made.server.host, made.server.port) == (host, port)


@pytest.mark.parametrize(
    ("written", "seconds"), [("250ms", 0.25), ("1.5s", 1.5), ("5m", 300.0), ("1h", 3600.0), ("1d", 86400.0)]
)
def test_durations(tmp_path: Path, written: str, seconds: float) -> None:
    assert settings(tmp_path, f"server: {{write_timeout: {written}}}").server.write_timeout_s == seconds


def test_keys_of_providers_from_files_and_commands(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("from-file\n")
    command = json.dumps([sys.executable, "-c", "import os; print('from-' + os.environ['WHO'])"])
    text = f"""
providers:
  file: {{base_url: "http://a.example", api_key_file: key.txt}}
  command: {{base_url: "http://a.example", api_key_command: {command}}}
  several: {{base_url: "http://a.example", api_keys: [one, two]}}
  local: {{base_url: "http://127.0.0.1:8080/v1"}}
"""
    providers = settings(tmp_path, text, {"WHO": "command"}).catalogue.providers
    assert {name: row.api_keys for name, row in providers.items()} == {
        "file": ("from-file",),
        "command": ("from-command",),
        "several": ("one", "two"),
        "local": (),
    }
    assert providers["local"].auth == "none"


def test_clocks_and_switches_are_laid_over_one_another(tmp_path: Path) -> None:
    text = """
stream: {idle_timeout: 10s, connect_timeout: 1s, profile: openrelay, cost: none}
billing: {on_disconnect: drain}
providers:
  p: {base_url: "http://a.example", stream: {idle_timeout: 20s, first_token_timeout: 21s, usage_chunk: always}}
  q: {base_url: "http://a.example"}
models:
  m: {price: free, routes: [{provider: p, model: m}, {provider: q, model: m}],
      stream: {first_token_timeout: 30s, on_error: none, profile: rutoken}}
  n: {price: free, routes: [{provider: q, model: m}]}
"""
    made = settings(tmp_path, text)
    assert (made.clocks.idle_timeout_s, made.clocks.connect_timeout_s, made.clocks.total_timeout_s) == (
        10,
        1,
        3600,
    )
    assert made.switches == StreamSwitches(profile="openrelay", cost="none", on_disconnect="drain")
    m, n = made.catalogue.models["m"], made.catalogue.models["n"]
    assert m.switches == StreamSwitches(on_error="none", profile="rutoken")
    assert made.catalogue.providers["p"].switches == StreamSwitches(usage_chunk="always")
    over_p, over_q = (deployment.clocks for deployment in m.deployments)
    assert over_p is not None
    assert over_q is not None
    assert (over_p.first_token_timeout_s, over_p.idle_timeout_s, over_p.connect_timeout_s) == (30, 20, 1)
    assert (over_q.first_token_timeout_s, over_q.idle_timeout_s) == (30, 10)
    assert n.clocks is None
    assert n.deployments[0].clocks is None


def test_proxies_from_the_environment(tmp_path: Path) -> None:
    text = """
providers:
  plain: {base_url: "http://a.example"}
  secure: {base_url: "https://a.example"}
  excepted: {base_url: "https://inside.corp"}
  own: {base_url: "https://a.example", proxy: "http://user:pass@own.example:1"}
  none: {base_url: "https://a.example", proxy: none}
  "null": {base_url: "https://a.example", proxy: null}
  local: {base_url: "http://127.0.0.1:8080"}
"""
    env = {"HTTPS_PROXY": "http://s.example:1", "http_proxy": "p.example:2", "NO_PROXY": ".corp"}
    providers = settings(tmp_path, text, env).catalogue.providers
    assert {name: row.proxy for name, row in providers.items()} == {
        "plain": "http://p.example:2",
        "secure": "http://s.example:1",
        "excepted": None,
        "own": "http://user:pass@own.example:1",
        "none": None,
        "null": None,
        "local": None,
    }


def test_a_proxy_of_the_environment_that_nobody_can_use(tmp_path: Path) -> None:
    config = loaded(tmp_path, one_model())
    with pytest.raises(
        ConfigError, match=r"the environment's proxy for https://p\.example must be the http://"
    ):
        config.worker_settings(b"", {"HTTPS_PROXY": "socks5://user:hidden@s.example:1"})


def test_vendors_answers_are_not_repaired(tmp_path: Path) -> None:
    text = """
providers:
  vendor: {base_url: "https://api.openai.com/v1"}
  azure: {base_url: "https://x.openai.azure.com"}
  other: {base_url: "https://openai.example.com/v1"}
  told: {base_url: "https://api.openai.com/v1", repair: true}
"""
    providers = settings(tmp_path, text).catalogue.providers
    assert [row.repair for row in providers.values()] == [False, False, True, True]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("server: {cors_origins: [http://a.b]}", "server.cors_origins: accepted, but not built yet"),
        ("store: postgresql://u:secretpass@h/db", "store: accepted, but not built yet"),
        ("counters: redis://:secretpass@h", "counters: accepted, but not built yet"),
        (
            one_model(provider=", tls: {verify: false}"),
            "providers.p.tls.verify: its certificate is not checked",
        ),
        (
            one_model("{price: {input: 0, output: 0}, routes: [{provider: p, model: m}]}"),
            "models.m.price: every rate is 0",
        ),
        (
            one_model() + "keys: [{name: a, key: aaaaaaaaaaaaaaaa, models: [n, m]}]",
            "keys[0].models[0]: there is no model n",
        ),
        (
            "keys: [{name: a, key: aaaaaaaaaaaaaaaa, expires_at: 2020-01-01}]",
            "keys[0].expires_at: the key a has expired",
        ),
        ("keys: [{name: a, key: aaaaaaaaaaaaaaaa}]", "keys[0]: a has neither account nor balance_usd"),
        ("server: {}", "models: there are none"),
    ],
)
def test_warnings_are_one_line_each(tmp_path: Path, text: str, warning: str) -> None:
    found = loaded(tmp_path, text).warnings
    assert [line for line in found if line.startswith(warning)], found
    assert all("\n" not in line and "secretpass" not in line for line in found)


def test_a_command_sees_only_the_environment_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTSIDE", "1")
    script = "import os; print('seen' if 'OUTSIDE' in os.environ else 'unseen')"
    command = json.dumps([sys.executable, "-c", script])
    text = f'providers: {{p: {{base_url: "http://a.example", api_key_command: {command}}}}}'
    assert settings(tmp_path, text, {"PATH": os.environ["PATH"]}).catalogue.providers["p"].api_keys == (
        "unseen",
    )


def test_google_service_accounts(tmp_path: Path) -> None:
    account: dict[str, Any] = {"client_email": "a@b", "private_key": "k", "token_uri": "https://t.example"}
    (tmp_path / "sa.json").write_text(json.dumps(account))
    text = 'providers: {p: {base_url: "https://x.googleapis.com", auth: google, api_key_file: sa.json}}'
    provider = settings(tmp_path, text).catalogue.providers["p"]
    assert (provider.auth, provider.api_keys) == ("google", ())
    assert provider.google_credentials is not None
    assert json.loads(provider.google_credentials) == account


def test_the_places_of_one_setting_make_one_warning(tmp_path: Path) -> None:
    account = {"client_email": "a@b", "private_key": "k", "token_uri": "https://t.example"}
    (tmp_path / "sa.json").write_text(json.dumps(account))
    text = "providers: {a: &p {base_url: http://a.b, auth: google, api_key_file: sa.json}, b: *p}"
    found = [line for line in loaded(tmp_path, text).warnings if "not built yet" in line]
    assert found == [
        "providers.a.auth (and 1 more): accepted, but not built yet; its requests go without credentials"
    ]


CAN = """
providers:
  p: {base_url: "http://127.0.0.1:1", speaks: [messages, chat], capabilities: {images: false, max_output_tokens: 1000}}
  q: {base_url: "http://127.0.0.1:1"}
models:
  m:
    price: free
    routes: [{provider: p, model: claude-opus-4-7}, {provider: q, model: gpt-4o}]
    capabilities: {max_output_tokens: 2_000, efforts: [low, max], max_temperature: 0.5}
  "w/*":
    price: free
    routes: [{provider: p, model: "*"}, {provider: q, model: "*"}]
    capabilities: {tools: no}
    prompt_template: none
"""


def test_capabilities_are_the_familys_then_the_providers_then_the_models(tmp_path: Path) -> None:
    catalogue = settings(tmp_path, CAN).catalogue
    model, wild = catalogue.find("m"), catalogue.find("w/claude-haiku-4-5")
    assert model is not None
    assert wild is not None
    first, second = (target.capabilities for target in model.deployments)
    assert first == msgspec.structs.replace(
        capabilities_of("claude-opus-4-7", "messages"),
        images=False,
        max_output_tokens=2000,
        efforts=("low", "max"),
        max_temperature=0.5,
    )
    assert second.limit_field == "max_completion_tokens"
    assert (second.images, second.max_output_tokens) == (True, 2000)
    known, unknown = (target.capabilities for target in wild.deployments)
    assert (known.reasoning, known.images, known.tools, known.max_output_tokens) == (
        "budget",
        False,
        False,
        1000,
    )
    assert unknown == msgspec.structs.replace(
        capabilities_of("claude-haiku-4-5", "chat"), tools=False, prompt_template="none"
    )


def test_every_capability_can_be_said() -> None:
    beside = {"prompt_template"}  # a setting of the model itself
    assert set(Abilities.model_fields) | beside == set(Capabilities.__struct_fields__)
    for name, field in Abilities.model_fields.items():
        assert field.default is None, name


def test_capabilities_reach_a_worker(tmp_path: Path) -> None:
    made = settings(tmp_path, CAN)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=WorkerSettings) == made
