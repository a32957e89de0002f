"""What cannot cross from one format to another: the rows of the table in docs/translation.md, each with a request."""

from typing import Any, NamedTuple

from tests.grid.scenes import CLOCK, PNG, Prompt
from tests.grid.speaking import Body, said

OTHERS = ("chat", "responses", "messages", "gemini")


class Cannot(NamedTuple):
    """One row: a thing, the provider formats that have no word for it, and how each client format says it."""

    thing: str
    providers: tuple[str, ...]
    said: dict[str, tuple[Body, str]]
    """Client format: what is added to a plain request, and the field that the 400 names."""


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def _by_prompt(prompt: Prompt, names: dict[str, str]) -> dict[str, tuple[Body, str]]:
    return {client: (said(client, "", prompt, False), name) for client, name in names.items()}


def _config(**fields: Any) -> Body:
    return {"generationConfig": fields}


ROWS = (
    Cannot("tools", ("completions",), _by_prompt(Prompt(tools=(CLOCK,)), dict.fromkeys(OTHERS, "tools"))),
    Cannot(
        "images",
        ("completions",),
        _by_prompt(
            Prompt(image=PNG),
            {
                "chat": "messages[1].content[1]",
                "responses": "input[0].content[1]",
                "messages": "messages[0].content[1]",
                "gemini": "contents[0].parts[1]",
            },
        ),
    ),
    Cannot(
        "structured output",
        ("completions",),
        {
            "chat": (
                {
                    "response_format": {
                        "type": "json_schema",
                        "json_schema": {"name": "a", "schema": SCHEMA},
                    }
                },
                "response_format",
            ),
            "responses": (
                {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
                "text.format",
            ),
            "messages": (
                {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
                "output_config.format",
            ),
            "gemini": (
                _config(responseMimeType="application/json", responseJsonSchema=SCHEMA),
                "generationConfig.responseMimeType",
            ),
        },
    ),
    Cannot(
        "several answers",
        ("responses", "messages"),
        {
            "chat": ({"n": 2}, "n"),
            "completions": ({"n": 2}, "n"),
            "gemini": (_config(candidateCount=2), "generationConfig.candidateCount"),
        },
    ),
    Cannot(
        "bias of tokens",
        ("responses", "messages", "gemini"),
        {
            "chat": ({"logit_bias": {"50256": -100}}, "logit_bias"),
            "completions": ({"logit_bias": {"50256": -100}}, "logit_bias"),
        },
    ),
    Cannot(
        "probabilities",
        ("messages",),
        {
            "chat": ({"logprobs": True, "top_logprobs": 2}, "logprobs"),
            "completions": ({"logprobs": 2}, "logprobs"),
            "responses": ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, "include"),
            "gemini": (
                _config(responseLogprobs=True, logprobs=2),
                "generationConfig.responseLogprobs",
            ),
        },
    ),
    Cannot("more than 32 prompts", OTHERS, {"completions": ({"prompt": ["One"] * 33}, "prompt")}),
    Cannot("prompts of token ids", OTHERS, {"completions": ({"prompt": [1, 2, 3]}, "prompt")}),
    Cannot("text to fill in", OTHERS, {"completions": ({"suffix": " end"}, "suffix")}),
    Cannot("the best of several", OTHERS, {"completions": ({"best_of": 3}, "best_of")}),
    Cannot("echo with probabilities", OTHERS, {"completions": ({"echo": True, "logprobs": 1}, "logprobs")}),
    Cannot(
        "a conversation that the vendor keeps",
        ("chat", "completions", "messages", "gemini"),
        {"responses": ({"previous_response_id": "resp_1"}, "previous_response_id")},
    ),
    Cannot(
        "a cache that the vendor keeps",
        ("chat", "completions", "responses", "messages"),
        {"gemini": ({"cachedContent": "cachedContents/1"}, "cachedContent")},
    ),
    Cannot(
        "a container that the vendor keeps",
        ("chat", "completions", "responses", "gemini"),
        {"messages": ({"container": "container_1"}, "container")},
    ),
)
