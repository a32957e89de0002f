"""A configuration that is wrong: one clear line each, with file, line, path, and what is allowed."""

import json
import sys
import time
from pathlib import Path

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.config import credentials, load
from sluicegate.errors import ConfigError
from tests.profiles import examples
from tests.test_config import DESIGN, ENV, NOW, write

PROVIDER = 'providers: {p: {base_url: "http://p.example"}}\n'
KEY = "key: aaaaaaaaaaaaaaaa"


def provider(settings: str) -> str:
    return f'providers: {{p: {{base_url: "http://p.example", {settings}}}}}'


def model(settings: str) -> str:
    return PROVIDER + f"models: {{m: {{{settings}}}}}"


ROUTE = "routes: [{provider: p, model: x}]"

BAD = [
    # the file as a whole
    ("", "the file is empty"),
    ("# nothing\n---\n", "the file is empty"),
    ("just words", "the file must hold a mapping"),
    ("- a\n- b", "the file must hold a mapping"),
    ("server: {", "not YAML: line 1"),
    ("a: b: c", "not YAML: line 1: mapping values are not allowed here"),
    ("server: *nowhere", "not YAML: line 1: found undefined alias"),
    ("a: 1\n---\nb: 2", "not YAML: line 2"),
    ("server:\n\tworkers: 2", "not YAML: line 2: a tab where only spaces may stand"),
    ('server:\n  listen: "a:1\n', "not YAML: line 2: the quote that opens here is not closed"),
    ("server:\n  workers: 2\n listen: a:1", "not YAML: line 3: its indentation does not fit the lines above"),
    (provider("api_key: ${A}"), "not YAML: line 1: ${…} stands in quotes inside braces and brackets"),
    (
        "models:\n  *: {price: free}",
        "not YAML: line 2: * begins an alias or an anchor; as a text it stands in quotes",
    ),
    ("keys: [{name: @me}]", "'@' that cannot start any token; a text that begins with it stands in quotes"),
    ("server: &a {tls: *a}", "contains itself"),
    ("server: {workers: 1}\nserver: {workers: 2}", "sluicegate.yaml:2: server: stands twice"),
    ("server: {workers: 1, workers: 2}", "server.workers: stands twice"),
    ("? [a, b]\n: c", "a key must be a plain word"),
    ("server: {<<: 5}", "<< takes a mapping"),
    # fields
    ("sever: {}", "sever: unknown field; did you mean server?"),
    ("server: {port: 4000}", "server.port: unknown field; did you mean listen?"),
    (model(f"{ROUTE}, price: {{prompt: 1}}"), "models.m.price.prompt: unknown field; did you mean input?"),
    (model(f"{ROUTE}, price: {{input_tokens: 1}}"), "price.input_tokens: unknown field; did you mean input?"),
    ("providers: {p: {base_url:http://a.example}}", "unknown field; a space is missing after `base_url:`"),
    ("server:\n  worker: 2", "sluicegate.yaml:2: server.worker: unknown field; did you mean workers?"),
    ("admin: {zzz: 1}", "admin.zzz: unknown field; there are listen, token"),
    (provider("apikey: x"), "providers.p.apikey: unknown field; did you mean api_key?"),
    (provider("tls: {verfy: no}"), "providers.p.tls.verfy: unknown field; did you mean verify?"),
    (model(f"{ROUTE}, prize: free"), "models.m.prize: unknown field; did you mean price?"),
    (
        model("routes: [{provder: p, model: x}]"),
        "models.m.routes[0].provder: unknown field; did you mean provider?",
    ),
    (model(f"{ROUTE}, price: {{inptu: 1}}"), "models.m.price.inptu: unknown field; did you mean input?"),
    (f"keys: [{{nam: a, {KEY}}}]", "keys[0].nam: unknown field; did you mean name?"),
    ('models: {"a b": {}}', 'models["a b"]: must be a model id'),
    # the environment
    (provider('api_key: "${NOPE}"'), "providers.p.api_key: the environment variable NOPE is not set"),
    (provider('api_key: "${}"'), "providers.p.api_key: ${…} takes the name"),
    (provider('api_key: "${A"'), "providers.p.api_key: ${ is not closed"),
    (provider('api_key: "${A-B}"'), "providers.p.api_key: ${…} takes the name"),
    # types and bounds
    ("server: 5", "server: must be a mapping"),
    ("server: []", "server: must be a mapping"),
    ("server: {workers: 0}", "server.workers: must be at least 1"),
    ("server: {workers: 257}", "server.workers: must be at most 256"),
    ("server: {workers: 1.5}", "server.workers: must be a whole number"),
    ("server: {workers: many}", "server.workers: must be a whole number"),
    ("server: {max_body_bytes: 32MB}", "server.max_body_bytes: must be a whole number without a unit"),
    (
        "server: {max_memory: 9999999999999999999}",
        "server.max_memory: must be a whole number of at most 18 digits",
    ),
    (f"server: {{workers: {'9' * 5000}}}", "server.workers: must be a whole number of at most 18 digits"),
    (
        f"keys: [{{name: a, {KEY}, rpm: none}}]",
        "keys[0].rpm: must be a whole number; left out, there is no limit",
    ),
    (
        f"keys: [{{name: a, {KEY}, expires_at: '9999-12-31T23:59:59-14:00'}}]",
        "keys[0].expires_at: must be a date",
    ),
    ("accounts: {a: {balance_usd: 1e30}}", "accounts.a.balance_usd: must be at most 9223372036 USD"),
    ("server: {workers: [1]}", "server.workers: must be a plain value, not a list"),
    ("server: {max_body_bytes: 0}", "server.max_body_bytes: must be at least 1024"),
    ("server: {max_streams: some}", "server.max_streams: must be a whole number"),
    ("server: {expose_provider: maybe}", "server.expose_provider: must be true or false"),
    ("server: {write_timeout: 30}", "server.write_timeout: must be a duration such as 250ms"),
    ("server: {write_timeout: -5s}", "server.write_timeout: must be a duration"),
    ("server: {write_timeout: 0}", "server.write_timeout: must be at least 50ms"),
    ("journal: {fsync_every: 1h}", "journal.fsync_every: must be at most 10s"),
    ("jobs: {poll_every: 0}", "jobs.poll_every: must be more than 0"),
    ("server: {write_timeout: 9999h}", "server.write_timeout: must not be longer than a year"),
    ("server: {cors_origins: ['https://a.example/path']}", "server.cors_origins[0]: must be * or an origin"),
    ("journal: {sync: always}", "journal.sync: must be process or disk"),
    (
        "stream: {profile: openrouter}",
        "stream.profile: must be default, relaykit, openrelay, rutoken or cloakray",
    ),
    ("stream: {cost_header: 'a b'}", "stream.cost_header: is not a header name"),
    ("billing: {on_crash: drain}", "billing.on_crash: must be none or produced"),
    ("billing: {markup_percent: -1}", "billing.markup_percent: must be a percentage"),
    ("billing: {shortfall_limit_usd: $1}", "billing.shortfall_limit_usd: must be a decimal amount of USD"),
    ("retry: {max_attempts: 0}", "retry.max_attempts: must be at least 1"),
    ("translation: loose", "translation: must be default, strict or lenient"),
    ("secrets: {key_hash: short}", "secrets.key_hash: must have at least 32 characters"),
    ("store: mysql://h/db", "store: must be sqlite:///FILE or postgresql://"),
    ("store: sqlite://", "store: must be sqlite:///FILE"),
    ("counters: memcached", "counters: must be memory or redis://"),
    # capabilities
    (
        provider("capabilities: {image: no}"),
        "providers.p.capabilities.image: unknown field; did you mean images?",
    ),
    (provider("capabilities: {images: some}"), "providers.p.capabilities.images: must be true or false"),
    (
        model(f"{ROUTE}, capabilities: {{reasoning: deep}}"),
        "reasoning: must be none, effort, budget, adaptive or level",
    ),
    (
        model(f"{ROUTE}, capabilities: {{efforts: [low, huge]}}"),
        "capabilities.efforts[1]: must be none, minimal, low,",
    ),
    (
        model(f"{ROUTE}, capabilities: {{efforts: []}}"),
        "models.m.capabilities.efforts: must have at least 1 entry",
    ),
    (
        model(f"{ROUTE}, capabilities: {{max_temperature: 3}}"),
        "capabilities.max_temperature: must be at most 2",
    ),
    (
        model(f"{ROUTE}, capabilities: {{limit_field: n}}"),
        "limit_field: must be max_tokens or max_completion_tokens",
    ),
    (
        model(f"{ROUTE}, capabilities: {{max_output_tokens: 0}}"),
        "capabilities.max_output_tokens: must be at least 1",
    ),
    (model(f"{ROUTE}, capabilities: {{max_stop_sequences: -1}}"), "max_stop_sequences: must be at least 0"),
    (
        model(f"{ROUTE}, capabilities: {{min_budget_tokens: 9, max_budget_tokens: 8}}"),
        "models.m.capabilities: min_budget_tokens is above max_budget_tokens",
    ),
    (model(f"{ROUTE}, capabilities: {{stream_options: no}}"), "capabilities.stream_options: unknown field"),
    # addresses
    ("server: {listen: 4000}", "server.listen: must be host:port"),
    ("server: {listen: ':4000'}", "server.listen: must be host:port"),
    ("server: {listen: '::1:4000'}", "server.listen: must be host:port"),
    ("server: {listen: '[::g]:4000'}", "server.listen: must be host:port"),
    ("server: {listen: '1.2.3:4000'}", "server.listen: must be host:port"),
    ("server: {listen: 'a:65536'}", "server.listen: must be host:port"),
    ("server: {listen: '127.0.0.1:4001'}", "admin.listen: is the same as server.listen (127.0.0.1:4001)"),
    ("server: {tls: {cert_file: a.pem}}", "server.tls.key_file: cert_file and key_file go together"),
    (
        "admin: {listen: '0.0.0.0:4001'}",
        "admin.token: is needed where admin.listen is not a loopback address",
    ),
    ("admin: {listen: '[::]:4001'}", "admin.token: is needed"),
    ("admin: {token: ''}", "admin: token is empty"),
    ("admin: {token: }", "admin: token is empty"),
    ("admin: {token: '${T:-}'}", "admin: token is empty"),
    # providers
    ("providers: {p: }", "providers.p: must be a mapping"),
    ("providers: {p: {}}", "providers.p.base_url: is required, or a url for chat"),
    (
        "providers: {p: {base_url: ftp://a.example}}",
        "providers.p.base_url: must be an http:// or https:// URL",
    ),
    ("providers: {p: {base_url: 'https://'}}", "providers.p.base_url: must be an http:// or https:// URL"),
    (
        "providers: {p: {base_url: 'https://a.example:port'}}",
        "providers.p.base_url: must be an http:// or https://",
    ),
    (
        "providers: {p: {base_url: 'https://u:pw@a.example'}}",
        "providers.p.base_url: must hold no credentials",
    ),
    ("providers: {p: {base_url: 'https://a.example?x=1'}}", "providers.p.base_url: must have no query"),
    (
        "providers: {p: {base_url: 'https://a.example/v1/chat/completions'}}",
        "providers.p.base_url: must end before /chat/completions, which the gate adds",
    ),
    (provider("tls: {ca_file: missing.pem}"), "providers.p.tls.ca_file: cannot be read: No such file"),
    (
        "server: {tls: {cert_file: missing.pem, key_file: sluicegate.yaml}}",
        "server.tls.cert_file: cannot be read: No such file",
    ),
    (
        "server: {tls: {cert_file: sluicegate.yaml, key_file: sluicegate.yaml}}",
        "server.tls.cert_file: is no PEM certificate that fits key_file",
    ),
    (provider("tls: {ca_file: sluicegate.yaml}"), "providers.p.tls.ca_file: holds no PEM certificate"),
    (provider("speaks: []"), "providers.p.speaks: must name at least one"),
    (provider("speaks: [chat, chat]"), "providers.p.speaks[1]: chat stands twice"),
    (
        provider("speaks: [smoke]"),
        "providers.p.speaks[0]: must be chat, completions, responses, messages or gemini",
    ),
    (provider("speaks: chat"), "providers.p.speaks: must be a list"),
    (provider("url: {smoke: 'http://a.example'}"), "providers.p.url.smoke: must be chat"),
    (provider("api_key: a, api_keys: [b]"), "providers.p.api_keys: stands beside api_key"),
    (provider("api_key: ''"), "providers.p.api_key: is empty"),
    (provider('api_key: "two\\nlines"'), "providers.p.api_key: must be one line of printable ASCII"),
    (provider("api_keys: []"), "providers.p.api_keys: must have at least 1 entry"),
    (provider("auth: none, api_key: a"), "providers.p.api_key: stands beside `auth: none`"),
    (provider("auth: bearer"), "providers.p.auth: bearer needs a key"),
    (provider("auth: google, api_key: a"), "providers.p.auth: google needs api_key_file"),
    (provider("auth: basic"), "providers.p.auth: must be bearer, x-api-key"),
    (
        provider("api_key: a, headers: {Authorization: b}"),
        "providers.p.headers.authorization: stands beside api_key",
    ),
    (provider("headers: {Content-Length: 5}"), "is set by the gate itself"),
    (provider('headers: {x-a: "b\\r\\nc"}'), "must be printable ASCII without line ends"),
    (provider("paths: {chat: no-slash}"), "providers.p.paths.chat: must begin with /"),
    (provider("paths: {chat: '/{deployment}'}"), "providers.p.paths.chat: may hold {model} and no other"),
    (provider("proxy: socks5://a.example"), "providers.p.proxy: must be the http:// URL of a proxy"),
    (provider("tls: {key_file: k.pem}"), "providers.p.tls.cert_file: cert_file and key_file go together"),
    (provider("catalogue: opnai"), "providers.p.catalogue: there is no opnai; there are anthropic"),
    (provider("repair: sometimes"), "providers.p.repair: must be true or false"),
    (provider("api_key_file: missing.txt"), "providers.p.api_key_file: cannot be read: No such file"),
    (provider("api_key_file: ."), "providers.p.api_key_file: cannot be read: Is a directory"),
    (provider("api_key_command: 'echo hi'"), "providers.p.api_key_command: must be a list"),
    (
        provider("api_key_command: [no-such-command-here]"),
        "providers.p.api_key_command: cannot be run: No such file",
    ),
    (
        provider(f"api_key_command: {json.dumps([sys.executable, '-c', 'exit(3)'])}"),
        "api_key_command: ended with status 3",
    ),
    (
        provider(f"api_key_command: {json.dumps([sys.executable, '-c', ''])}"),
        "api_key_command: what it printed is empty",
    ),
    # models
    (model("price: free"), "models.m.routes: is required"),
    (model("price: free, routes: []"), "models.m.routes: must have at least 1 entry"),
    (
        model("price: free, routes: [{provider: q, model: x}]"),
        "models.m.routes[0].provider: there is no provider q",
    ),
    (
        'providers: {openai: {base_url: "http://a.example"}}\n'
        "models: {m: {price: free, routes: [{provider: opnai, model: x}]}}",
        "models.m.routes[0].provider: there is no provider opnai; did you mean openai?",
    ),
    (model(f"price: cheap, {ROUTE}"), "models.m.price: must be a mapping or the word free"),
    (model(f"price: {{input: -1, output: 1}}, {ROUTE}"), "models.m.price.input: must not be negative"),
    (model(f"price: {{input: 1}}, {ROUTE}"), "models.m.price: output is missing"),
    (model(f"price: {{}}, {ROUTE}"), "models.m.price: input is missing"),
    (
        model(f"price: {{input: 0.0000000001, output: 1}}, {ROUTE}"),
        "models.m.price.input: must have at most nine decimals",
    ),
    (model(f"price: {{input: .nan, output: 1}}, {ROUTE}"), "models.m.price.input: must be a decimal amount"),
    (model(f"price: {{input: '1,5', output: 1}}, {ROUTE}"), "models.m.price.input: must be a decimal amount"),
    (model(ROUTE), "models.m.price: has no price, and provider p is not in the price catalogue"),
    (model(f"price: free, strategy: random, {ROUTE}"), "models.m.strategy: must be weighted"),
    (model(f"price: free, aliases: [m], {ROUTE}"), "models.m.aliases[0]: m is already the id of models.m"),
    (
        model(f"price: free, aliases: [a, a], {ROUTE}"),
        "models.m.aliases[1]: a is already an alias of models.m",
    ),
    (model(f"price: free, aliases: ['a*'], {ROUTE}"), "models.m.aliases[0]: an alias cannot end in *"),
    (
        model("price: free, routes: [{provider: p, model: 'x*'}]"),
        "models.m.routes[0].model: * stands only in routes",
    ),
    (
        model("price: free, routes: [{provider: p, model: x, weight: -1}]"),
        "models.m.routes[0].weight: must be at least 0",
    ),
    (
        model("price: free, routes: [{provider: p, model: x, weight: 0}]"),
        "at least one route must have a weight above 0",
    ),
    (PROVIDER + f"models: {{'a*b': {{price: free, {ROUTE}}}}}", "may have one * only, at the end"),
    (
        PROVIDER + f"models: {{'a*': {{price: free, aliases: [b], {ROUTE}}}}}",
        "an id that ends in * has no aliases",
    ),
    # accounts and keys
    ("accounts: {a: limited}", "accounts.a: must be a mapping or the word unlimited"),
    ("accounts: {a: {balance_usd: -1}}", "accounts.a.balance_usd: must not be negative"),
    ("keys: {a: b}", "keys: must be a list"),
    (f"keys: [{{{KEY}}}]", "keys[0].name: is required"),
    ("keys: [{name: a}]", "keys[0].key: is required"),
    ("keys: [{name: a, key: tooshort}]", "keys[0].key: must have 16 to 128 characters, has 8"),
    (f"keys: [{{name: a, key: {'x' * 129}}}]", "keys[0].key: must have 16 to 128 characters, has 129"),
    ("keys: [{name: a, key: 'äääääääääääääääääää'}]", "keys[0].key: must be printable ASCII"),
    ('keys: [{name: a, key: "tab\\taaaaaaaaaaaaaaaaa"}]', "keys[0].key: must be printable ASCII"),
    (f"keys: [{{name: a, {KEY}}}, {{name: b, {KEY}}}]", "keys[1].key: is the same as keys[0].key"),
    (
        f"keys: [{{name: a, {KEY}}}, {{name: a, key: bbbbbbbbbbbbbbbb}}]",
        "keys[1].name: a is already the name of keys[0]",
    ),
    (
        f"accounts: {{t: unlimited}}\nkeys: [{{name: a, {KEY}, account: t, balance_usd: 5}}]",
        "keys[0].balance_usd: stands beside account",
    ),
    (f"keys: [{{name: a, {KEY}, account: t}}]", "keys[0].account: there is no account t; there are none"),
    (
        f"accounts: {{a: unlimited}}\nkeys: [{{name: a, {KEY}, balance_usd: 5}}]",
        "keys[0].balance_usd: the key's own account would be a",
    ),
    (f"keys: [{{name: a, {KEY}, rpm: 0}}]", "keys[0].rpm: must be at least 1"),
    (f"keys: [{{name: a, {KEY}, expires_at: tomorrow}}]", "keys[0].expires_at: must be a date or time"),
    (f"keys: [{{name: a, {KEY}, on_limit: wait}}]", "keys[0].on_limit: must be stop or finish"),
]

