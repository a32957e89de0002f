"""What is played in each cell of the grid: one truth a scene, whatever the formats on both sides.

A scene is what the client wants to say (`Prompt`), what the model answers (`Answer`), and what happens on the way.
"""

from typing import NamedTuple

from sluicegate.messages import Usage
from sluicegate.simulator import Answer, Cuts, Error, Play, Reset, Script, ToolCall
from sluicegate.simulator.script import AnyStep

FORMATS = ("chat", "completions", "responses", "messages", "gemini")

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""One pixel."""
SYSTEM = "Answer briefly."
QUESTION = "Where does water go?"
TEXT = ("Water", " finds", " its", " own", " level", " in", " the", " end", ".")
"""Each piece is one token, to the local tokenizer too."""


class Tool(NamedTuple):
    """A function that the client offers."""

    name: str
    description: str
    parameters: dict[str, object]


LEVEL = Tool(
    "get_level",
    "Level of a river",
    {"type": "object", "properties": {"river": {"type": "string"}}, "required": ["river"]},
)
CLOCK = Tool("get_time", "Time of day", {"type": "object", "properties": {"zone": {"type": "string"}}})
CALLS = (
    ToolCall(name="get_level", arguments=('{"river":', ' "Elbe \\"süd\\""', "}"), id="call_first"),
    ToolCall(name="get_time", arguments=('{"zone": "UTC', '+1"}'), id="call_second"),
)
"""Two at once."""
ODD_CALLS = (
    ToolCall(
        name="get_level",
        arguments=(
            '{"river":"\\u00fc\\ud83c',
            '\\udf0a\\n","n":123456789012345678',
            '90123,"f":2.50,"e":1E-7,',
            '"a":[null,true,{}],"":-0.0}',
        ),
        id="call_odd",
    ),
    ToolCall(name="get_time", arguments=("{}",), id="call_empty"),
)
"""Numbers beyond any machine word, escapes cut in two, and no arguments at all."""
SIGNATURE = "c2lnbmVkLWJ5LXRoZS1zaW11bGF0b3I="


class Prompt(NamedTuple):
    """What the client says, in no format."""

    system: str | None = SYSTEM
    question: str = QUESTION
    image: str | None = None
    tools: tuple[Tool, ...] = ()
    reasoning: bool = False


class Scene(NamedTuple):
    """One column of the grid."""

    answer: Answer
    prompt: Prompt = Prompt()
    streamed: tuple[AnyStep, ...] = ()
    """What is played instead of the whole answer, streamed."""
    plain: tuple[AnyStep, ...] = ()
    """And not streamed."""
    status: int = 200
    """Of the provider's answer."""
    failure: str | None = None
    """Kind of the error that the client must be told."""

    def script(self, stream: bool) -> Script:
        """Return what the simulator plays."""
        message = PROVIDERS_WORDS if self.status >= 400 else None
        steps = self.streamed if stream else self.plain
        return Script(answer=self.answer, steps=steps, status=self.status, message=message)


PROVIDERS_WORDS = "The water is too cold."
"""What the provider says of its errors."""
PLAIN = Answer(text=TEXT, input_tokens=40, cache_read_tokens=12)
_ODD = Answer(
    text=("Grüße", ' "quoted"\\', " 水は低きに", " 🌊🏞️\n", "\u2028 end\t", "."),
    input_tokens=40,
    cache_read_tokens=12,
)

