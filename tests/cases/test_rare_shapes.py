"""Answers that are legal, or nearly so, and rare: what every client must hear of them, streamed, cut up and plain.

None of them was reported; each was found by playing such shapes to clients of every format.
"""

import json
from typing import Any

import pytest

from tests.cases.frames import (
    CREATED,
    DONE,
    TAIL,
    call,
    call_item,
    calls,
    chunk,
    counted,
    data,
    event,
    generated,
    message,
    message_end,
    message_start,
    metadata,
    piece,
    response,
    said_item,
    text,
    text_block,
    text_item,
)
from tests.cases.world import TOOLS, Outcome, World
from tests.grid.scenes import FORMATS, Prompt

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONVERSATIONS = tuple(format for format in FORMATS if format != "completions")
JSON = (("content-type", "application/json"),)


async def streamed(
    world: World, client: str, provider: str, name: str, body: bytes, prompt: Prompt
) -> Outcome:
    """Play a stream whole, then byte by byte; both must say the same."""
    outcomes = []
    for cut in ("whole", "bytes"):
        played = f"{name}-{client}-{cut}"
        world.plays(played, body, cut)  # type: ignore[arg-type]  # both are cuts
        outcomes.append(await world.hear(client, f"{provider}/{played}", prompt, stream=True))
    whole, bytewise = outcomes
    assert (whole.heard, whole.told) == (bytewise.heard, bytewise.told)
    return whole


async def plain(world: World, client: str, provider: str, name: str, body: Any, prompt: Prompt) -> Outcome:
    """Play a body to a client that asked for no stream."""
    played = f"{name}-{client}-plain"
    world.plays(played, json.dumps(body).encode(), headers=JSON)
    return await world.hear(client, f"{provider}/{played}", prompt, stream=False)


# ---- a tool's input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CONVERSATIONS)
async def test_an_empty_piece_does_not_replace_input_that_the_start_gave(world: World, client: str) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "level", "input": {"gate": "north"}}
    empty = {"type": "input_json_delta", "partial_json": ""}
    body = (
        message_start()
        + event("content_block_start", index=0, content_block=block)
        + event("content_block_delta", index=0, delta=empty)
        + event("content_block_stop", index=0)
        + message_end("tool_use")
    )
    outcome = await streamed(world, client, "messages", "given-input", body, TOOLS)
    assert outcome.heard is not None
    assert [(said.name, json.loads(said.arguments)) for said in outcome.heard.calls] == [
        ("level", {"gate": "north"})
    ]


# ---- choices --------------------------------------------------------------------------------------------------------


def numbered(body: bytes) -> bytes:
    """Return a stream whose only choice has another index than the first."""
    return body.replace(b'"index":0', b'"index":1').replace(
        b'"tool_calls":[{"index":1', b'"tool_calls":[{"index":0'
    )


ONE_CHOICE = {
    "chat": text("Hello", " world") + chunk({}, "stop") + TAIL + DONE,
    "completions": piece("Hello")
    + piece(" world", "stop")
    + TAIL.replace(b"chat.completion.chunk", b"text_completion")
    + DONE,
    "gemini": data(generated({"text": "Hello"}))
    + data(generated({"text": " world"}, finish="STOP", usageMetadata=metadata())),
}


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("provider", ONE_CHOICE)
async def test_the_one_choice_may_have_any_index(world: World, client: str, provider: str) -> None:
    if client == provider == "gemini":
        return  # it passes, index and all
    body = numbered(ONE_CHOICE[provider])
    outcome = await streamed(world, client, provider, f"numbered-{provider}", body, Prompt())
    assert outcome.heard is not None
    assert (outcome.heard.text, outcome.heard.finish) == ("Hello world", "stop")


@pytest.mark.parametrize("client", CONVERSATIONS)
async def test_a_call_of_the_one_choice_with_another_index(world: World, client: str) -> None:
    body = (
        numbered(calls(call(0, "call_1", "level", '{"gate":"north"}')) + chunk({}, "tool_calls"))
        + TAIL
        + DONE
    )
    outcome = await streamed(world, client, "chat", "numbered-call", body, TOOLS)
    assert outcome.heard is not None
    assert [said.name for said in outcome.heard.calls] == ["level"]
    assert outcome.heard.finish == "tool_calls"


