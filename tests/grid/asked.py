"""The provider's side of the grid: reads what a provider was asked, in words that are the same for every format.

Independent of the gate's codecs, and strict: what it does not know it refuses.
"""

import json
from itertools import pairwise
from typing import Any, NamedTuple

from sluicegate.simulator import Received

Body = dict[str, Any]


ERROR = "[tool error] "
"""Stands before the text of a result that is an error, as the formats without a word for it say it."""


class Turn(NamedTuple):
    """One thing that stands in a conversation."""

    role: str
    kind: str
    """text, image, file, sound, call, result, thought or opaque."""
    value: str
    """Text; base64 or an address; `name arguments`; of a result its text; of opaque state the state."""
    id: str = ""
    """Of calls and results; of files and sounds their type, where the format tells it."""


class WasAsked(NamedTuple):
    """A request, in no format."""

    system: str
    turns: list[Turn]
    tools: dict[str, Body]
    """Schema by name."""
    limit: int | None
    thinks: bool
    """Thinking was asked for."""

    def of(self, kind: str) -> list[Turn]:
        """Return the turns of one kind."""
        return [turn for turn in self.turns if turn.kind == kind]


def was_asked(record: Received) -> WasAsked:
    """Read a request that the simulator got."""
    assert record.format is not None
    return _READ[record.format](record.json)


def _arguments(value: Any) -> str:
    return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True)


def _text_of(content: Any, type_: str = "text") -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content if part["type"] == type_)


def _data_url(url: str) -> tuple[str, str]:
    head, comma, data = url.partition(";base64,")
    assert comma
    assert head.startswith("data:")
    return head.removeprefix("data:"), data


def _chat(body: Body) -> WasAsked:
    system, turns = "", []
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        if role in ("system", "developer"):
            system += _text_of(content)
        elif role == "tool":
            turns.append(Turn("tool", "result", _text_of(content), message["tool_call_id"]))
        else:
            if message.get("reasoning_content"):
                turns.append(Turn(role, "thought", message["reasoning_content"]))
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
            for part in parts:
                if part["type"] == "text":
                    turns.append(Turn(role, "text", part["text"]))
                elif part["type"] == "file":
                    kind, data = _data_url(part["file"]["file_data"])
                    assert part["file"]["filename"]
                    turns.append(Turn(role, "file", data, kind))
                elif part["type"] == "input_audio":
                    sound = part["input_audio"]
                    turns.append(Turn(role, "sound", sound["data"], sound["format"]))
                else:
                    url = part["image_url"]["url"]
                    turns.append(Turn(role, "image", url.removeprefix("data:image/png;base64,")))
            for call in message.get("tool_calls") or ():
                function = call["function"]
                value = f"{function['name']} {_arguments(function['arguments'])}"
                turns.append(Turn(role, "call", value, call["id"]))
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in body.get("tools", ())}
    limit = body.get("max_tokens") or body.get("max_completion_tokens")
    return WasAsked(system, turns, tools, limit, "reasoning_effort" in body)


def _completions(body: Body) -> WasAsked:
    return WasAsked("", [Turn("user", "text", body["prompt"])], {}, body.get("max_tokens"), False)


