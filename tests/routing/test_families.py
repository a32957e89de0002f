"""What is known of a model by its id, and the spellings that its id may have."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.capabilities import EFFORTS, Capabilities
from sluicegate.messages import Format
from sluicegate.routing.families import FAMILIES, FORMATS, capabilities_of, hides_reasoning, plain_id

CHANGES: list[tuple[Format, str, dict[str, Any]]] = [
    # OpenAI
    ("chat", "gpt-4o", {"limit_field": "max_completion_tokens", "reasoning": "none", "max_output_tokens": 16_384}),
    ("chat", "gpt-4o-mini-2024-07-18", {"developer_role": True, "images": True, "response_schema": True}),
    ("chat", "gpt-4o-2024-05-13", {"response_schema": False, "max_output_tokens": 4096}),
    ("chat", "gpt-4o-audio-preview", {"audio": True, "images": False}),
    ("chat", "ft:gpt-4.1-mini-2025-04-14:org::id", {"max_output_tokens": 32_768, "temperature": True}),
    ("chat", "gpt-3.5-turbo", {"images": False, "response_schema": False, "tools": True}),
    ("chat", "gpt-4-0613", {"json_object": False, "max_output_tokens": 8192}),
    ("completions", "gpt-3.5-turbo-instruct", {"tools": False, "limit_field": "max_tokens", "max_output_tokens": 4096}),
    ("completions", "claude-opus-5", {"reasoning": "none", "response_schema": False, "temperature": False}),
    ("chat", "gpt-4-turbo-2024-04-09", {"images": True, "response_schema": False}),
    ("chat", "o1", {"temperature": False, "parallel_tools": False, "reasoning": "effort", "images": True}),
    ("chat", "o3-mini", {"images": False, "max_stop_sequences": 4}),
    ("chat", "o3-2025-04-16", {"max_stop_sequences": 0, "efforts": ("low", "medium", "high")}),
    ("chat", "gpt-5", {"temperature": False, "custom_tools": True, "reasoning_off": False}),
    ("chat", "gpt-5-mini-2025-08-07", {"efforts": ("minimal", "low", "medium", "high")}),
    ("chat", "gpt-5-pro", {"efforts": ("high",), "max_output_tokens": 272_000}),
    ("chat", "gpt-5-chat-latest", {"temperature": True, "reasoning": "none"}),
    ("chat", "gpt-5-1", {"reasoning_off": True, "efforts": ("none", "low", "medium", "high")}),
    ("responses", "gpt-5.2-2025-12-11", {"efforts": ("none", "low", "medium", "high", "xhigh")}),
    ("responses", "openai/gpt-5.6-sol", {"prompt_cache": True, "max_output_tokens": None}),
    ("chat", "gpt-6.1-terra", {"limit_field": "max_completion_tokens", "prompt_cache": True}),
    ("chat", "gpt-5.5", {"prompt_cache": False}),
    ("chat", "openai/gpt-oss-120b", {"limit_field": "max_tokens", "images": False, "reasoning_off": False}),
    # Anthropic
    ("messages", "claude-2.1", {"tools": False, "images": False}),
    ("messages", "claude-3-haiku-20240307", {"reasoning": "none", "max_output_tokens": 4096, "prefill": True}),
    ("messages", "claude-3-5-sonnet-20241022", {"reasoning": "none", "max_output_tokens": 8192, "files": True}),
    ("messages", "claude-3-7-sonnet-latest", {"reasoning": "budget", "max_output_tokens": 64_000}),
    ("messages", "claude-opus-4-1-20250805", {"reasoning": "budget", "max_output_tokens": 32_000}),
    ("messages", "claude-sonnet-4@20250514", {"reasoning": "budget", "response_schema": False}),
    ("messages", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", {"reasoning": "budget", "strict_tools": True}),
    ("messages", "claude-haiku-4-5", {"prefill": True, "temperature": True, "max_output_tokens": 64_000}),
    ("messages", "anthropic/claude-opus-4.6", {"reasoning": "adaptive", "prefill": False, "temperature": True}),
    ("messages", "claude-sonnet-4-6", {"max_output_tokens": 64_000}),
    ("messages", "claude-opus-4-7", {"temperature": False, "mid_system": False, "reasoning_off": True}),
    ("messages", "claude-opus-4-8", {"mid_system": True, "temperature": False, "reasoning_off": True}),
    ("messages", "claude-opus-5", {"mid_system": True, "reasoning_off": True, "forced_tools": True}),
    ("messages", "claude-sonnet-5-20260601", {"reasoning_off": True, "forced_tools": True}),
    ("messages", "claude-opus-5-5", {"reasoning_off": False, "forced_tools": False}),
    ("messages", "anthropic/claude-sonnet-5.5", {"reasoning_off": False, "forced_tools": False}),
    ("messages", "claude-fable-5", {"reasoning_off": False, "forced_tools": True}),
    ("messages", "claude-sonata-7", {"reasoning": "adaptive", "reasoning_off": False, "temperature": False}),
    ("messages", "claude-fable-5-1", {"reasoning_off": False, "forced_tools": False, "prefill": False}),
    ("messages", "claude-mythos-preview", {"reasoning": "adaptive", "temperature": False}),
    ("messages", "claude-haiku-5-5", {"reasoning_off": True, "temperature": False, "prefill": False}),
    ("chat", "anthropic/claude-4.5-sonnet", {"max_temperature": 1.0, "json_object": False}),
    ("chat", "gpt-4o-mini-search-preview", {"web_search": True, "limit_field": "max_completion_tokens"}),
    ("chat", "gpt-5-search-api", {"web_search": True}),
    ("chat", "gpt-4o-mini", {"web_search": False}),
    ("chat", "perplexity/sonar-pro", {"web_search": True}),
    # Google
    ("gemini", "gemini-2.0-flash", {"reasoning": "none", "json_with_tools": False, "signed_calls": False}),
    ("gemini", "models/gemini-2.5-pro", {"reasoning": "budget", "reasoning_off": False, "min_budget_tokens": 128}),
    ("gemini", "gemini-2.5-flash", {"reasoning_off": True, "max_budget_tokens": 24_576}),
    ("gemini", "gemini-2.5-flash-lite", {"min_budget_tokens": 512}),
    ("gemini", "gemini-3-pro-preview", {"reasoning": "level", "signed_calls": True, "efforts": ("low", "high")}),
    ("gemini", "gemini-2.5-flash-image", {"native_images": True, "image_sizes": (), "reasoning": "none"}),
    ("gemini", "gemini-3-pro-image-preview", {"native_images": True, "image_sizes": ("1K", "2K", "4K")}),
    ("gemini", "gemini-nano-banana-2.1", {"native_images": True, "tools": False}),
    ("gemini", "gemini-3.1-flash-image", {"native_images": True, "image_sizes": ("512", "1K", "2K", "4K")}),
    ("gemini", "gemini-3.5-flash", {"reasoning_off": False, "images_in_results": True}),
    ("gemini", "gemini-3.1-flash-lite", {"efforts": ("minimal", "low", "medium", "high")}),
    ("gemini", "gemini-3.8-flash", {"efforts": ("low", "medium", "high")}),
    ("gemini", "gemini-4-argon", {"signed_calls": True, "max_output_tokens": None}),
    ("gemini", "gemini-flash-latest", {"reasoning": "level"}),
    ("gemini", "gemma-3-27b-it", {"tools": False}),
    # others
    ("chat", "deepseek-v4-pro", {"reasoning_in_history": True, "response_schema": False, "images": False}),
    ("chat", "deepseek-v4.1-flash", {"forced_tools": False, "efforts": ("none", "low", "high", "max")}),
    ("chat", "deepseek-v4-flash-vision-exp", {"images": True, "files": False}),
    ("chat", "deepseek-ai/DeepSeek-R1-0528", {"reasoning_in_history": False, "reasoning_off": False}),
    ("chat", "accounts/fireworks/models/deepseek-v3p2", {"reasoning_in_history": True, "forced_tools": True}),
    ("chat", "deepseek-v3-0324", {"reasoning": "none"}),
    ("messages", "deepseek-v4-flash", {"reasoning": "budget"}),
    ("chat", "accounts/fireworks/models/kimi-k2p5", {"temperature": False, "reasoning_in_history": True}),
    ("chat", "glm-4.6", {"images": False, "forced_tools": False}),
    ("chat", "glm-4.6v", {"images": True}),
    ("chat", "qwen/qwen3-32b", {"images": False, "reasoning": "effort"}),
    ("chat", "qwen2.5-vl-72b-instruct", {"images": True}),
    ("chat", "qwen3.6-plus", {"images": True}),
    ("chat", "mistral-large-latest", {"reasoning": "none", "images": True, "max_temperature": 1.5}),
    ("chat", "codestral-2508", {"images": False}),
    ("chat", "llama-3.3-70b-versatile", {"images": False, "reasoning": "none"}),
    ("chat", "llama-3.2-90b-vision-preview", {"images": True}),
    ("chat", "meta-llama/llama-4-scout-17b-16e-instruct", {"images": True, "files": False}),
    ("chat", "grok-4.5", {"output_excludes_reasoning": True, "max_stop_sequences": 0}),
    ("chat", "grok-4-0709", {"reasoning": "none"}),
    ("chat", "x-ai/grok-4-fast-non-reasoning", {"reasoning": "none", "max_stop_sequences": 4}),
    ("chat", "grok-3-mini", {"efforts": ("low", "high")}),
]  # fmt: skip


@pytest.mark.parametrize(("spoken", "upstream_id", "expected"), CHANGES)
def test_what_is_known_of_a_model(spoken: Format, upstream_id: str, expected: dict[str, Any]) -> None:
    known = capabilities_of(upstream_id, spoken)
    assert {name: getattr(known, name) for name in expected} == expected


@pytest.mark.parametrize("spoken", get_args(Format))
@pytest.mark.parametrize(
    "upstream_id", ["my-model", "local", "o-what", "gpt", "claudette", "*", "", "a/b/", "gpt-4o-" + "x" * 300]
)
def test_an_unknown_model_is_any_model_of_its_format(spoken: Format, upstream_id: str) -> None:
    assert capabilities_of(upstream_id, spoken) == FORMATS[spoken]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.ids.pattern)
def test_every_fact_is_a_capability(family: Any) -> None:
    """What the table says decodes as strictly as what a configuration says."""
    made = msgspec.structs.replace(Capabilities(), **family.facts)
    assert msgspec.convert(msgspec.to_builtins(made), Capabilities, strict=True) == made
    assert made.min_budget_tokens <= made.max_budget_tokens
    assert made.reasoning == "none" or set(made.efforts) - {"none"}


def test_no_row_stands_in_the_shadow_of_another() -> None:
    """Every row is the one that counts for at least one id of the cases."""
    counting = {
        next(family.ids.pattern for family in FAMILIES if family.ids.fullmatch(plain_id(upstream_id)))
        for _, upstream_id, _ in CHANGES + SHADOWED
    }
    assert {family.ids.pattern for family in FAMILIES} == counting


SHADOWED: list[tuple[Format, str, dict[str, Any]]] = [
    ("chat", name, {})
    for name in (
        "o1-mini", "gpt-5.4-pro", "gpt-5-codex", "gpt-5.1-codex-max", "kimi-k2-0905-preview",
        "moonshot-v1-8k", "magistral-small",
        "pixtral-12b", "mistral-small-2603", "qwen2.5-7b", "gemini-3.1-pro-preview", "grok-2-vision", "grok-3",
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("upstream_id", "plain"),
    [
        ("claude-3-5-sonnet-20241022", "claude-sonnet-3.5-20241022"),
        ("anthropic.claude-opus-4-6-v1:0", "claude-opus-4.6-v1:0"),
        ("claude-4.5-haiku@20251001", "claude-haiku-4.5@20251001"),
        ("claude-opus-4-20250514", "claude-opus-4-20250514"),
        ("GPT-5-2-2025-12-11", "gpt-5.2-2025-12-11"),
        ("gpt-5-2025-08-07", "gpt-5-2025-08-07"),
        ("gpt-4-32k", "gpt-4-32k"),
        ("meta-llama/llama-3-8b-chat-hf", "llama-3-8b-chat-hf"),
        ("accounts/fireworks/models/qwen3p8-max", "qwen3.8-max"),
        ("grok-4-0709", "grok-4-0709"),
        ("publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"),
    ],
)
def test_spellings(upstream_id: str, plain: str) -> None:
    assert plain_id(upstream_id) == plain


@given(st.text(max_size=40), st.sampled_from(get_args(Format)))
def test_any_id_has_capabilities(upstream_id: str, spoken: Format) -> None:
    assert isinstance(capabilities_of(upstream_id, spoken), Capabilities)


@pytest.mark.parametrize(
    ("efforts", "wanted", "nearest"),
    [
        (("low", "medium", "high"), "minimal", "low"),
        (("low", "medium", "high"), "max", "high"),
        (("low", "medium", "high", "max"), "xhigh", "high"),
        (("low", "high", "max"), "medium", "low"),
        (("none", "high"), "low", "high"),
        (("none", "low"), "none", "none"),
        (("low",), "none", "none"),
        (EFFORTS, "xhigh", "xhigh"),
        (("none",), "high", "high"),
        (("low",), "ultra", "ultra"),
    ],
)
def test_the_nearest_effort(efforts: Any, wanted: str, nearest: str) -> None:
    assert Capabilities(efforts=efforts).nearest_effort(wanted) == nearest


@pytest.mark.parametrize(
    "name",
    [
        "o3",
        "o4-mini",
        "gpt-5-mini",
        "openai/gpt-5.6-sol",
        "gemini-2.5-pro",
        "gemini-4-argon",
        "claude-opus-4-7",
        "claude-opus-5",
        "claude-fable-5-1",
        "us.anthropic.claude-sonnet-5-5-v1:0",
        "gpt-5-2",
    ],
)
def test_families_that_hide_reasoning(name: str) -> None:
    assert hides_reasoning(name)


@pytest.mark.parametrize(
    "name",
    [
        "gpt-4o",
        "gpt-4.1",
        "gemini-2.0-flash",
        "claude-sonnet-4-5",
        "claude-3-7-sonnet-latest",
        "claude-opus-4-20250514",
        "llama-3",
        "ollama",
        "gpt-oss-20b",
    ],
)
def test_families_that_do_not(name: str) -> None:
    assert not hides_reasoning(name)