ROUTES = """
providers: {p: {base_url: "http://127.0.0.1:1"}, q: {base_url: "http://127.0.0.1:1"}}
models:
  a: {price: free, routes: [{provider: p, model: up, rpm: 10, max_streams: 4}, {provider: q, model: up, rpm: 7}]}
"""


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        (
            "rpm: 20, max_streams: 4",
            "models.b.routes[0].rpm: is 20 here and 10 at models.a.routes[0]: both lead to up of p",
        ),
        (
            "rpm: 10",
            "models.b.routes[0].max_streams: is left out here and 4 at models.a.routes[0]: both lead to up of p",
        ),
        (
            "rpm: 10, max_streams: 4, tpm: 5",
            "models.b.routes[0].tpm: is 5 here and left out at models.a.routes[0]",
        ),
        ("rpm: 10, max_streams: 4", None),
    ],
)
def test_one_model_of_one_provider_has_one_limit(tmp_path: Path, route: str, expected: str | None) -> None:
    text = f"{ROUTES}  b: {{price: free, routes: [{{provider: p, model: up, {route}}}]}}\n"
    path = write(tmp_path, text)
    if expected is None:
        load(path, {}, NOW)
        return
    with pytest.raises(ConfigError) as caught:
        load(path, {}, NOW)
    (line,) = caught.value.message.splitlines()
    assert expected in line
    assert line.endswith("which has one limit; give the same in both places")


