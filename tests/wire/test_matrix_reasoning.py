"""Rows of the translation matrix about thinking: efforts, budgets, adaptive thinking, levels."""

from typing import Any

import pytest

from tests.wire.matrix import ABSENT, CHAT, GEMINI, MESSAGES, RESPONSES, Row, check, config, with_tools

# ---- 11: effort, budgets, adaptive thinking -------------------------------------------------------------------------

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
BUDGET_ONLY = {"reasoning": "budget", "max_budget_tokens": 100_000}
ADAPTIVE = {"reasoning": "adaptive", "efforts": ("low", "medium", "high", "xhigh", "max")}
LEVEL = {
    "reasoning": "level",
    "efforts": ("minimal", "low", "medium", "high", "xhigh", "max"),
    "xhigh_effort": True,
}
BY_EFFORT: dict[str, tuple[Any, Any, Any, Any]] = {
    # Messages by effort; Messages by budget, out of 50,000 tokens; Gemini 3; Gemini 2.5
    "none": ("disabled", ABSENT, "MINIMAL", 0),
    "minimal": ("low", 1024, "MINIMAL", 1024),
    "low": ("low", 2048, "LOW", 1024),
    "medium": ("medium", 8192, "MEDIUM", 8192),
    "high": ("high", 24576, "HIGH", 24576),
    "xhigh": ("xhigh", 32768, "XHIGH", 100_000),
    "max": ("max", 48_976, "XHIGH", 100_000),
}


