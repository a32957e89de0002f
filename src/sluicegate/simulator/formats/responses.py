"""Responses as a provider answers it: items, parts and their closing events. Source: wire/responses.md."""

from typing import Any

import msgspec

from sluicegate.messages import Usage
from sluicegate.simulator.answer import ID, Answer
from sluicegate.simulator.formats.base import Ask, Fault, Piece
from sluicegate.simulator.formats.openai import CREATED, error_body, error_object
from sluicegate.simulator.script import Kind

__all__ = ["error_body", "error_event", "plain", "stream"]

Item = dict[str, Any]


def _usage(usage: Usage) -> dict[str, Any]:
    prompt, output = usage.input_tokens or 0, usage.output_tokens or 0
    details = {
        "cached_tokens": usage.cache_read_tokens or 0,
        "cache_write_tokens": usage.cache_write_tokens or 0,
    }
    return {
        "input_tokens": prompt,
        "input_tokens_details": details,
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": prompt + output,
    }


def _response(ask: Ask, status: str, output: list[Item], usage: dict[str, Any] | None) -> dict[str, Any]:
    response = {
        "id": f"resp_{ID}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": ask.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    }
    if ask.previous is not None:
        response["previous_response_id"] = ask.previous
    if ask.conversation is not None:
        response["conversation"] = {"id": ask.conversation}
    return response