def test_two_routes_of_one_model_have_one_limit_too(tmp_path: Path) -> None:
    text = """
providers: {p: {base_url: "http://127.0.0.1:1"}}
models:
  m: {price: free, routes: [{provider: p, model: up, tpm: 9}, {provider: p, model: up, priority: 1, tpm: 8}]}
"""
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), {}, NOW)
    assert "models.m.routes[1].tpm: is 8 here and 9 at models.m.routes[0]" in caught.value.message


@pytest.mark.parametrize(("text", "expected"), BAD, ids=[str(index) for index in range(len(BAD))])
def test_what_is_wrong_is_said(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), {}, NOW)
    message = caught.value.message
    assert expected in message
    assert all(line.startswith(str(tmp_path / "sluicegate.yaml")) for line in message.splitlines())


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, "server: {workers: 0, listen: x}\nsever: {}\nretry: {after_send: -1}"), {}, NOW)
    assert len(caught.value.message.splitlines()) == 4


def test_what_an_unset_variable_hides_is_said_beside_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, 'server: {workers: 0}\nkeys: [{name: a, key: "${NOPE}"}]'), {}, NOW)
    unset, bound = caught.value.message.splitlines()
    assert "keys[0].key: the environment variable NOPE is not set" in unset
    assert "server.workers: must be at least 1" in bound


