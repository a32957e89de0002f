"""Rows of the translation matrix about shapes of answers, stop sequences, limits, sampling, bookkeeping, prefill."""

from typing import Any

import pytest

from sluicegate.messages import Format
from tests.wire.matrix import (
    ABSENT,
    CHAT,
    GEMINI,
    MESSAGES,
    PLAIN,
    RESPONSES,
    SCHEMA,
    SPEAKERS,
    Row,
    check,
    config,
    translate,
    with_tools,
)

# ---- 13: structured output ------------------------------------------------------------------------------------------

SHAPES: dict[str, dict[str, Any]] = {
    CHAT: {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
        }
    },
    RESPONSES: {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}},
    MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    GEMINI: config(responseMimeType="application/json", responseJsonSchema=SCHEMA),
}
SCHEMA_AT = {
    CHAT: "response_format.json_schema.schema",
    RESPONSES: "text.format.schema",
    GEMINI: "generationConfig.responseJsonSchema",
}
WORDS = {
    CHAT: "response_format",
    RESPONSES: "text.format",
    MESSAGES: "output_config.format",
    GEMINI: "generationConfig.responseMimeType",
}


@pytest.mark.parametrize("provider", SPEAKERS)
@pytest.mark.parametrize("client", SPEAKERS)
def test_s13_a_schema_arrives(client: Format, provider: Format) -> None:
    if client == provider:
        return
    if provider == MESSAGES:
        told = translate(client, PLAIN[client] | SHAPES[client], provider).body["output_config"]["format"][
            "schema"
        ]
        assert told["additionalProperties"] is False
        assert told["required"] == ["a"]
        inner = told["properties"]["a"]
        assert "minimum" not in inner, "limits of numbers are refused by the vendor"
        assert "1" in inner["description"]
        return
    check(Row(client, SHAPES[client], provider, {SCHEMA_AT[provider]: SCHEMA}))


@pytest.mark.parametrize("client", SPEAKERS)
def test_s13_without_support_it_is_asked_for_in_words(client: Format) -> None:
    for provider in SPEAKERS:
        if client != provider and provider != GEMINI:
            can = {"response_schema": False, "json_object": False}
            check(Row(client, SHAPES[client], provider, {}, (WORDS[client],), can))
            check(Row(client, SHAPES[client], provider, WORDS[client], can=can, policy="strict"))


SHAPELESS = (
    Row(
        CHAT,
        {"response_format": {"type": "json_object"}},
        GEMINI,
        {
            "generationConfig.responseMimeType": "application/json",
            "generationConfig.responseJsonSchema": ABSENT,
        },
    ),
    Row(
        CHAT,
        {"response_format": {"type": "json_object"}},
        RESPONSES,
        {"text.format": {"type": "json_object"}},
    ),
    Row(
        CHAT,
        {"response_format": {"type": "json_object"}},
        MESSAGES,
        {"output_config": ABSENT},
        ("response_format",),
    ),
    Row(
        GEMINI,
        config(responseMimeType="application/json"),
        CHAT,
        {"response_format": {"type": "json_object"}},
    ),
    Row(CHAT, SHAPES[CHAT] | with_tools(CHAT), GEMINI, "response_format", can={"json_with_tools": False}),
    Row(
        GEMINI,
        config(responseMimeType="text/x.enum", responseSchema={"type": "STRING", "enum": ["a"]}),
        CHAT,
        "generationConfig.responseMimeType",
    ),
)


@pytest.mark.parametrize("row", SHAPELESS, ids=lambda row: row.id)
def test_s13_the_rest(row: Row) -> None:
    check(row)


# ---- 14: stop sequences ---------------------------------------------------------------------------------------------

STOPS: dict[str, str] = {
    CHAT: "stop",
    "completions": "stop",
    MESSAGES: "stop_sequences",
    GEMINI: "generationConfig.stopSequences",
}


def stop_said(client: str, stop: list[str]) -> dict[str, Any]:
    return config(stopSequences=stop) if client == GEMINI else {STOPS[client]: stop}