def _responses(body: Body) -> WasAsked:
    system, turns = body.get("instructions") or "", []
    items = body["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    for item in items:
        type_ = item.get("type", "message")
        if type_ == "message":
            role, content = item["role"], item["content"]
            if isinstance(content, str):
                content = [{"type": "input_text", "text": content}]
            for part in content:
                if part["type"] == "input_image":
                    image = part["image_url"].removeprefix("data:image/png;base64,")
                    turns.append(Turn(role, "image", image))
                elif part["type"] == "input_file":
                    kind, data = (
                        _data_url(part["file_data"]) if "file_data" in part else ("", part["file_url"])
                    )
                    turns.append(Turn(role, "file", data, kind))
                elif part["type"] == "input_audio":
                    sound = part["input_audio"]
                    turns.append(Turn(role, "sound", sound["data"], sound["format"]))
                elif role in ("system", "developer"):
                    system += part["text"]
                else:
                    turns.append(Turn(role, "text", part["text"]))
        elif type_ == "function_call":
            value = f"{item['name']} {_arguments(item['arguments'])}"
            turns.append(Turn("assistant", "call", value, item["call_id"]))
        elif type_ == "function_call_output":
            output = item["output"]
            turns.append(Turn("tool", "result", _text_of(output, "input_text"), item["call_id"]))
            for part in output if isinstance(output, list) else ():
                if part["type"] == "input_image":
                    image = part["image_url"].removeprefix("data:image/png;base64,")
                    turns.append(Turn("tool", "image", image))
        else:
            assert type_ == "reasoning", type_
            if item["summary"]:
                turns.append(Turn("assistant", "thought", "".join(part["text"] for part in item["summary"])))
            if item.get("encrypted_content"):
                turns.append(Turn("assistant", "opaque", item["encrypted_content"]))
    tools = {tool["name"]: tool["parameters"] for tool in body.get("tools", ())}
    return WasAsked(system, turns, tools, body.get("max_output_tokens"), "reasoning" in body)


def _messages(body: Body) -> WasAsked:
    turns: list[Turn] = []
    for message in body["messages"]:
        role, content = message["role"], message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert blocks, "an empty turn"
        for block in blocks:
            match block["type"]:
                case "text":
                    turns.append(Turn(role, "text", block["text"]))
                case "image":
                    source = block["source"]
                    assert source["type"] == "url" or source["media_type"] == "image/png"
                    turns.append(Turn(role, "image", source.get("url") or source["data"]))
                case "document":
                    source = block["source"]
                    value = source.get("url") or source["data"]
                    turns.append(Turn(role, "file", value, source.get("media_type", "")))
                case "tool_use":
                    value = f"{block['name']} {_arguments(block['input'])}"
                    turns.append(Turn(role, "call", value, block["id"]))
                case "tool_result":
                    content = block.get("content")
                    prefix = ERROR if block.get("is_error") else ""
                    turns.append(Turn("tool", "result", prefix + _text_of(content), block["tool_use_id"]))
                    for part in content if isinstance(content, list) else ():
                        if part["type"] == "image":
                            turns.append(Turn("tool", "image", part["source"]["data"]))
                case "thinking":
                    turns.append(Turn(role, "thought", block["thinking"]))
                    turns.append(Turn(role, "opaque", block["signature"]))
                case other:
                    assert other == "redacted_thinking", other
                    turns.append(Turn(role, "opaque", block["data"]))
    roles = [message["role"] for message in body["messages"]]
    assert all(one != other for one, other in pairwise(roles)), f"turns: {roles}"
    tools = {tool["name"]: tool["input_schema"] for tool in body.get("tools", ())}
    thinks = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    return WasAsked(_text_of(body.get("system")), turns, tools, body["max_tokens"], thinks)


_STANDARD = str.maketrans("-_", "+/")
"""Either alphabet of base64 is right in this format."""


def _gemini(body: Body) -> WasAsked:
    turns = []
    for content in body["contents"]:
        role = {"model": "assistant"}.get(content["role"], content["role"])
        for part in content["parts"]:
            if "thoughtSignature" in part:
                turns.append(Turn(role, "opaque", part["thoughtSignature"]))
            if "functionCall" in part:
                call = part["functionCall"]
                value = f"{call['name']} {_arguments(call.get('args', {}))}"
                turns.append(Turn(role, "call", value, call.get("id", "")))
            elif "functionResponse" in part:
                result = part["functionResponse"]
                assert result["name"], "a result without its function's name"
                response = result["response"]
                if set(response) == {"output"}:
                    value = response["output"]
                elif set(response) == {"error"}:
                    value = ERROR + response["error"]
                else:
                    value = json.dumps(response, sort_keys=True)
                turns.append(Turn("tool", "result", value, result.get("id", "")))
                for inner in result.get("parts", ()):
                    turns.append(Turn("tool", "image", inner["inlineData"]["data"]))
            elif "inlineData" in part:
                inline = part["inlineData"]
                kind = inline.get("mimeType") or inline["mime_type"]  # the Python SDK writes the latter
                data = inline["data"].translate(_STANDARD)
                if kind.startswith("audio/"):
                    turns.append(Turn(role, "sound", data, kind.removeprefix("audio/")))
                else:
                    is_image = kind.startswith("image/")
                    turns.append(Turn(role, "image" if is_image else "file", data, "" if is_image else kind))
            elif part.get("thought"):
                turns.append(Turn(role, "thought", part["text"]))
            elif part.get("text"):
                turns.append(Turn(role, "text", part["text"]))
    instruction = body.get("systemInstruction") or {"parts": []}
    declared = [tool for entry in body.get("tools", ()) for tool in entry["functionDeclarations"]]
    spellings = ("parametersJsonSchema", "parameters_json_schema")  # the Python SDK writes the latter
    tools = {tool["name"]: tool[next(name for name in spellings if name in tool)] for tool in declared}
    config = body.get("generationConfig", {})
    return WasAsked(
        "".join(part["text"] for part in instruction["parts"]),
        turns,
        tools,
        config.get("maxOutputTokens"),
        "thinkingConfig" in config,
    )


_READ = {
    "chat": _chat,
    "completions": _completions,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}