def test_a_wrong_entry_is_not_called_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, model("price: free, routes: [{provider: p, model: x, weight: -1}]")), {}, NOW)
    (line,) = caught.value.message.splitlines()
    assert line.endswith("models.m.routes[0].weight: must be at least 0")


def test_what_is_right_but_hardly_meant_is_warned_of(tmp_path: Path) -> None:
    text = """
providers:
  o: {base_url: "https://api.openai.com"}
  a: {base_url: "https://api.anthropic.com", speaks: [messages], api_key: $ANTHROPIC_API_KEY}
  azure: {base_url: "https://x.openai.azure.com", headers: {api-key: k}}
models:
  m: {price: {input: 0.00000125, output: 10}, routes: [{provider: o, model: x}, {provider: a, model: x}]}
  n: {price: {input: 0.001, output: 0}, routes: [{provider: azure, model: x}]}
"""
    assert sorted(load(write(tmp_path, text), {}, NOW).warnings) == [
        "models.m.price.input: less than 0.001 USD; rates are those of a million tokens, not of one",
        "providers.a.api_key: is taken as it stands; ${NAME}, with braces, takes a variable's value",
        "providers.o.base_url: OpenAI's base URL ends in /v1",
        "providers.o: has no key, and api.openai.com serves nobody without one (`api_key`)",
    ]


