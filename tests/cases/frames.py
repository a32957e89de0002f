"""Provider bytes in short: one function a kind of frame, so that a case reads like what it is about."""

import json
from typing import Any

Body = dict[str, Any]
DONE = b"data: [DONE]\n\n"
WEATHER = '{"city":"Oslo"}'


def dumps(value: Any) -> str:
    """Return JSON as providers write it; half characters stay escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def data(value: Any) -> bytes:
    """Return an event without a name."""
    return b"data: " + (value if isinstance(value, str) else dumps(value)).encode() + b"\n\n"


# chat


def chunk(delta: Body | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """Return a chat chunk with one choice; `delta` None: with none."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "up"}
    return data(head | {"choices": choices} | fields)


def text(*pieces: str) -> bytes:
    """Return chat chunks that say these pieces."""
    return b"".join(chunk({"content": piece}) for piece in pieces)


def usage(input_tokens: int, output_tokens: int, **details: Any) -> Body:
    """Return OpenAI's usage object."""
    total = input_tokens + output_tokens
    counts = {"prompt_tokens": input_tokens, "completion_tokens": output_tokens, "total_tokens": total}
    return counts | details


def call(index: int, id_: str | None, name: str | None, arguments: str | None, **fields: Any) -> Body:
    """Return one entry of `tool_calls`; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    entry: Body = {"index": index, "id": id_}
    if id_ is not None:
        entry["type"] = "function"
    entry["function"] = {key: value for key, value in function.items() if value is not None}
    return {key: value for key, value in entry.items() if value is not None} | fields


def calls(*entries: Body, finish: str | None = None, **delta: Any) -> bytes:
    """Return a chat chunk with pieces of tool calls."""
    return chunk(delta | {"tool_calls": list(entries)}, finish)


STOP = chunk({}, "stop")
TAIL = chunk(None, usage=usage(3, 2))
"""The usage chunk."""
END = STOP + TAIL + DONE
CALLED = chunk({}, "tool_calls") + TAIL + DONE


def completion(message: Body, finish: str | None = "stop", **fields: Any) -> Body:
    """Return a chat answer that is not streamed."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None} | message,
        "finish_reason": finish,
    }
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "up"}
    return head | {"choices": [choice], "usage": usage(3, 2)} | fields


# completions


def piece(words: str, finish: str | None = None, **fields: Any) -> bytes:
    """Return a chunk of a legacy completion."""
    choices = [{"index": 0, "text": words, "logprobs": None, "finish_reason": finish}]
    return data(
        {"id": "c1", "object": "text_completion", "created": 1, "model": "up", "choices": choices} | fields
    )


# named events: Messages and Responses


def event(type_: str, **fields: Any) -> bytes:
    """Return an event whose name is its type."""
    return f"event: {type_}\ndata: {dumps({'type': type_} | fields)}\n\n".encode()


def message_start(**counts: Any) -> bytes:
    """Return the start of a Messages stream."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "up", "content": []}
    message |= {"stop_reason": None, "stop_sequence": None}
    return event(
        "message_start", message=message | {"usage": {"input_tokens": 3, "output_tokens": 1} | counts}
    )


def block(index: int, start: Body, *deltas: Body) -> bytes:
    """Return a whole block of a Messages stream."""
    return (
        event("content_block_start", index=index, content_block=start)
        + b"".join(event("content_block_delta", index=index, delta=delta) for delta in deltas)
        + event("content_block_stop", index=index)
    )


def text_block(index: int, *pieces: str) -> bytes:
    """Return a block of text."""
    return block(
        index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces)
    )


def tool_block(index: int, id_: str, name: str, *pieces: str, **fields: Any) -> bytes:
    """Return a block of a tool call."""
    start = {"type": "tool_use", "id": id_, "name": name, "input": {}} | fields
    return block(index, start, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def message_end(reason: str | None = "end_turn", /, **counts: Any) -> bytes:
    """Return the end of a Messages stream."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage={"output_tokens": 2} | counts) + event("message_stop")


def message(content: list[Body], reason: str = "end_turn", **counts: Any) -> Body:
    """Return a Messages answer that is not streamed."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "up", "content": content}
    counted = {"input_tokens": 3, "output_tokens": 2} | counts
    return head | {"stop_reason": reason, "stop_sequence": None, "usage": counted}


def response(status: str, output: list[Body] | None = None, **fields: Any) -> Body:
    """Return a Responses answer, or what an event of it holds."""
    head = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "up",
        "error": None,
    }
    return head | {"incomplete_details": None, "output": output or [], "usage": None} | fields


def counted(input_tokens: int, output_tokens: int, cached: int = 0, reasoning: int = 0) -> Body:
    """Return the usage object of Responses."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens,
    }


CREATED = event("response.created", response=response("in_progress"), sequence_number=0)


def said_item(words: str, id_: str = "msg_1") -> Body:
    """Return a message item."""
    part = {"type": "output_text", "text": words, "annotations": []}
    return {"id": id_, "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def call_item(id_: str | None, call_id: str, name: str, arguments: str) -> Body:
    """Return a function call's item."""
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    return (item | {"id": id_, "status": "completed"}) if id_ is not None else item


def text_item(index: int, *pieces: str) -> bytes:
    """Return a message item of a Responses stream, opened, filled and closed."""
    whole = said_item("".join(pieces))
    at = {"item_id": "msg_1", "output_index": index, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    return (
        event(
            "response.output_item.added",
            output_index=index,
            item=whole | {"content": [], "status": "in_progress"},
        )
        + event("response.content_part.added", **at, part=part)
        + b"".join(event("response.output_text.delta", **at, delta=piece) for piece in pieces)
        + event("response.output_text.done", **at, text="".join(pieces))
        + event("response.content_part.done", **at, part=whole["content"][0])
        + event("response.output_item.done", output_index=index, item=whole)
    )


def called_item(index: int, id_: str | None, call_id: str, name: str, *pieces: str) -> bytes:
    """Return a function call of a Responses stream; `id_` None: the server gives items no ids."""
    at: Body = {"output_index": index} | ({"item_id": id_} if id_ is not None else {})
    arguments = "".join(pieces)
    return (
        event("response.output_item.added", output_index=index, item=call_item(id_, call_id, name, ""))
        + b"".join(event("response.function_call_arguments.delta", **at, delta=piece) for piece in pieces)
        + event("response.function_call_arguments.done", **at, arguments=arguments)
        + event(
            "response.output_item.done", output_index=index, item=call_item(id_, call_id, name, arguments)
        )
    )


def completed(output: list[Body], used: Body | None = None, **fields: Any) -> bytes:
    """Return the event that completes a Responses stream."""
    body = response("completed", output, usage=used or counted(3, 2)) | fields
    return event("response.completed", response=body)


# Gemini


def generated(*parts: Body, finish: str | None = None, **fields: Any) -> Body:
    """Return one object of a Gemini answer."""
    candidate: Body = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "up", "responseId": "r1"} | fields


def metadata(input_tokens: int = 3, output_tokens: int = 2, **counts: int) -> Body:
    """Return Gemini's usage object."""
    base = {"promptTokenCount": input_tokens, "candidatesTokenCount": output_tokens}
    return base | {"totalTokenCount": input_tokens + output_tokens} | counts


def function_call(name: str, args: Body, **fields: Any) -> Body:
    """Return a part that asks for a function."""
    return {"functionCall": {"name": name, "args": args} | fields}
