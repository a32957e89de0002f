"""What the gate of the SDK tests serves: one model a script, one key a limit."""

from sluicegate.simulator import Answer, Error, Play, Reset, Script, ToolCall

KEY = "sg-sdk-tests-with-plenty-of-credit"
POOR_KEY = "sg-sdk-tests-without-any-credit"
SLOW_KEYS = {sdk: f"sg-sdk-tests-one-{sdk}-request-a-minute" for sdk in ("python", "node")}

TEXT = ("Water", " finds", " its", " level", ".")
PLAIN = Answer(text=TEXT, input_tokens=12, cache_read_tokens=4)
COST_NANO = 8 * 1000 + 4 * 100 + 5 * 2000
"""Of PLAIN under the prices below."""
THOUGHT = Answer(reasoning=("Rivers", " run", " down."), text=TEXT)
CALLS = Answer(
    tool_calls=(
        ToolCall(name="get_level", arguments=('{"river":', ' "Elbe"}')),
        ToolCall(name="get_level", arguments=('{"river": "Oder"}',)),
    ),
    finish="tool_calls",
)
SCRIPTS = {
    "plain": Script(answer=PLAIN),
    "thought": Script(answer=THOUGHT),
    "calls": Script(answer=CALLS),
    "fails": Script(answer=PLAIN, steps=(Play(stop=3), Error(message="The dam broke."))),
    "cut": Script(answer=PLAIN, steps=(Play(stop=3), Reset())),
}

_MODEL = "  {}: {{routes: [{{provider: sim, model: {}}}], price: {{input: 1, cache_read: 0.1, output: 2}}}}"
_SLOW_KEY = '  - {{name: slow-{}, key: "{}", balance_usd: 5, rpm: 1}}'
_CONFIGURATION = """\
server: {{listen: "{{listen}}"}}
admin: {{listen: "{{admin_listen}}"}}
store: "sqlite:///sluicegate.db"
providers:
  sim: {{base_url: "{provider_url}/v1", speaks: [chat], auth: none}}
models:
{models}
keys:
  - {{name: rich, key: "{rich}", balance_usd: 5}}
  - {{name: poor, key: "{poor}", balance_usd: 0}}
{slow_keys}
"""


def configuration(provider_url: str) -> str:
    """Return the gate's configuration, for `run_gate`."""
    return _CONFIGURATION.format(
        provider_url=provider_url,
        models="\n".join(_MODEL.format(name, name) for name in SCRIPTS),
        rich=KEY,
        poor=POOR_KEY,
        slow_keys="\n".join(_SLOW_KEY.format(sdk, key) for sdk, key in SLOW_KEYS.items()),
    )