class _Events:
    """Numbers the events and remembers the finished items."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.output: list[Item] = []

    def add(self, type_: str, kind: Kind = "start", weight: int = 0, **fields: Any) -> None:
        payload = {"type": type_} | fields | {"sequence_number": len(self.pieces)}
        data = b"event: " + type_.encode() + b"\ndata: " + msgspec.json.encode(payload) + b"\n\n"
        self.pieces.append(Piece(kind, data, weight))

    def open(self, item: Item, weight: int = 0) -> dict[str, Any]:
        """Add an item; return what its events repeat."""
        index = len(self.output)
        kind: Kind = "content" if weight else "start"
        self.add("response.output_item.added", kind, weight, output_index=index, item=item)
        return {"item_id": item["id"], "output_index": index}

    def close(self, item: Item) -> None:
        self.add("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)


def _reasoning_item(answer: Answer) -> Item:
    summary = [{"type": "summary_text", "text": "".join(answer.reasoning)}] if answer.reasoning else []
    item: Item = {"id": f"rs_{ID}", "type": "reasoning", "summary": summary}
    if answer.signature:
        item["encrypted_content"] = answer.signature
    return item


def _message_item(parts: list[Item], status: str) -> Item:
    return {"id": f"msg_{ID}", "type": "message", "role": "assistant", "status": status, "content": parts}


def _part(answer: Answer, refusal: bool, whole: bool = True) -> Item:
    if refusal:
        return {"type": "refusal", "refusal": "".join(answer.refusal) if whole else ""}
    text = "".join(answer.text) if whole else ""
    annotations = _annotations(answer) if whole else []
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


def _annotations(answer: Answer) -> list[Item]:
    span = {"start_index": 0, "end_index": len("".join(answer.text))}
    return [{"type": "url_citation", **span, "url": url, "title": title} for url, title in answer.found]


def _search_item(answer: Answer, place: int, status: str) -> Item:
    search = answer.searches[place]
    action: Item = {"type": "search", "query": search.query, "queries": [search.query]}
    if status == "completed":
        action["sources"] = [{"type": "url", "url": url} for url, _ in search.found]
    return {"id": f"ws_{ID}_{place}", "type": "web_search_call", "status": status, "action": action}


def _call_item(answer: Answer, place: int, status: str) -> Item:
    call = answer.tool_calls[place]
    return {
        "id": f"fc_{ID}_{place}",
        "type": "function_call",
        "status": status,
        "call_id": call.call_id(place),
        "name": call.name,
        "arguments": call.joined() if status == "completed" else "",
    }


def _last_status(answer: Answer) -> str:
    return "incomplete" if answer.finish in ("length", "content_filter") else "completed"


def _final(answer: Answer, ask: Ask, output: list[Item]) -> dict[str, Any]:
    usage = None if answer.usage == "never" else _usage(answer.truth())
    response = _response(ask, _last_status(answer), output, usage)
    if answer.finish == "length":
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    elif answer.finish == "content_filter":
        response["incomplete_details"] = {"reason": "content_filter"}
    return response


def _stream_reasoning(events: _Events, answer: Answer) -> None:
    item = _reasoning_item(answer)
    where = events.open({"id": item["id"], "type": "reasoning", "summary": []})
    if answer.reasoning:
        where |= {"summary_index": 0}
        empty = {"type": "summary_text", "text": ""}
        events.add("response.reasoning_summary_part.added", **where, part=empty)
        for piece in answer.reasoning:
            events.add("response.reasoning_summary_text.delta", "content", 1, **where, delta=piece)
        events.add("response.reasoning_summary_text.done", **where, text="".join(answer.reasoning))
        events.add("response.reasoning_summary_part.done", **where, part=item["summary"][0])
    events.close(item)


def _stream_message(events: _Events, answer: Answer) -> None:
    where = events.open(_message_item([], "in_progress"))
    parts: list[Item] = []
    for refusal, pieces in ((False, answer.text), (True, answer.refusal)):
        if not pieces:
            continue
        here = where | {"content_index": len(parts)}
        name = "response.refusal" if refusal else "response.output_text"
        extra: dict[str, Any] = {} if refusal else {"logprobs": []}
        events.add("response.content_part.added", **here, part=_part(answer, refusal, whole=False))
        for piece in pieces:
            events.add(f"{name}.delta", "content", 1, **here, delta=piece, **extra)
        if not refusal:
            for place, annotation in enumerate(_annotations(answer)):
                cited: dict[str, Any] = {"annotation_index": place, "annotation": annotation}
                events.add("response.output_text.annotation.added", **here, **cited)
        done = _part(answer, refusal)
        key = "refusal" if refusal else "text"
        events.add(f"{name}.done", **here, **{key: done[key]}, **extra)
        events.add("response.content_part.done", **here, part=done)
        parts.append(done)
    events.close(_message_item(parts, _last_status(answer)))


def _stream_call(events: _Events, answer: Answer, place: int) -> None:
    call = answer.tool_calls[place]
    where = events.open(_call_item(answer, place, "in_progress"), weight=1)
    for piece in call.arguments:
        events.add("response.function_call_arguments.delta", "content", 1, **where, delta=piece)
    events.add("response.function_call_arguments.done", **where, name=call.name, arguments=call.joined())
    events.close(_call_item(answer, place, "completed"))


def stream(answer: Answer, ask: Ask) -> list[Piece]:
    """Return created, in_progress, the items, and the terminal event."""
    events = _Events()
    for type_ in ("response.created", "response.in_progress"):
        events.add(type_, response=_response(ask, "in_progress", [], None))
    if answer.reasoning or answer.signature:
        _stream_reasoning(events, answer)
    for place in range(len(answer.searches)):
        where = events.open(_search_item(answer, place, "in_progress"))
        for state in ("in_progress", "searching", "completed"):
            events.add(f"response.web_search_call.{state}", **where)
        events.close(_search_item(answer, place, "completed"))
    if answer.text or answer.refusal:
        _stream_message(events, answer)
    for place in range(len(answer.tool_calls)):
        _stream_call(events, answer, place)
    status = _last_status(answer)
    events.add(f"response.{status}", "end", response=_final(answer, ask, events.output))
    return events.pieces


def plain(answer: Answer, ask: Ask) -> bytes:
    """Return the response object."""
    output: list[Item] = []
    if answer.reasoning or answer.signature:
        output.append(_reasoning_item(answer))
    output += [_search_item(answer, place, "completed") for place in range(len(answer.searches))]
    parts = [
        _part(answer, refusal) for refusal in (False, True) if (answer.refusal if refusal else answer.text)
    ]
    if parts:
        output.append(_message_item(parts, _last_status(answer)))
    output += [_call_item(answer, place, "completed") for place in range(len(answer.tool_calls))]
    return msgspec.json.encode(_final(answer, ask, output))


def error_event(fault: Fault) -> bytes:
    """Return the error event in both known shapes, then `response.failed`."""
    inner = error_object(fault)
    code = inner["code"] or "server_error"
    failed = _response(Ask("simulated"), "failed", [], None) | {
        "error": {"code": code, "message": fault.message}
    }
    events = _Events()
    events.add("error", code=code, message=fault.message, param=None, error=inner)
    events.add("response.failed", response=failed)
    return b"".join(piece.data for piece in events.pieces)
