"""Rows of the translation matrix about what answers tell beside text: the tier that served, probabilities, sources."""

import json
from typing import Any

import msgspec
import pytest

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Format
from sluicegate.wire import Bill
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.translated_answer import TranslatedAnswer
from tests.wire.matrix import CHAT, GEMINI, MESSAGES, RESPONSES, SPEAKERS, look
from tests.wire.openai_world import ASKED

Body = dict[str, Any]
TEXT = "Flüsse steigen."
URL, TITLE = "https://a.example/", "A"
SOURCED: dict[str, Body] = {
    CHAT: {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "up",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {
                    "role": "assistant",
                    "content": TEXT,
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url_citation": {"start_index": 0, "end_index": 6, "url": URL, "title": TITLE},
                        }
                    ],
                },
                "logprobs": {
                    "content": [
                        {"token": "Flü", "logprob": -0.5, "bytes": [70, 108, 195, 188], "top_logprobs": []}
                    ]
                },
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
        "service_tier": "flex",
    },
    RESPONSES: {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "up",
        "status": "completed",
        "service_tier": "flex",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {
                        "type": "output_text",
                        "text": TEXT,
                        "annotations": [
                            {
                                "type": "url_citation",
                                "start_index": 0,
                                "end_index": 6,
                                "url": URL,
                                "title": TITLE,
                            }
                        ],
                        "logprobs": [
                            {
                                "token": "Flü",
                                "logprob": -0.5,
                                "bytes": [70, 108, 195, 188],
                                "top_logprobs": [],
                            }
                        ],
                    }
                ],
            }
        ],
        "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
    },
    MESSAGES: {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "up",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "content": [
            {
                "type": "text",
                "text": TEXT,
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "url": URL,
                        "title": TITLE,
                        "cited_text": "x",
                        "encrypted_index": "e",
                    }
                ],
            }
        ],
        "usage": {"input_tokens": 9, "output_tokens": 2, "service_tier": "standard"},
    },
    GEMINI: {
        "responseId": "r",
        "modelVersion": "up",
        "candidates": [
            {
                "index": 0,
                "finishReason": "STOP",
                "content": {"role": "model", "parts": [{"text": TEXT}]},
                "groundingMetadata": {
                    "groundingChunks": [{"web": {"uri": URL, "title": TITLE}}],
                    "groundingSupports": [
                        {
                            "segment": {"startIndex": 0, "endIndex": 7, "text": "Flüsse"},
                            "groundingChunkIndices": [0],
                        }
                    ],
                },
                "logprobsResult": {"chosenCandidates": [{"token": "Flü", "logProbability": -0.5}]},
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 9,
            "candidatesTokenCount": 2,
            "totalTokenCount": 11,
            "serviceTier": "flex",
        },
    },
}
PAIRS = [(provider, client) for provider in SPEAKERS for client in SPEAKERS if provider != client]


def told(provider: Format, client: Format) -> Body:
    events = FORMATS[provider].decode_answer(json.dumps(SOURCED[provider]).encode(), Capabilities())
    asked = ASKED.under(ASKED.id)
    asked.raw = {"tools": msgspec.Raw(b'[{"googleSearch":{}}]')}
    answer = TranslatedAnswer(FORMATS[client], asked if client == GEMINI else ASKED, events, None)
    assert answer.usage is not None
    body: Body = json.loads(answer.encode(Bill(answer.usage)))
    return body


@pytest.mark.parametrize(("provider", "client"), PAIRS)
def test_s25_sources(provider: Format, client: Format) -> None:
    """In code points for OpenAI's formats, in UTF-8 bytes for Gemini, by block for Messages."""
    body = told(provider, client)
    end = len(TEXT) if provider == MESSAGES else 6  # whose sources stand for a whole block
    if client == CHAT:
        (note,) = look(body, "choices.0.message.annotations")
        assert (note["type"], note["url_citation"]) == (
            "url_citation",
            {"start_index": 0, "end_index": end, "url": URL, "title": TITLE},
        )
    elif client == RESPONSES:
        (note,) = look(body, "output.0.content.0.annotations")
        assert note == {
            "type": "url_citation",
            "start_index": 0,
            "end_index": end,
            "url": URL,
            "title": TITLE,
        }
    elif client == MESSAGES:
        blocks = body["content"]
        assert "".join(block["text"] for block in blocks) == TEXT
        cited = [one for block in blocks for one in block.get("citations") or ()]
        assert [(one["type"], one["url"], one["title"]) for one in cited] == [
            ("web_search_result_location", URL, TITLE)
        ]
    else:
        grounding = look(body, "candidates.0.groundingMetadata")
        assert grounding["groundingChunks"] == [{"web": {"uri": URL, "title": TITLE}}]
        (support,) = grounding["groundingSupports"]
        assert support["segment"].get("startIndex", 0) == 0
        assert support["segment"]["endIndex"] == len(TEXT[:end].encode())
        assert support["groundingChunkIndices"] == [0]


@pytest.mark.parametrize(("provider", "client"), [pair for pair in PAIRS if MESSAGES not in pair])
def test_s18_probabilities(provider: Format, client: Format) -> None:
    body = told(provider, client)
    if client == GEMINI:
        (entry,) = look(body, "candidates.0.logprobsResult.chosenCandidates")
        assert (entry["token"], entry["logProbability"]) == ("Flü", -0.5)
        return
    place = "choices.0.logprobs.content" if client == CHAT else "output.0.content.0.logprobs"
    (entry,) = look(body, place)
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("Flü", -0.5, [70, 108, 195, 188])


TIERS = {
    (CHAT, RESPONSES): ("service_tier", "flex"),
    (CHAT, GEMINI): ("usageMetadata.serviceTier", "flex"),
    (RESPONSES, CHAT): ("service_tier", "flex"),
    (RESPONSES, GEMINI): ("usageMetadata.serviceTier", "flex"),
    (MESSAGES, CHAT): ("service_tier", "default"),
    (MESSAGES, RESPONSES): ("service_tier", "default"),
    (MESSAGES, GEMINI): ("usageMetadata.serviceTier", "standard"),
    (GEMINI, CHAT): ("service_tier", "flex"),
    (GEMINI, RESPONSES): ("service_tier", "flex"),
    (CHAT, MESSAGES): ("usage.service_tier", "standard"),
    (GEMINI, MESSAGES): ("usage.service_tier", "standard"),
}


@pytest.mark.parametrize(("provider", "client"), TIERS)
def test_s20_the_tier_that_served(provider: Format, client: Format) -> None:
    """What the provider said, in the client's words; Messages have none for a cheaper tier."""
    place, tier = TIERS[provider, client]
    assert look(told(provider, client), place) == tier