SCENES = {
    "text": Scene(PLAIN),
    "tools": Scene(
        Answer(text=TEXT[:3], tool_calls=CALLS, finish="tool_calls", input_tokens=90),
        Prompt(tools=(LEVEL, CLOCK)),
    ),
    "calls-alone": Scene(
        Answer(tool_calls=CALLS, finish="tool_calls", input_tokens=90), Prompt(tools=(LEVEL, CLOCK))
    ),
    "calls-stop": Scene(
        Answer(tool_calls=CALLS, finish="stop", input_tokens=90), Prompt(tools=(LEVEL, CLOCK))
    ),
    "odd-calls": Scene(
        Answer(tool_calls=ODD_CALLS, finish="tool_calls", input_tokens=90), Prompt(tools=(LEVEL, CLOCK))
    ),
    "reasoning": Scene(
        Answer(reasoning=("Rivers", " run", " down."), signature=SIGNATURE, text=TEXT, input_tokens=40),
        Prompt(reasoning=True),
    ),
    "thought-calls": Scene(
        Answer(
            reasoning=("Two", " calls."),
            signature=SIGNATURE,
            tool_calls=CALLS,
            finish="tool_calls",
            input_tokens=90,
        ),
        Prompt(tools=(LEVEL, CLOCK), reasoning=True),
    ),
    "length": Scene(Answer(text=TEXT[:4], finish="length", input_tokens=40)),
    "refusal": Scene(Answer(refusal=("I", " must", " decline", "."), input_tokens=40)),
    "blocked": Scene(Answer(text=TEXT[:2], finish="content_filter", input_tokens=40)),
    "image": Scene(PLAIN, Prompt(image=PNG)),
    "cached": Scene(
        Answer(
            reasoning=("Rivers", " run", " down."),
            text=TEXT,
            input_tokens=5600,
            cache_read_tokens=4000,
            cache_write_tokens=600,
            output_tokens=300,
            reasoning_tokens=180,
        ),
        Prompt(reasoning=True),
    ),
    "usage-absent": Scene(Answer(text=TEXT, usage="never")),
    "odd-cuts": Scene(
        _ODD, streamed=(Cuts(every=3, gap_s=0), Play()), plain=(Cuts(every=3, gap_s=0), Play())
    ),
    "error-400": Scene(PLAIN, status=400, failure="bad_request"),
    "error-401": Scene(PLAIN, status=401, failure="upstream_auth"),
    "error-429": Scene(PLAIN, status=429, failure="rate_limited"),
    "error-500": Scene(PLAIN, status=500, failure="upstream_error"),
    "error-503": Scene(PLAIN, status=503, failure="overloaded"),
    "error-inside": Scene(
        PLAIN,
        streamed=(Play(stop=6), Error(status=500, message=PROVIDERS_WORDS)),
        plain=(Error(status=500, message=PROVIDERS_WORDS),),
        failure="upstream_error",
    ),
    "cut": Scene(
        PLAIN, streamed=(Play(stop=6), Reset()), plain=(Play(stop=1), Reset()), failure="upstream_error"
    ),
}


def refused(client: str, provider: str, prompt: Prompt) -> str | None:
    """Return why a cell cannot be: the field that the 400 must name. See `cannot`."""
    if client != "completions" and provider == "completions":
        if prompt.tools:
            return "tools"
        if prompt.image:
            return "parts[1]" if client == "gemini" else "content[1]"
    return None


def sayable(client: str, prompt: Prompt) -> bool:
    """Whether the client's format has words for the prompt at all."""
    return client != "completions" or not (prompt.tools or prompt.image or prompt.reasoning)


class Truth(NamedTuple):
    """What a client must have heard."""

    text: str
    reasoning: str
    refusal: str
    calls: list[tuple[str, str]]
    finish: str
    usage: Usage


def truth(client: str, provider: str, answer: Answer) -> Truth:
    """Return the truth as far as both formats have words for it."""
    text, refusal, reasoning = map("".join, (answer.text, answer.refusal, answer.reasoning))
    finish: str = "tool_calls" if answer.tool_calls else answer.finish  # whatever the provider's word was
    if refusal and (client == "completions" and provider in ("chat", "responses")):
        finish = "content_filter"  # the format's only word for it
    if not {client, provider} <= {"chat", "responses"}:
        text, refusal = text + refusal, ""
    if "completions" in (client, provider):
        reasoning = ""
    calls = [(call.name, call.joined()) for call in answer.tool_calls]
    return Truth(text, reasoning, refusal, calls, finish, answer.truth())
