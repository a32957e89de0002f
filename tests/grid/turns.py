"""The next turn of a conversation with tools, as a client that keeps what it was given sends it back, by format."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.grid.speaking import Body, Call


class Result(NamedTuple):
    """What a function answered."""

    call: Call
    text: str


def said_back(format: str, body: Body, answer: Any, results: Sequence[Result]) -> Body:
    """Return the first turn's body with the answer and the results of its calls behind it.

    Args:
        answer: the plain answer's object, or the list of a stream's events.
    """
    return _SAY_BACK[format](body, answer, results)


def _chat(body: Body, answer: Any, results: Sequence[Result]) -> Body:
    message = chat_message(answer) if isinstance(answer, list) else answer["choices"][0]["message"]
    tools = [{"role": "tool", "tool_call_id": call.id, "content": text} for call, text in results]
    return body | {"messages": [*body["messages"], message, *tools]}


def chat_message(chunks: list[Body]) -> Body:
    """Put a message together as the SDKs' helpers do: entries of lists by their index, strings joined."""
    message: Body = {"role": "assistant", "content": None}
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    for delta in deltas:
        for name in ("content", "reasoning_content", "refusal"):
            if delta.get(name):
                message[name] = (message.get(name) or "") + delta[name]
        for name in ("tool_calls", "reasoning_details"):
            for entry in delta.get(name) or ():
                entries = message.setdefault(name, [])
                if entry["index"] == len(entries):
                    entries.append({key: value for key, value in entry.items() if key != "function"})
                    entry = {"function": entry["function"]} if "function" in entry else {}
                if "function" in entry:
                    function = entries[-1].setdefault("function", {"arguments": ""})
                    function["arguments"] += entry["function"].get("arguments", "")
                    function |= {key: value for key, value in entry["function"].items() if key != "arguments"}
                elif entry:
                    for key, value in entry.items():
                        if key in ("text", "summary"):
                            entries[entry["index"]][key] += value
                        else:
                            entries[entry["index"]][key] = value
    return message


def _responses(body: Body, answer: Any, results: Sequence[Result]) -> Body:
    response = answer[-1]["response"] if isinstance(answer, list) else answer
    outputs = [{"type": "function_call_output", "call_id": call.id, "output": text} for call, text in results]
    return body | {"input": [*body["input"], *response["output"], *outputs]}


def _messages(body: Body, answer: Any, results: Sequence[Result]) -> Body:
    content = messages_content(answer) if isinstance(answer, list) else answer["content"]
    blocks = [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call, text in results]
    turns = [{"role": "assistant", "content": content}, {"role": "user", "content": blocks}]
    return body | {"messages": [*body["messages"], *turns]}


def messages_content(events: list[Body]) -> list[Body]:
    blocks: list[Body] = []
    joined = ""
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
            joined = ""
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            match delta["type"]:
                case "text_delta":
                    blocks[-1]["text"] += delta["text"]
                case "thinking_delta":
                    blocks[-1]["thinking"] += delta["thinking"]
                case "signature_delta":
                    blocks[-1]["signature"] = delta["signature"]
                case "input_json_delta":
                    joined += delta["partial_json"]
        elif event["type"] == "content_block_stop" and joined:
            blocks[-1]["input"] = json.loads(joined)
    return blocks


def _gemini(body: Body, answer: Any, results: Sequence[Result]) -> Body:
    chunks = answer if isinstance(answer, list) else [answer]
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    responses = []
    for call, text in results:
        response: Body = {"name": call.name, "response": _gemini_response(text)}
        if call.id:
            response["id"] = call.id
        responses.append({"functionResponse": response})
    turns = [{"role": "model", "parts": parts}, {"role": "user", "parts": responses}]
    return body | {"contents": [*body["contents"], *turns]}


def _gemini_response(text: str) -> Body:
    try:
        value: Body = json.loads(text)
    except ValueError:
        return {"output": text}
    return value


_SAY_BACK: dict[str, Callable[[Body, Any, Sequence[Result]], Body]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}


def joined(format: str, events: list[Body]) -> Body:
    """Return the plain answer that a stream's events amount to, as far as `speaking.HEAR` reads it."""
    last = events[-1]
    match format:
        case "chat":
            finish = events[-2]["choices"][0]["finish_reason"]
            choice = {"message": chat_message(events), "finish_reason": finish}
            return {"object": "chat.completion", "choices": [choice], "usage": last["usage"]}
        case "completions":
            text = "".join(choice["text"] for event in events for choice in event["choices"])
            choice = {"text": text, "finish_reason": events[-2]["choices"][0]["finish_reason"]}
            return {"object": "text_completion", "choices": [choice], "usage": last["usage"]}
        case "responses":
            response: Body = last["response"]
            return response
        case "messages":
            start = events[0]["message"]
            (delta,) = [event for event in events if event["type"] == "message_delta"]
            counts = {name: count for name, count in delta["usage"].items() if count is not None}
            told = {"content": messages_content(events), "usage": start["usage"] | counts}
            return start | delta["delta"] | told  # type: ignore[no-any-return]
        case _:
            parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
            candidate = last["candidates"][0] | {"content": {"role": "model", "parts": parts}}
            return {"candidates": [candidate], "usageMetadata": last["usageMetadata"]}