@pytest.mark.parametrize("client", STOPS)
def test_s14_stop_sequences(client: Format) -> None:
    for provider in SPEAKERS:
        if provider == client:
            continue
        said = stop_said(client, ["END", "\n\n"])
        told = translate(client, PLAIN[client] | said, provider)
        if provider == RESPONSES:
            assert told.cut_at == ["END", "\n\n"]
            assert STOPS[client] in told.named
        elif provider == MESSAGES:
            assert (told.body["stop_sequences"], told.cut_at) == (["END"], ["\n\n"])
            assert STOPS[client] in told.named
        else:
            check(Row(client, said, provider, {STOPS[provider]: ["END", "\n\n"]}))


@pytest.mark.parametrize(("provider", "most"), [(CHAT, 4), (GEMINI, 5), (CHAT, 0)])
def test_s14_too_many_are_cut_here(provider: Format, most: int) -> None:
    client = MESSAGES
    said = PLAIN[client] | {"stop_sequences": list("abcdefg")}
    told = translate(client, said, provider, {"max_stop_sequences": most})
    assert (told.cut_at, told.named) == (list("abcdefg")[most:], ["stop_sequences"])


# ---- 15 to 20, 30: limits, sampling, bookkeeping --------------------------------------------------------------------

SAFE = "safety_identifier"
PREFILLED = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
GEMINI_PREFILLED = {
    "contents": [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"text": "b"}]}]
}
ADDRESS = "ann@example.org"
FIELDS = (
    # 15
    Row(CHAT, {"max_tokens": 70, "max_completion_tokens": 50}, MESSAGES, {"max_tokens": 50}),
    Row(
        MESSAGES,
        {"max_tokens": 50},
        CHAT,
        {"max_completion_tokens": 50, "max_tokens": ABSENT},
        can={"limit_field": "max_completion_tokens"},
    ),
    Row(MESSAGES, {"max_tokens": 50}, CHAT, {"max_tokens": 50, "max_completion_tokens": ABSENT}),
    Row(MESSAGES, {"max_tokens": 50}, RESPONSES, {"max_output_tokens": 50}),
    Row(MESSAGES, {"max_tokens": 50}, GEMINI, {"generationConfig.maxOutputTokens": 50}),
    Row(MESSAGES, {"max_tokens": 50}, "completions", {"max_tokens": 50}),
    Row(MESSAGES, {"max_tokens": 0}, CHAT, "max_tokens"),
    Row(
        GEMINI,
        config(maxOutputTokens=5000),
        CHAT,
        {"max_tokens": 1000},
        ("generationConfig.maxOutputTokens",),
        {"max_output_tokens": 1000},
    ),
    Row(RESPONSES, {"max_tool_calls": 3}, CHAT, {"max_tool_calls": ABSENT}, ("max_tool_calls",)),
    Row(
        RESPONSES,
        {"max_tool_calls": 3, "tools": [{"type": "web_search"}]},
        MESSAGES,
        "max_tool_calls",
        policy="strict",
    ),
    # 16
    Row(CHAT, {"temperature": 1.5}, MESSAGES, {"temperature": 1.0}, ("temperature",)),
    Row(CHAT, {"temperature": 1.5}, GEMINI, {"generationConfig.temperature": 1.5}),
    Row(
        CHAT,
        {"temperature": 0.5},
        MESSAGES,
        {"temperature": ABSENT},
        ("temperature",),
        {"temperature": False},
    ),
    Row(CHAT, {"temperature": 0.5}, MESSAGES, "temperature", can={"temperature": False}, policy="strict"),
    Row(
        MESSAGES,
        {"temperature": 0.5},
        RESPONSES,
        {"temperature": ABSENT},
        ("temperature",),
        {"temperature": False},
    ),
    Row(
        CHAT, {"temperature": 0.5, "top_p": 0.5}, MESSAGES, {"temperature": 0.5, "top_p": ABSENT}, ("top_p",)
    ),
    Row(MESSAGES, {"top_k": 40}, CHAT, {"top_k": ABSENT}, ("top_k",)),
    Row(MESSAGES, {"top_k": 40}, RESPONSES, {"top_k": ABSENT}, ("top_k",)),
    Row(MESSAGES, {"top_k": 40}, GEMINI, {"generationConfig.topK": 40}),
    Row(GEMINI, config(topK=40.0), MESSAGES, {"top_k": 40}),
    # 17
    Row(CHAT, {"n": 2}, GEMINI, {"generationConfig.candidateCount": 2}),
    Row(GEMINI, config(candidateCount=2), CHAT, {"n": 2}),
    Row("completions", {"n": 2}, CHAT, {"n": 2}),
    Row(CHAT, {"n": 2}, "completions", {"n": 2}),
    # 18
    *(
        Row(CHAT, {"seed": 7}, provider, {place: 7})
        for provider, place in (("completions", "seed"), (GEMINI, "generationConfig.seed"))
    ),
    *(Row(CHAT, {"seed": 7}, provider, {"seed": ABSENT}, ("seed",)) for provider in (RESPONSES, MESSAGES)),
    *(Row(CHAT, {"seed": 7}, provider, "seed", policy="strict") for provider in (RESPONSES, MESSAGES)),
    Row(GEMINI, config(seed=7), CHAT, {"seed": 7}),
    Row(
        CHAT,
        {"frequency_penalty": 0.5, "presence_penalty": 1},
        GEMINI,
        {"generationConfig.frequencyPenalty": 0.5, "generationConfig.presencePenalty": 1},
    ),
    *(
        Row(
            CHAT,
            {"frequency_penalty": 0.5, "presence_penalty": 1},
            provider,
            {},
            ("frequency_penalty", "presence_penalty"),
        )
        for provider in (RESPONSES, MESSAGES)
    ),
    *(
        Row(
            CHAT,
            {"frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}},
            provider,
            {"logit_bias": ABSENT},
        )
        for provider in (RESPONSES, MESSAGES, GEMINI)
    ),
    *(
        Row(CHAT, {"logit_bias": {"5": 1}}, provider, "logit_bias")
        for provider in (RESPONSES, MESSAGES, GEMINI)
    ),
    *(
        Row(
            CHAT,
            {"logit_bias": {"5": 1}},
            provider,
            {"logit_bias": ABSENT},
            ("logit_bias",),
            policy="lenient",
        )
        for provider in (RESPONSES, MESSAGES, GEMINI)
    ),
    Row(CHAT, {"logit_bias": {"5": 1}}, "completions", {"logit_bias": {"5": 1}}),
    Row(
        CHAT,
        {"logprobs": True, "top_logprobs": 3},
        RESPONSES,
        {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
    ),
    Row(
        CHAT,
        {"logprobs": True, "top_logprobs": 3},
        GEMINI,
        {"generationConfig.responseLogprobs": True, "generationConfig.logprobs": 3},
    ),
    Row(CHAT, {"logprobs": True, "top_logprobs": 9}, "completions", {"logprobs": 5}, ("top_logprobs",)),
    Row(CHAT, {"logprobs": True}, MESSAGES, "logprobs"),
    Row(CHAT, {"logprobs": True}, MESSAGES, {}, ("logprobs",), policy="lenient"),
    Row("completions", {"logprobs": 4}, CHAT, {"logprobs": True, "top_logprobs": 4}),
    Row(
        RESPONSES,
        {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
        CHAT,
        {"logprobs": True, "top_logprobs": 2},
    ),
    Row(GEMINI, config(responseLogprobs=True, logprobs=2), CHAT, {"logprobs": True, "top_logprobs": 2}),
    Row(GEMINI, config(responseLogprobs=True), MESSAGES, "generationConfig.responseLogprobs"),
    # 19
    *(
        Row(client, {SAFE: "u1", "user": "u2"}, MESSAGES, {"metadata": {"user_id": "u1"}})
        for client in (CHAT, RESPONSES)
    ),
    Row(CHAT, {"user": "u2"}, RESPONSES, {SAFE: "u2"}),
    Row(MESSAGES, {"metadata": {"user_id": "u3"}}, RESPONSES, {SAFE: "u3"}),
    Row(MESSAGES, {"metadata": {"user_id": "u3"}}, CHAT, {"user": "u3"}),
    Row(
        MESSAGES,
        {"metadata": {"user_id": "u3"}},
        GEMINI,
        {"labels": ABSENT},
        ("metadata.user_id",),
        policy="strict",
    ),
    Row(CHAT, {"metadata": {"a": "b"}}, RESPONSES, {"metadata": {"a": "b"}}),
    Row(RESPONSES, {"metadata": {"a": "b"}}, CHAT, {"metadata": {"a": "b"}}),
    *(
        Row(CHAT, {"metadata": {"a": "b"}}, provider, {"metadata": ABSENT}, ("metadata",), policy="strict")
        for provider in (MESSAGES, GEMINI)
    ),
    Row(GEMINI, {"labels": {"a": "b"}}, CHAT, {"labels": ABSENT}, ("labels",), policy="strict"),
    *(
        Row(CHAT, {"prompt_cache_key": "k"}, provider, {"prompt_cache_key": ABSENT}, ("prompt_cache_key",))
        for provider in (MESSAGES, GEMINI)
    ),
    Row(CHAT, {"prompt_cache_key": "k"}, RESPONSES, {"prompt_cache_key": "k"}, can={"prompt_cache": True}),
    # 20
    *(
        Row(CHAT, {"service_tier": tier}, MESSAGES, {"service_tier": told}, named)
        for tier, told, named in (
            ("auto", "auto", ()),
            ("default", "standard_only", ()),
            ("flex", ABSENT, ("service_tier",)),
            ("priority", ABSENT, ("service_tier",)),
            ("scale", ABSENT, ("service_tier",)),
        )
    ),
    Row(CHAT, {"service_tier": "priority"}, MESSAGES, "service_tier", policy="strict"),
    Row(CHAT, {"service_tier": "flex"}, MESSAGES, {}, ("service_tier",), policy="strict"),
    *(
        Row(CHAT, {"service_tier": tier}, GEMINI, {"serviceTier": told})
        for tier, told in (
            ("auto", ABSENT),
            ("default", "standard"),
            ("flex", "flex"),
            ("priority", "priority"),
        )
    ),
    *(
        Row(MESSAGES, {"service_tier": "standard_only"}, provider, {"service_tier": "default"})
        for provider in (CHAT, RESPONSES)
    ),
    Row(MESSAGES, {"speed": "fast"}, CHAT, {"service_tier": ABSENT}, ("speed",)),
    *(
        Row(GEMINI, {"serviceTier": tier}, CHAT, {"service_tier": told})
        for tier, told in (("standard", "default"), ("FLEX", "flex"), ("SERVICE_TIER_PRIORITY", "priority"))
    ),
    # 26, 28, 30
    Row(
        GEMINI,
        {"safetySettings": [{"category": "C", "threshold": "BLOCK_NONE"}]},
        CHAT,
        {},
        ("safetySettings[0].threshold",),
        policy="strict",
    ),
    Row(
        GEMINI,
        {"safetySettings": [{"category": "C", "threshold": "BLOCK_LOW_AND_ABOVE"}]},
        CHAT,
        "safetySettings[0].threshold",
        policy="strict",
    ),
    Row(CHAT, {"moderation": {"a": 1}}, MESSAGES, {}, ("moderation",)),
    Row(RESPONSES, {"store": True}, CHAT, {"store": ABSENT}, ("store",), policy="strict"),
    Row(RESPONSES, {"previous_response_id": "r"}, CHAT, "previous_response_id"),
    Row(RESPONSES, {"prompt": {"id": "p"}}, CHAT, "prompt"),
    Row(MESSAGES, {"container": "c"}, CHAT, "container"),
    Row(GEMINI, {"cachedContent": "c"}, CHAT, "cachedContent"),
    *(
        Row(CHAT, {"verbosity": "low"}, provider, {}, ("verbosity",), policy="strict")
        for provider in (MESSAGES, GEMINI)
    ),
    Row(CHAT, {"verbosity": "low"}, RESPONSES, {"text.verbosity": "low"}),
    Row(RESPONSES, {"text": {"verbosity": "low"}}, CHAT, {"verbosity": "low"}),
    Row(
        CHAT,
        {"prediction": {"type": "content", "content": "a"}},
        MESSAGES,
        {},
        ("prediction",),
        policy="strict",
    ),
    Row(RESPONSES, {"truncation": "auto"}, CHAT, {}, ("truncation",)),
    Row(
        RESPONSES,
        {"reasoning": {"mode": "x", "context": "y"}},
        CHAT,
        {},
        ("reasoning.mode", "reasoning.context"),
    ),
    # 29
    Row(
        CHAT,
        {"modalities": ["text", "audio"], "audio": {"voice": "v", "format": "wav"}},
        GEMINI,
        "modalities",
    ),
    Row(GEMINI, config(responseModalities=["IMAGE"]), CHAT, "generationConfig.responseModalities"),
    # 33
    *(
        Row(
            CHAT,
            dict.fromkeys(("tools", "stop", "tool_choice", "response_format", "user", "seed", "n")),
            provider,
            {"tools": ABSENT, "tool_choice": ABSENT, "metadata": ABSENT},
        )
        for provider in (RESPONSES, MESSAGES, GEMINI)
    ),
    *(
        Row(
            CHAT,
            {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False},
            provider,
            {"tools": ABSENT, "tool_choice": ABSENT, "parallel_tool_calls": ABSENT},
        )
        for provider in (RESPONSES, MESSAGES, GEMINI)
    ),
    # 34
    *(
        Row(client, said, provider, named)
        for provider in (CHAT, RESPONSES)
        for client, said, named in (
            (MESSAGES, PREFILLED, "messages[1]"),
            (GEMINI, GEMINI_PREFILLED, "contents[1]"),
        )
    ),
    Row(
        MESSAGES,
        PREFILLED,
        CHAT,
        {"messages.1": {"role": "assistant", "content": "b"}},
        ("messages[1]",),
        policy="lenient",
    ),
    Row(
        MESSAGES,
        PREFILLED,
        GEMINI,
        {"contents.1": {"role": "model", "parts": [{"text": "b"}]}, "contents.2": ABSENT},
    ),
    Row(MESSAGES, PREFILLED, GEMINI, {"contents.2": ABSENT}, policy="lenient"),
    Row(
        GEMINI,
        GEMINI_PREFILLED,
        MESSAGES,
        {"messages.1": {"role": "assistant", "content": "b"}, "messages.2": ABSENT},
        policy="lenient",
    ),
    Row(GEMINI, GEMINI_PREFILLED, MESSAGES, "contents[1]", can={"prefill": False}),
    Row(CHAT, PREFILLED, MESSAGES, {"messages.1.content": "b", "messages.2": ABSENT}),
    Row(CHAT, PREFILLED, MESSAGES, {"messages.2.content": "Continue."}, ("messages[1]",), policy="lenient"),
    Row(CHAT, PREFILLED, MESSAGES, "messages[1]", can={"prefill": False}),
)


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: row.id)
def test_s15_to_s34_fields(row: Row) -> None:
    check(row)


def test_s19_an_address_is_never_told_as_a_user() -> None:
    told = translate(CHAT, PLAIN[CHAT] | {"user": ADDRESS}, MESSAGES).body["metadata"]["user_id"]
    assert told
    assert "@" not in told


@pytest.mark.parametrize("provider", [CHAT, RESPONSES, MESSAGES, GEMINI])
@pytest.mark.parametrize("client", [MESSAGES, GEMINI])
def test_whole_numbers_stay_whole(client: Format, provider: Format) -> None:
    """Gemini's `topK` is an integer: `2.0` is none."""
    sampling = {"temperature": 1, "top_k": 2} if client == MESSAGES else {"temperature": 1, "topK": 2}
    said = PLAIN[client] | (sampling if client == MESSAGES else config(**sampling))
    body = translate(client, said, provider, {"temperature": True}, "lenient").body
    told = body.get("generationConfig", body)
    numbers = [told[key] for key in ("temperature", "top_k", "topK") if key in told]
    assert numbers
    assert all(type(number) is int for number in numbers), told