def efforts() -> list[Row]:
    rows = []
    for client in (CHAT, RESPONSES):
        for effort, (adaptive, budget, level, small) in BY_EFFORT.items():
            said: dict[str, Any] = {"reasoning_effort": effort, "max_completion_tokens": 50_000}
            named: tuple[str, ...] = ("reasoning_effort",)
            if client == RESPONSES:
                said, named = {"reasoning": {"effort": effort}, "max_output_tokens": 50_000}, ("reasoning",)
            off = effort == "none"
            thinking = {"type": "disabled"} if off else {"type": "adaptive"}
            shown = {"thinking": thinking, "output_config.effort": ABSENT if off else adaptive}
            rows.append(Row(client, said, MESSAGES, shown, can=ADAPTIVE))
            rows.append(Row(client, said, MESSAGES, {"thinking.budget_tokens": budget}, can=BUDGET_ONLY))
            place = "generationConfig.thinkingConfig"
            told = named if off else ()
            rows.append(Row(client, said, GEMINI, {f"{place}.thinkingLevel": level}, told, LEVEL))
            rows.append(Row(client, said, GEMINI, {f"{place}.thinkingBudget": small}, can=BUDGET_ONLY))
    always = ADAPTIVE | {"reasoning_off": False}
    off = {"reasoning_effort": "none"}
    rows += [
        Row(
            CHAT,
            off,
            MESSAGES,
            {"thinking": ABSENT, "output_config.effort": "low"},
            ("reasoning_effort",),
            always,
        ),
        Row(
            CHAT,
            off,
            GEMINI,
            {"generationConfig.thinkingConfig.thinkingBudget": 128},
            ("reasoning_effort",),
            BUDGET_ONLY | {"reasoning_off": False, "min_budget_tokens": 128},
        ),
        Row(
            CHAT,
            off,
            GEMINI,
            {"generationConfig.thinkingConfig.thinkingLevel": "LOW"},
            ("reasoning_effort",),
            {"reasoning": "level", "efforts": ("low", "high")},
        ),
        Row(
            CHAT,
            {"reasoning_effort": "max"},
            GEMINI,
            {"generationConfig.thinkingConfig.thinkingLevel": "HIGH"},
            can=LEVEL | {"xhigh_effort": False},
        ),
        Row(
            CHAT,
            {"reasoning_effort": "high"},
            MESSAGES,
            {"thinking": ABSENT},
            ("reasoning_effort",),
            {"reasoning": "none"},
        ),
        Row(
            CHAT,
            {"reasoning_effort": "high"},
            MESSAGES,
            "reasoning_effort",
            can={"reasoning": "none"},
            policy="strict",
        ),
        Row(
            CHAT,
            {"reasoning_effort": "low"},
            MESSAGES,
            {"thinking": ABSENT},
            ("reasoning_effort",),
            {"reasoning": "none"},
            "strict",
        ),
        # Visible text only: the budget comes on top; a limit that holds thoughts stays.
        Row(
            CHAT,
            {"reasoning_effort": "medium", "max_tokens": 10_000},
            MESSAGES,
            {"max_tokens": 18_192, "thinking.budget_tokens": 8192},
            can=BUDGET_ONLY,
        ),
        Row(
            CHAT,
            {"reasoning_effort": "medium", "max_completion_tokens": 10_000},
            MESSAGES,
            {"max_tokens": 10_000, "thinking.budget_tokens": 8192},
            can=BUDGET_ONLY,
        ),
        # Summaries.
        Row(
            RESPONSES,
            {"reasoning": {"effort": "low", "summary": "detailed"}},
            GEMINI,
            {"generationConfig.thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True}},
            can=LEVEL,
        ),
        Row(
            RESPONSES,
            {"reasoning": {"effort": "low", "summary": "auto"}},
            MESSAGES,
            {"thinking": {"type": "adaptive", "display": "summarized"}},
            can=ADAPTIVE,
        ),
        Row(
            RESPONSES, {"reasoning": {"effort": "low", "summary": "auto"}}, CHAT, {"reasoning_effort": "low"}
        ),
        Row(
            GEMINI,
            config(thinkingConfig={"includeThoughts": True, "thinkingLevel": "HIGH"}),
            RESPONSES,
            {"reasoning": {"effort": "high", "summary": "auto"}},
        ),
        Row(
            MESSAGES,
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"}},
            RESPONSES,
            {"reasoning": {"effort": "max", "summary": "auto"}},
        ),
        # Manual thinking forbids three things.
        Row(CHAT, {"reasoning_effort": "low", "temperature": 0.5}, MESSAGES, "temperature", can=BUDGET_ONLY),
        Row(
            CHAT,
            with_tools(CHAT, reasoning_effort="low", tool_choice="required"),
            MESSAGES,
            "tool_choice",
            can=BUDGET_ONLY,
        ),
        Row(
            GEMINI,
            {
                "contents": [
                    {"role": "user", "parts": [{"text": "a"}]},
                    {"role": "model", "parts": [{"text": "b"}]},
                ],
                "generationConfig": {"thinkingConfig": {"thinkingBudget": 2048}, "maxOutputTokens": 9000},
            },
            MESSAGES,
            "generationConfig.thinkingConfig",
            can=BUDGET_ONLY,
        ),
    ]
    return rows


@pytest.mark.parametrize("row", efforts(), ids=lambda row: row.id)
def test_s11_effort_to_budgets_and_levels(row: Row) -> None:
    check(row)


BUDGETS = (
    (0, "none"),
    (1, "minimal"),
    (1023, "minimal"),
    (1024, "low"),
    (4095, "low"),
    (4096, "medium"),
    (16383, "medium"),
    (16384, "high"),
    (32767, "high"),
    (32768, "xhigh"),
    (60_000, "xhigh"),
    (-1, ABSENT),
)


@pytest.mark.parametrize(("budget", "effort"), BUDGETS)
def test_s11_budget_to_effort(budget: int, effort: Any) -> None:
    said = config(thinkingConfig={"thinkingBudget": budget})
    check(Row(GEMINI, said, CHAT, {"reasoning_effort": effort}))
    check(Row(GEMINI, said, RESPONSES, {"reasoning.effort": effort}))
    least = {"minimal": "low", "none": ABSENT}.get(str(effort), effort)
    check(Row(GEMINI, said, MESSAGES, {"output_config.effort": least}, can=ADAPTIVE))
    if budget >= 1024:
        thinking = {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": 64_000}
        check(Row(MESSAGES, thinking, CHAT, {"reasoning_effort": effort}))
        check(Row(MESSAGES, thinking, RESPONSES, {"reasoning.effort": effort}))