def test_a_certificate_of_another_key_is_found(tmp_path: Path) -> None:
    authority = trustme.CA()
    one, other = (authority.issue_cert("localhost") for _ in range(2))
    one.cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    one.private_key_pem.write_to_path(tmp_path / "k.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    right = "server: {tls: {cert_file: c.pem, key_file: k.pem}}\n" + provider("tls: {ca_file: ca.pem}")
    assert load(write(tmp_path, right), {}, NOW)
    other.private_key_pem.write_to_path(tmp_path / "k.pem")
    with pytest.raises(
        ConfigError, match=r"server\.tls\.cert_file: is no PEM certificate that fits key_file"
    ):
        load(write(tmp_path, right), {}, NOW)


def test_a_folder_a_missing_file_and_bytes_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder, not a file"):
        load(tmp_path, {})
    with pytest.raises(ConfigError, match=r"there is no such file; `sluicegate config init`"):
        load(tmp_path / "nope.yaml", {})
    (tmp_path / "bytes.yaml").write_bytes(b"server: \xff\xfe")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 8\)"):
        load(tmp_path / "bytes.yaml", {})
    (tmp_path / "nul.yaml").write_bytes(b"server: \x00")
    with pytest.raises(ConfigError, match="not YAML"):
        load(tmp_path / "nul.yaml", {})


