"""What another provider can go on with, and how its text joins what the client has. Cases B060, B133."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.messages import (
    Citation,
    End,
    Finish,
    Format,
    Message,
    ReasoningControl,
    Request,
    ResponseFormat,
    Start,
    StreamEvent,
    Text,
    TextDelta,
    Tool,
    ToolCallStart,
    ToolChoice,
)
from sluicegate.routing.families import capabilities_of
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.partial_turn import body_with_text, marked, may_be_taken_over, takes_over
from sluicegate.wire.seam import MIN_REPEATED, Seam
from sluicegate.wire.stop_cutting import cut_answer
from sluicegate.wire.told_text import Told
from tests.wire.openai_world import ASKED

Json = dict[str, Any]


def sse(*events: Json) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event.get("type", "x").encode(), json.dumps(event).encode())
        for event in events
    )


def chat(**choice: Any) -> Json:
    delta = {
        name: choice.pop(name) for name in list(choice) if name not in ("index", "finish_reason", "logprobs")
    }
    return {
        "id": "c",
        "created": 1,
        "choices": [{"index": 0, "delta": delta, "finish_reason": None} | choice],
    }


def text_part(text: str, **more: Any) -> Json:
    return {
        "responseId": "r",
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text} | more]}}],
    }


START: dict[Format, list[Json]] = {
    "chat": [chat(role="assistant", content="")],
    "completions": [],
    "responses": [
        {"type": "response.created", "response": {"id": "resp_1", "created_at": 5}},
        {"type": "response.in_progress", "response": {"id": "resp_1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        {
            "type": "response.content_part.added",
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
    ],
    "messages": [
        {"type": "message_start", "message": {"id": "msg", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
    ],
    "gemini": [],
}


def delta(format: Format, text: str) -> Json:
    """Return an event that is a piece of text."""
    match format:
        case "chat":
            return chat(content=text)
        case "completions":
            return {"choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": None}]}
        case "responses":
            return {"type": "response.output_text.delta", "item_id": "i", "sequence_number": 9, "delta": text}
        case "messages":
            return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        case "gemini":
            return text_part(text)


MORE: list[tuple[Format, Json]] = [
    ("chat", chat(reasoning_content="hm")),
    ("chat", chat(reasoning_details=[{"type": "reasoning.encrypted"}])),
    ("chat", chat(tool_calls=[{"index": 0, "function": {"name": "f"}}])),
    ("chat", chat(refusal="no")),
    ("chat", chat(content="x", finish_reason="stop")),
    ("chat", chat(content="x", logprobs={"content": []})),
    ("chat", chat(content="x", index=1)),
    ("chat", chat(audio={"data": "x"})),
    ("chat", {"error": {"message": "x"}}),
    ("chat", {"choices": "x"}),
    ("chat", {"choices": {"a": 1}}),
    ("chat", chat(content=1)),
    ("responses", {"type": "response.output_item.added"}),
    ("completions", {"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}),
    ("completions", {"choices": [{"index": 1, "text": "x"}]}),
    ("responses", {"type": "response.output_item.added", "item": {"type": "reasoning"}}),
    ("responses", {"type": "response.output_item.added", "item": {"type": "function_call"}}),
    ("responses", {"type": "response.output_text.annotation.added"}),
    ("responses", {"type": "response.output_text.done", "text": "x"}),
    ("responses", {"type": "response.refusal.delta", "delta": "x"}),
    ("responses", {"type": "response.something_new"}),
    ("messages", {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use"}}),
    ("messages", {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}}),
    ("messages", {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta"}}),
    ("messages", {"type": "content_block_stop", "index": 0}),
    ("messages", {"type": "message_delta", "delta": {}}),
    ("gemini", text_part("x", thought=True)),
    ("gemini", text_part("", thoughtSignature="c2ln")),
    ("gemini", {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}}]}),
    ("gemini", {"candidates": [{"finishReason": "STOP"}]}),
    ("gemini", {"candidates": [{"groundingMetadata": {"a": 1}}]}),
    ("gemini", {"promptFeedback": {"blockReason": "OTHER"}}),
]
"""Events that say more than a piece of text."""


PLACELESS: list[tuple[Format, Json]] = [
    ("chat", chat(content="x") | {"id": 7}),
    ("completions", {"choices": [{"index": 0, "text": "x"}], "created": "now"}),
    ("responses", {"type": "response.output_text.delta", "delta": "x", "sequence_number": 1}),
    ("responses", {"type": "response.output_text.delta", "delta": "x", "item_id": "i"}),
    ("messages", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}),
    ("messages", {"type": "content_block_delta", "index": "0", "delta": {"type": "text_delta", "text": "x"}}),
    ("gemini", text_part("x") | {"responseId": 3}),
]
"""Pieces of text that do not tell where they stand."""


@pytest.mark.parametrize("format", START)
def test_text_and_what_begins_it_can_be_gone_on_with(format: Format) -> None:
    told = Told(format)
    told.take(sse(*START[format]))
    told.take(sse(delta(format, "one"), delta(format, " two")))
    assert (told.has_text, told.text) == (True, "one two")
    assert told.last == delta(format, " two")
    assert told.first == (START[format] or [delta(format, "one")])[0]


@pytest.mark.parametrize(("format", "event"), MORE)
def test_what_is_more_than_text_cannot(format: Format, event: Json) -> None:
    told = Told(format)
    told.take(sse(*START[format], delta(format, "one"), event, delta(format, "two")))
    assert not told.has_text


@pytest.mark.parametrize(("format", "event"), PLACELESS)
def test_text_that_does_not_tell_its_place_cannot(format: Format, event: Json) -> None:
    told = Told(format)
    told.take(sse(event))
    assert (told.text, told.has_text) == ("x", False)


@pytest.mark.parametrize("response", [{"id": 1.5, "created_at": "now"}, {}, None, "x"])
def test_a_response_without_an_id_of_its_own_is_gone_on_with_under_ours(response: Any) -> None:
    told = Told("responses")
    created: Json = {"type": "response.created", "response": response}
    told.take(sse(created, delta("responses", "one")))
    encoder = FORMATS["responses"].stream_encoder(ASKED)
    encoder.take_over(told)
    end = encoder.farewell({0: ("stop", None)}, None)
    assert b'"id":"resp_%b"' % ASKED.id.encode() in end


def test_an_array_is_read_like_events() -> None:
    told = Told("gemini", array=True)
    told.take(b"[" + json.dumps(text_part("one")).encode())
    told.take(b",\n" + json.dumps(text_part(" two,\n\n")).encode())
    assert (told.open, told.text) == (True, "one two,\n\n")


# ---- which requests, and how they are asked --------------------------------------------------------------------------

PLAIN = Request(model="m", messages=[Message(role="user", parts=[Text(text="Hi")])])


@pytest.mark.parametrize(
    "changes",
    [
        {"choices": 2},
        {"others": [[]]},
        {"logprobs": True},
        {"response_format": ResponseFormat(kind="json_object")},
        {"tool_choice": ToolChoice(mode="required")},
        {"tool_choice": ToolChoice(mode="tool", names=["f"])},
        {"web_search": {}},
        {"suffix": "x"},
        {"echo": True},
        {"messages": []},
        {"messages": [*PLAIN.messages, Message(role="assistant", parts=[Text(text="I")])]},
        {"reasoning": ReasoningControl(effort="low")},
        {"reasoning": ReasoningControl(budget_tokens=2000)},
        {"reasoning": ReasoningControl(budget_tokens=-1)},
    ],
    ids=str,
)
def test_requests_that_nobody_else_can_answer_the_rest_of(changes: dict[str, Any]) -> None:
    assert not may_be_taken_over(msgspec.structs.replace(PLAIN, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tools": [Tool(name="f")], "tool_choice": ToolChoice(mode="auto")},
        {"reasoning": ReasoningControl(effort="none")},
        {"reasoning": ReasoningControl(budget_tokens=0)},
        {"reasoning": ReasoningControl(show=False)},
        {"stop": ["x"], "max_output_tokens": 5},
    ],
    ids=str,
)
def test_requests_that_others_can(changes: dict[str, Any]) -> None:
    assert may_be_taken_over(msgspec.structs.replace(PLAIN, **changes))


@pytest.mark.parametrize(
    ("model", "format", "can"),
    [
        ("gpt-4o", "chat", False),
        ("mistral-large-latest", "chat", False),
        ("gpt-4o", "responses", False),
        ("claude-3-5-haiku-latest", "messages", True),
        ("claude-sonnet-4-5", "messages", True),
        ("claude-opus-4-6", "messages", False),
        ("claude-opus-5", "messages", False),
        ("claude-sonnet-4-5", "chat", False),
        ("gemini-2.5-flash", "gemini", True),
        ("gpt-3.5-turbo-instruct", "completions", True),
    ],
)
def test_who_goes_on_by_itself(model: str, format: Format, can: bool) -> None:
    assert takes_over(format, capabilities_of(model, format)) is can


@pytest.mark.parametrize(
    ("format", "body", "asked"),
    [
        (
            "chat",
            {"messages": [{"role": "user"}], "x": 1},
            {"messages": [{"role": "user"}, {"role": "assistant", "content": 'a"b'}], "x": 1},
        ),
        (
            "messages",
            {"messages": [{"role": "user"}]},
            {"messages": [{"role": "user"}, {"role": "assistant", "content": 'a"b'}]},
        ),
        (
            "gemini",
            {"contents": [{"a": 1}]},
            {"contents": [{"a": 1}, {"role": "model", "parts": [{"text": 'a"b'}]}]},
        ),
        ("completions", {"prompt": "Say: "}, {"prompt": 'Say: a"b'}),
        ("completions", {"prompt": ["Say: "]}, None),
        ("responses", {"input": "x"}, None),
    ],
)
def test_on_the_same_format_the_body_is_edited(format: Format, body: Json, asked: Json | None) -> None:
    longer = body_with_text(json.dumps(body).encode(), format, 'a"b')
    assert (None if longer is None else json.loads(longer)) == asked


def test_a_partial_turn_is_marked_as_its_provider_wants_it() -> None:
    body = json.dumps({"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}]}).encode()
    marks: dict[str, Json] = {
        style: json.loads(marked(body, "chat", Capabilities(continuation=style)))  # type: ignore[arg-type]
        for style in ("turn", "prefix", "final_message")
    }
    assert marks["turn"] == json.loads(body)
    assert marks["prefix"]["messages"][0] == {"role": "user"}
    assert marks["prefix"]["messages"][1] == {"role": "assistant", "content": "a", "prefix": True}
    assert marks["final_message"] == json.loads(body) | {
        "continue_final_message": True,
        "add_generation_prompt": False,
    }


# ---- the seam --------------------------------------------------------------------------------------------------------


def rest(text: str, *pieces: str, repeats: bool = False) -> str:
    """Return what a client with a text is told of the pieces that follow."""
    seam = Seam(text, repeats=repeats)
    told = [event for piece in pieces for event in seam.take([TextDelta(piece)])]
    told += seam.take([Finish("stop"), End()])
    return "".join(event.text for event in told if isinstance(event, TextDelta))


LONG = "Water finds its own level."
texts = st.text(alphabet="ab \n", max_size=30)
pieces = st.lists(st.text(alphabet="ab \n", max_size=5), max_size=10)


@given(text=texts, pieces=pieces)
def test_nothing_but_white_space_is_lost_and_nothing_is_told_twice(text: str, pieces: list[str]) -> None:
    assume(len(text.rstrip()) < MIN_REPEATED or not "".join(pieces).startswith(text.rstrip()))
    told, said = rest(text, *pieces), "".join(pieces)
    assert said.endswith(told)
    dropped = said.removesuffix(told)
    gap = text[len(text.rstrip()) :]
    assert gap.startswith(dropped)
    assert told[:1] != gap[len(dropped) : len(dropped) + 1] or not told or len(dropped) == len(gap)


@given(gap=st.sampled_from(["", " ", "\n\n"]), pieces=pieces)
def test_a_long_beginning_that_is_repeated_is_dropped_at_any_cut(gap: str, pieces: list[str]) -> None:
    repeated = [LONG[at : at + 3] for at in range(0, len(LONG), 3)]
    assert rest(LONG + gap, *repeated, *pieces) == rest(LONG + gap, *pieces)


def test_a_short_one_only_of_who_is_known_to_repeat() -> None:
    assert rest("ha", "ha", "!") == "ha!"
    assert rest("ha", "ha", "!", repeats=True) == "!"


def test_what_only_began_like_a_repetition_is_told_at_the_end() -> None:
    assert rest(LONG, LONG[:5]) == LONG[:5]


def test_other_events_keep_their_place_and_sources_move_behind_the_text() -> None:
    seam = Seam("Hello ", repeats=False)
    told = seam.take([Start(), TextDelta(" "), Citation("u", "t", 1, 3), ToolCallStart(0, "c", "f")])
    assert told == [Start(), Citation("u", "t", 6, 8), ToolCallStart(0, "c", "f")]


@given(
    before=st.text(alphabet="abc", max_size=8),
    pieces=st.lists(st.text(alphabet="abc", min_size=1, max_size=4)),
)
def test_b101_a_stop_sequence_may_begin_in_what_was_told_before(before: str, pieces: list[str]) -> None:
    stop = "abca"
    assume(stop not in before)
    events: list[StreamEvent] = [*map(TextDelta, pieces), Finish("stop"), End()]
    told = cut_answer(events, [stop], before)
    text = "".join(event.text for event in told if isinstance(event, TextDelta))
    whole = before + "".join(pieces)
    end = whole.find(stop)
    assert before + text == (whole if end < 0 else max(whole[:end], before, key=len))
    finish = next(event for event in told if isinstance(event, Finish))
    assert finish.reason == ("stop" if end < 0 else "stop_sequence")