CHOICES = [
    {"index": index, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    for index, said in ((0, "Hello"), (1, "Other"))
]
COMPLETION = {"id": "c1", "object": "chat.completion", "created": 1, "model": "x"}
CANDIDATES = [
    {"content": {"role": "model", "parts": [{"text": said}]}, "finishReason": "STOP", "index": index}
    for index, said in ((0, "Hello"), (1, "Other"))
]
SPENT = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
PLAIN = {
    "chat": COMPLETION | {"choices": CHOICES, "usage": SPENT},
    "gemini": {"candidates": CANDIDATES, "usageMetadata": metadata()},
}


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("provider", PLAIN)
async def test_of_choices_that_nobody_asked_for_the_first_is_told(
    world: World, client: str, provider: str
) -> None:
    if client == provider:
        return  # it passes as it stands
    outcome = await plain(world, client, provider, f"unasked-{provider}", PLAIN[provider], Prompt())
    assert outcome.heard is not None
    assert (outcome.heard.text, outcome.heard.finish) == ("Hello", "stop")
    chunks = b"".join(
        data({"id": "c1", "object": "chat.completion.chunk", "choices": [choice]})
        for choice in (
            {"index": 0, "delta": {"role": "assistant", "content": "Hel"}, "finish_reason": None},
            {"index": 1, "delta": {"role": "assistant", "content": "Other"}, "finish_reason": None},
            {"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"},
            {"index": 1, "delta": {}, "finish_reason": "length"},
        )
    )
    if provider == "chat":
        outcome = await streamed(world, client, provider, "unasked-chunks", chunks + TAIL + DONE, Prompt())
        assert outcome.heard is not None
        assert (outcome.heard.text, outcome.heard.finish) == ("Hello", "stop")


# ---- a prompt that is blocked behind words --------------------------------------------------------------------------

BLOCKED = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": metadata()}


@pytest.mark.parametrize("client", FORMATS)
async def test_a_prompt_blocked_behind_words_is_a_filtered_end(world: World, client: str) -> None:
    body = data(generated({"text": "Hello"})) + data(BLOCKED)
    outcome = await streamed(world, client, "gemini", "blocked-late", body, Prompt())
    assert outcome.heard is not None
    assert outcome.heard.text == "Hello"
    assert outcome.heard.finish in ("content_filter", "PROHIBITED_CONTENT")
    assert outcome.row is not None
    assert (outcome.row.status, outcome.row.finish_reason) == ("ok", "content_filter")


@pytest.mark.parametrize("client", [format for format in FORMATS if format != "gemini"])
async def test_words_behind_a_blocked_prompt_take_the_block_back(world: World, client: str) -> None:
    end = data(generated({"text": " world"}, finish="STOP", usageMetadata=metadata()))
    body = data(generated({"text": "Hello"})) + data(BLOCKED) + end
    outcome = await streamed(world, client, "gemini", "blocked-not", body, Prompt())
    assert outcome.heard is not None
    assert (outcome.heard.text, outcome.heard.finish) == ("Hello world", "stop")


# ---- an array of Gemini's where one object was asked for ------------------------------------------------------------


@pytest.mark.parametrize("client", FORMATS)
async def test_an_array_in_place_of_one_object_is_told_whole(world: World, client: str) -> None:
    pieces = [
        generated({"text": "Hello"}),
        generated({"text": " world"}, finish="MAX_TOKENS", usageMetadata=metadata()),
    ]
    outcome = await plain(world, client, "gemini", "array", pieces, Prompt())
    assert outcome.heard is not None
    assert (outcome.heard.text, outcome.heard.finish) == ("Hello world", "length")
    assert outcome.row is not None
    assert (outcome.row.usage.output_tokens, outcome.row.usage_source) == (2, "reported")


# ---- how a response ended -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [format for format in FORMATS if format != "responses"])
async def test_a_completed_event_may_hold_a_response_that_is_not(world: World, client: str) -> None:
    cut = response(
        "incomplete",
        [said_item("Hello world")],
        incomplete_details={"reason": "max_output_tokens"},
        usage=counted(3, 2),
    )
    body = CREATED + text_item(0, "Hello", " world") + event("response.completed", response=cut)
    outcome = await streamed(world, client, "responses", "completed-cut", body, Prompt())
    assert outcome.heard is not None
    assert (outcome.heard.text, outcome.heard.finish) == ("Hello world", "length")


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_a_run_that_nobody_asked_to_keep_is_told_as_it_stands(world: World, status: str) -> None:
    body = response(status, [said_item("Hello")], usage=counted(3, 2))
    world.plays(f"loose-{status}", json.dumps(body).encode(), headers=JSON)
    told = await world.post("responses", f"responses/loose-{status}", Prompt(), stream=False)
    assert told.status == 200, told.body
    assert told.json()["status"] == status
    assert told.json()["output"][0]["content"][0]["text"] == "Hello"
    (row,) = [row for row in world.gate.rows() if row.request_id == told.header("x-request-id")]
    assert (row.status, row.usage.output_tokens) == ("ok", 2)


# ---- calls of plain answers that lack something ---------------------------------------------------------------------


CALLING = {
    "chat": COMPLETION
    | {
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [call(0, "call_1", "clock", "")],
                },
                "finish_reason": "stop",
            }
        ],
        "usage": SPENT,
    },
    "messages": message([{"type": "tool_use", "name": "clock"}]),
    "responses": {
        key: value
        for key, value in response(
            "", [call_item("fc_1", "call_1", "clock", "")], usage=counted(3, 2)
        ).items()
        if key != "status"
    },
    "gemini": generated({"functionCall": {"name": "clock"}}, finish="STOP", usageMetadata=metadata()),
}


