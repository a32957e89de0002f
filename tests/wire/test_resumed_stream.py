"""What goes back to a Messages provider is what it sent, and what later calls bring stands behind what came before."""

import json
from typing import Any

import pytest

from sluicegate.messages import (
    Citation,
    Finish,
    Message,
    Pause,
    Request,
    StreamEvent,
    Text,
    TextDelta,
    Untold,
)
from sluicegate.wire.anthropic_record import AnswerRecord
from sluicegate.wire.resumed_stream import resumed_events
from sluicegate.wire.resumption import anthropic_resumption, gemini_resumption
from tests.wire.openai_world import decoded

BLOCKS: list[Any] = [
    {"type": "thinking", "thinking": "Hm \\" + "\u2028", "signature": "U0lH/+="},
    {"type": "redacted_thinking", "data": "RU5D"},
    {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "é", "n": 10**30},
    },
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {"type": "web_search_result", "url": "https://a.b", "encrypted_content": "x", "new": 1.50}
        ],
        "unknown": None,
    },
    {
        "type": "text",
        "text": "Rivers rise.",
        "citations": [{"type": "web_search_result_location", "url": "https://a.b", "encrypted_index": "e"}],
    },
]


def events_of(blocks: list[Any]) -> list[dict[str, Any]]:
    """Return a stream that says these blocks in pieces, and pauses."""
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {"id": "m", "role": "assistant", "content": [], "container": None},
        }
    ]
    for index, block in enumerate(blocks):
        deltas: list[dict[str, Any]] = []
        start = dict(block)
        match block["type"]:
            case "text":
                start |= {"text": "", "citations": []}
                deltas += [{"type": "citations_delta", "citation": one} for one in block.get("citations", ())]
                deltas += [{"type": "text_delta", "text": piece} for piece in _halves(block["text"])]
            case "thinking":
                start |= {"thinking": "", "signature": ""}
                deltas += [
                    {"type": "thinking_delta", "thinking": piece} for piece in _halves(block["thinking"])
                ]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "server_tool_use":
                start["input"] = {}
                pieces = _halves(json.dumps(block["input"]))
                deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": "pause_turn", "container": {"id": "container_1"}}
    return [*events, {"type": "message_delta", "delta": delta}, {"type": "message_stop"}]


def _halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def framed(events: list[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)


@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_s24_a_streamed_turn_goes_back_as_it_came(size: int) -> None:
    record, data = AnswerRecord(), framed(events_of(BLOCKS))
    for at in range(0, len(data), size):
        record.take(data[at : at + size])
    told = record.content()
    assert told is not None
    assert [json.loads(block) for block in told] == BLOCKS
    assert b'"new": 1.5' in told[3], "untouched blocks keep their spelling"
    assert record.container == "container_1"


def test_s24_a_plain_turn_goes_back_as_it_came() -> None:
    record = AnswerRecord()
    record.take_whole(json.dumps({"content": [*BLOCKS, {"type": "text", "text": ""}]}, indent=1).encode())
    told = record.content()
    assert told is not None
    assert [json.loads(block) for block in told] == BLOCKS, (
        "and an empty text, which no request may hold, does not"
    )


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "message_start", "message": {"container": {"id": float("inf")}}},
    ],
)
def test_what_has_no_place_in_a_block_is_not_sent_back_by_halves(event: dict[str, Any]) -> None:
    record = AnswerRecord()
    events = events_of(BLOCKS)
    record.take(framed([*events[:2], event, *events[2:]]).replace(b"Infinity", b"1e999"))
    assert record.content() is None


@pytest.mark.parametrize("block", [b'{"type":"text","text":1e999}', b"1", b'{"type":1e999}'])
def test_a_plain_turn_whose_blocks_are_none_is_not_sent_back(block: bytes) -> None:
    record = AnswerRecord()
    record.take_whole(b'{"content":[%b]}' % block)
    assert record.content() in (None, [block])


def request(**fields: Any) -> Request:
    return Request(model="m", messages=[Message(role="user", parts=[Text(text="Hi")])], **fields)


def test_only_what_may_be_paused_is_kept() -> None:
    body = b'{"messages":[{}],"max_tokens":100}'
    assert anthropic_resumption(body, request()) is None
    assert anthropic_resumption(body, request(web_search={})) is not None
    assert gemini_resumption(b"{}", request(choices=2)) is None


@pytest.mark.parametrize(("used", "limit"), [(0, 3000), (500, 2500), (976, None), (5000, None)])
def test_the_limit_holds_for_all_calls_and_stays_above_the_thinking_budget(
    used: int, limit: int | None
) -> None:
    thinking = {"type": "enabled", "budget_tokens": 2024}
    body = json.dumps({"messages": [{}], "max_tokens": 3000, "thinking": thinking}).encode()
    resumption = anthropic_resumption(body, request(web_search={}))
    assert resumption is not None
    resumption.take_whole(json.dumps({"content": [{"type": "text", "text": "a"}]}).encode())
    following = resumption.next_body(Pause(), used)
    assert (None if following is None else json.loads(following)["max_tokens"]) == limit


def gemini(*candidates: dict[str, Any]) -> list[StreamEvent]:
    return decoded(
        [b"data: %b\n\n" % json.dumps({"candidates": [one]}).encode() for one in candidates], "gemini"
    )


def test_s25_sources_of_a_later_call_stand_at_their_place_in_the_whole_text() -> None:
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://a.b", "title": "A"}}],
        "groundingSupports": [{"segment": {"startIndex": 2, "endIndex": 4}, "groundingChunkIndices": [0]}],
    }
    first = gemini(
        {"content": {"parts": [{"text": "zwölf "}]}},
        {"finishReason": "CONTINUATION", "continuationToken": "dA=="},
    )
    second = gemini(
        {"content": {"parts": [{"text": "é rise"}]}, "groundingMetadata": grounding, "finishReason": "STOP"}
    )
    told = resumed_events([first, second])
    assert [event.text for event in told if isinstance(event, TextDelta)] == ["zwölf ", "é rise"]
    assert [event for event in told if isinstance(event, Citation)] == [Citation("https://a.b", "A", 7, 9)]
    assert [event.raw_reason for event in told if isinstance(event, Finish)] == ["STOP"]


def test_who_goes_on_with_nothing_names_the_pause() -> None:
    broken = gemini({"content": {"parts": [{"text": "a"}]}, "finishReason": "CONTINUATION"})
    assert [event.what for event in broken if isinstance(event, Untold)] == ["CONTINUATION"]


def test_a_token_that_came_before_the_finish_counts() -> None:
    told = gemini(
        {"content": {"parts": [{"text": "a"}]}, "continuationToken": "b2xk"},
        {"content": {"parts": [{"text": "b"}]}, "continuationToken": "bmV3"},
        {"finishReason": "CONTINUATION"},
    )
    (finish,) = (event for event in told if isinstance(event, Finish))
    assert finish.pause == Pause("bmV3", 2)