def test_no_message_shows_a_secret(tmp_path: Path) -> None:
    secret = "s3cret-value-that-must-not-leak"
    env = dict.fromkeys((*ENV, "S"), secret)
    for text in (
        DESIGN.replace('listen: "127.0.0.1:4000"', 'listen: "${S}"').replace("workers: 1", 'workers: "${S}"'),
        DESIGN.replace("auth: bearer", "auth: none"),
        provider('api_key: "${S}\\n${S}"'),
        provider('base_url: "https://${S}:${S}@a.example"'),
        provider('proxy: "socks5://${S}@a.example"'),
        provider('headers: {x-key: "${S}\\n"}, api_keys: "${S}"'),
        'store: "mysql://${S}@h"',
        'keys: [{name: a, key: "${S}${S}${S}${S}${S}"}, {name: "a", key: "${S}", rpm: "${S}"}]',
        'billing: {shortfall_limit_usd: "${S}"}',
        'keys: [{name: a, key: "${S}"}, {name: b, key: "${S}"}]',
        'server: "${S}"',
        f"api_key: {secret}",
    ):
        with pytest.raises(ConfigError) as caught:
            load(write(tmp_path, text), env, NOW)
        assert secret not in caught.value.message, text


def test_billion_laughs(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    started = time.monotonic()
    with pytest.raises(ConfigError, match="too large once its aliases are followed"):
        load(write(tmp_path, "\n".join(lines)), {})
    assert time.monotonic() - started < 20


def test_deep_nesting(tmp_path: Path) -> None:
    for depth in (30, 600):
        with pytest.raises(ConfigError, match="nested too deep"):
            load(write(tmp_path, "server: " + "[" * depth + "]" * depth), {})


def test_a_command_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "COMMAND_TIMEOUT_S", 0.3)
    command = json.dumps([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(ConfigError, match=r"providers\.p\.api_key_command: did not end within"):
        load(write(tmp_path, provider(f"api_key_command: {command}")), {}, NOW)


PIECES = st.sampled_from(
    ["{", "}", "[", "]", ":", ",", "&a ", "*a", "<<: ", "null", "- ", "\n", '"', "'", "!!int ", "${", "$", "#", "\t",
     "0", "é", "? ", "|", "---", "%", "true", "-1", "1e999", ".nan", "*", "@", "\x85", "\U0001f600", "models", " "]
)  # fmt: skip


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(0, len(DESIGN)), st.integers(0, 40), PIECES), min_size=1, max_size=4))
def test_a_damaged_file_is_right_or_refused_and_nothing_else(
    tmp_path: Path, cuts: list[tuple[int, int, str]]
) -> None:
    text = DESIGN
    for start, length, piece in cuts:
        text = text[:start] + piece + text[start + length :]
    message = ""
    try:
        load(write(tmp_path, text), ENV, NOW).worker_settings(b"", {})
    except ConfigError as error:
        message = error.message
    assert not [secret for secret in ENV.values() if secret in message]