@pytest.mark.parametrize("client", CONVERSATIONS)
@pytest.mark.parametrize("provider", CALLING)
async def test_a_plain_call_without_arguments_gets_an_empty_object(
    world: World, client: str, provider: str
) -> None:
    if client == provider == "gemini":
        return  # its clients take a call without arguments
    outcome = await plain(world, client, provider, f"calling-{provider}", CALLING[provider], TOOLS)
    assert outcome.heard is not None
    ((id_, name, arguments),) = outcome.heard.calls
    assert (name, arguments, outcome.heard.finish) == ("clock", "{}", "tool_calls")
    assert id_ or client == "gemini"


# ---- a reason that says calls, and none -----------------------------------------------------------------------------


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("provider", ["chat", "messages"])
async def test_an_answer_without_calls_did_not_end_for_them(world: World, client: str, provider: str) -> None:
    if client == provider:
        return  # it passes as it stands
    body = {
        "chat": text("Hello", " world") + chunk({}, "tool_calls") + TAIL + DONE,
        "messages": message_start() + text_block(0, "Hello", " world") + message_end("tool_use"),
    }[provider]
    prompt = Prompt() if client == "completions" else TOOLS
    outcome = await streamed(world, client, provider, f"no-calls-{provider}", body, prompt)
    assert outcome.heard is not None
    assert (outcome.heard.text, outcome.heard.calls, outcome.heard.finish) == ("Hello world", [], "stop")
    whole = {
        "chat": COMPLETION | {"choices": [CHOICES[0] | {"finish_reason": "tool_calls"}], "usage": SPENT},
        "messages": message([{"type": "text", "text": "Hello"}], "tool_use"),
    }[provider]
    outcome = await plain(world, client, provider, f"no-calls-{provider}", whole, prompt)
    assert outcome.heard is not None
    assert (outcome.heard.text, outcome.heard.calls, outcome.heard.finish) == ("Hello", [], "stop")


# ---- what is refused, in the client's words -------------------------------------------------------------------------


async def test_what_nobody_keeps_is_not_found(world: World) -> None:
    reference = {"type": "item_reference", "id": "msg_1"}
    asked = [{"role": "user", "content": "Hello"}, reference]
    told = await world.post("responses", "responses/any", Prompt(), stream=False, input=asked)
    assert told.status == 404
    assert told.json()["error"]["message"] == "input[1].id: Nothing with id 'msg_1' was found."


async def test_probabilities_are_refused_by_the_name_that_a_responses_client_has_for_them(
    world: World,
) -> None:
    include = ["message.output_text.logprobs"]
    told = await world.post("responses", "messages/any", Prompt(), stream=False, include=include)
    assert told.status == 400
    assert told.json()["error"]["param"] == "include"


# ---- halves of characters in several choices ------------------------------------------------------------------------


def half(index: int, escaped: str) -> bytes:
    """Return a chunk whose text is written as a careless provider writes it."""
    choice = f'{{"index":{index},"delta":{{"content":"{escaped}"}}}}'
    return f'data: {{"id":"c1","object":"chat.completion.chunk","choices":[{choice}]}}\n\n'.encode()


HALVES = {
    "crossed": ((0, r"a\ud83d"), (1, r"x\ud83d"), (0, r"\ude00b"), (1, r"\ude01y")),
    "beside": ((0, r"a\ud83d"), (1, "x😁y"), (0, r"\ude00b")),
    "of another": ((0, r"a\ud83d"), (1, r"x😁\ude00y"), (0, r"\ude00b")),
}


@pytest.mark.parametrize("client", ["chat", "completions"])
@pytest.mark.parametrize("crossing", HALVES)
async def test_halves_of_characters_stay_in_their_choice(world: World, client: str, crossing: str) -> None:
    body = b"".join(half(*each) for each in HALVES[crossing])
    body += data(
        {"id": "c1", "choices": [{"index": at, "delta": {}, "finish_reason": "stop"} for at in (0, 1)]}
    )
    name = f"halves-{crossing}-{client}".replace(" ", "-")
    world.plays(name, body + TAIL + DONE, "bytes")
    told = await world.post(client, f"chat/{name}", Prompt(), stream=True, n=2)
    said = {0: "", 1: ""}
    for line in told.body.decode().splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                said[choice["index"]] += choice.get("text") or choice.get("delta", {}).get("content") or ""
    assert said == {0: "a😀b", 1: "x😁\ufffdy" if crossing == "of another" else "x😁y"}
