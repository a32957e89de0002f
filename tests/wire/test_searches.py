"""Odd searches of the web: failed ones, ones whose result comes with a later call, pages that were opened."""

import json
from typing import Any

import pytest

from sluicegate.messages import Finish, StreamEvent, TextDelta, Untold, UsageReport, WebSearch
from sluicegate.wire.anthropic_searches import search_blocks
from sluicegate.wire.resumed_stream import resumed_events
from tests.wire.openai_world import decoded
from tests.wire.test_resumed_stream import framed, gemini

NAMES = ("server_tool_use", "web_search_tool_result")
USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rivers"}}
FOUND = [{"type": "web_search_result", "url": "https://a.b", "title": "A", "encrypted_content": "x"}]


def messages(*blocks: dict[str, Any], reason: str = "end_turn") -> list[StreamEvent]:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}}
    ]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
    return decoded([framed([*events, {"type": "message_stop"}])], "messages")


def result(content: Any) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": content}


def searches(events: list[StreamEvent]) -> list[WebSearch]:
    return [event for event in events if isinstance(event, WebSearch)]


def test_a_search_that_failed_is_told_as_that() -> None:
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    assert searches(messages(USE, result(error))) == [WebSearch(("rivers",), failed=True, names=NAMES)]


def test_a_search_without_a_result_is_told_at_the_end() -> None:
    events = messages(USE, {"type": "text", "text": "I know."})
    assert searches(events) == [WebSearch(("rivers",), names=NAMES[:1])]
    assert isinstance(events[-2], Finish)


def test_a_search_whose_result_comes_with_the_next_call_is_told_with_both() -> None:
    paused = messages(USE, reason="pause_turn")
    told = resumed_events([paused, messages(result(FOUND), {"type": "text", "text": "Rise."})])
    assert searches(told) == [
        WebSearch(("rivers",), names=NAMES[:1]),
        WebSearch((), (("https://a.b", "A"),), names=NAMES[1:]),
    ]
    assert not [event for event in told if isinstance(event, Untold)]


@pytest.mark.parametrize("content", [None, "x", [1], [{"url": 5}]])
def test_results_of_no_known_shape_are_failed_ones(content: Any) -> None:
    assert searches(messages(USE, result(content))) == [WebSearch(("rivers",), failed=True, names=NAMES)]


def test_other_hosted_tools_are_named() -> None:
    code = {"type": "server_tool_use", "id": "s", "name": "code_execution", "input": {}}
    assert [e.what for e in messages(code) if isinstance(e, Untold)] == ["server_tool_use"]


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ({"type": "search", "query": "a"}, [WebSearch(("a",), names=("web_search_call",))]),
        ({"type": "search", "queries": ["a", "b"]}, [WebSearch(("a", "b"), names=("web_search_call",))]),
        ({"type": "open_page", "url": "https://a.b"}, [Untold("web_search_call")]),
        ({"type": "search", "query": 5}, [Untold("web_search_call")]),
        (None, [WebSearch((), names=("web_search_call",))]),
    ],
)
def test_items_of_responses(action: Any, told: list[StreamEvent]) -> None:
    item = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": action}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    response = {"id": "r", "status": "completed", "output": [item], "usage": usage}
    event = {"type": "response.completed", "response": response}
    events = decoded([b"data: %b\n\n" % json.dumps(event).encode()], "responses")
    assert [event for event in events if isinstance(event, WebSearch | Untold)] == told
    (report,) = [event for event in events if isinstance(event, UsageReport)]
    assert report.usage.web_searches == (1 if isinstance(told[0], WebSearch) else None)


def test_searches_of_gemini_are_told_once_and_behind_the_text() -> None:
    grounding = {
        "webSearchQueries": ["a"],
        "groundingChunks": [{"web": {"uri": "https://a.b", "title": "A"}}],
    }
    more = grounding | {"webSearchQueries": ["a", "b"]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    payloads: list[dict[str, Any]] = [
        {"candidates": [{"content": {"parts": [{"text": "x"}]}, "groundingMetadata": grounding}]},
        {"candidates": [{"content": {"parts": [{"text": "y"}]}}], "usageMetadata": usage},
        {"candidates": [{"finishReason": "STOP", "groundingMetadata": grounding}]},
        {"candidates": [{"groundingMetadata": more}]},
    ]
    events = decoded([b"data: %b\n\n" % json.dumps(one).encode() for one in payloads], "gemini")
    found = (("https://a.b", "A"),)
    names = ("webSearchQueries",)
    assert searches(events) == [WebSearch(("a",), found, names=names), WebSearch(("b",), found, names=names)]
    assert max(at for at, event in enumerate(events) if isinstance(event, TextDelta)) < events.index(
        searches(events)[0]
    )
    reports = [event.usage.web_searches for event in events if isinstance(event, UsageReport)]
    assert reports == [1, 2]


def test_grounding_without_a_search_is_none() -> None:
    assert not searches(gemini({"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP",
                                "groundingMetadata": {"retrievalMetadata": {}}}))  # fmt: skip


def test_blocks_for_messages_are_a_use_and_a_result_for_each_query() -> None:
    blocks = search_blocks(WebSearch(("a", 'b"'), (("https://a.b", "A"),)), "0_1")
    kinds = [json.loads(block)["type"] for block, _ in blocks]
    assert kinds == ["server_tool_use", "web_search_tool_result"] * 2
    assert json.loads(blocks[2][1]) == {"query": 'b"'}
    assert [len(json.loads(blocks[at][0])["content"]) for at in (1, 3)] == [0, 1]
    failed = search_blocks(WebSearch(("a",), failed=True), "0_1")
    assert json.loads(failed[1][0])["content"]["type"] == "web_search_tool_result_error"
