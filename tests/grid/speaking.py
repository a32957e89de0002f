"""The client's side of the grid: says a prompt in each format, and hears answers in words that are the same for all.

Independent of the gate's codecs. Streams are heard through the grammar checkers, which refuse what an SDK would not
survive.
"""

import json
from typing import Any, NamedTuple

from sluicegate.messages import Usage
from tests.fakes import Response
from tests.grammar.chat import check_chat_stream
from tests.grammar.completions import check_completions_stream
from tests.grammar.gemini import check_gemini_stream
from tests.grammar.messages import check_messages_stream
from tests.grammar.narrow_sse import ParsedStream, check_cost
from tests.grammar.responses import check_responses_stream
from tests.grid.scenes import Prompt, Tool

LIMIT = 20_000
"""Output tokens that the client allows, where its format wants a number."""
BUDGET = 8192
"""Of thinking: what effort `medium` stands for."""

Body = dict[str, Any]


def path_of(format: str, model: str, stream: bool) -> str:
    """Return where a format is asked."""
    if format == "gemini":
        return f"/v1beta/models/{model}:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")
    ends = {
        "chat": "chat/completions",
        "completions": "completions",
        "responses": "responses",
        "messages": "messages",
    }
    return "/v1/" + ends[format]


def said(format: str, model: str, prompt: Prompt, stream: bool) -> Body:
    """Return a request's body."""
    body = _SAY[format](prompt)
    if format != "gemini":
        body |= {"model": model, "stream": stream}
    if stream and format in ("chat", "completions"):
        body["stream_options"] = {"include_usage": True}
    return body


def _say_chat(prompt: Prompt) -> Body:
    content: Any = prompt.question
    if prompt.image is not None:
        url = f"data:image/png;base64,{prompt.image}"
        content = [{"type": "text", "text": content}, {"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "system", "content": prompt.system}] if prompt.system else []
    body: Body = {"messages": [*messages, {"role": "user", "content": content}]}
    if prompt.tools:
        body["tools"] = [{"type": "function", "function": tool._asdict()} for tool in prompt.tools]
    if prompt.reasoning:
        body["reasoning_effort"] = "medium"
    return body


def _say_completions(prompt: Prompt) -> Body:
    return {"prompt": prompt.question, "max_tokens": LIMIT}


def _say_responses(prompt: Prompt) -> Body:
    content: list[Body] = [{"type": "input_text", "text": prompt.question}]
    if prompt.image is not None:
        content.append({"type": "input_image", "image_url": f"data:image/png;base64,{prompt.image}"})
    body: Body = {"input": [{"role": "user", "content": content}], "store": False}
    if prompt.system:
        body["instructions"] = prompt.system
    if prompt.tools:
        body["tools"] = [{"type": "function", "strict": False} | tool._asdict() for tool in prompt.tools]
    if prompt.reasoning:
        body["reasoning"] = {"effort": "medium", "summary": "auto"}
        body["include"] = ["reasoning.encrypted_content"]
    return body


def _say_messages(prompt: Prompt) -> Body:
    content: list[Body] = [{"type": "text", "text": prompt.question}]
    if prompt.image is not None:
        source = {"type": "base64", "media_type": "image/png", "data": prompt.image}
        content.append({"type": "image", "source": source})
    body: Body = {"messages": [{"role": "user", "content": content}], "max_tokens": LIMIT}
    if prompt.system:
        body["system"] = prompt.system
    if prompt.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in prompt.tools
        ]
    if prompt.reasoning:
        body["thinking"] = {"type": "enabled", "budget_tokens": BUDGET}
    return body


def _say_gemini(prompt: Prompt) -> Body:
    parts: list[Body] = [{"text": prompt.question}]
    if prompt.image is not None:
        parts.append({"inlineData": {"mimeType": "image/png", "data": prompt.image}})
    body: Body = {"contents": [{"role": "user", "parts": parts}]}
    if prompt.system:
        body["systemInstruction"] = {"parts": [{"text": prompt.system}]}
    if prompt.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in prompt.tools]}]
    if prompt.reasoning:
        thinking = {"includeThoughts": True, "thinkingBudget": BUDGET}
        body["generationConfig"] = {"thinkingConfig": thinking}
    return body


def _declaration(tool: Tool) -> Body:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}


_SAY = {
    "chat": _say_chat,
    "completions": _say_completions,
    "responses": _say_responses,
    "messages": _say_messages,
    "gemini": _say_gemini,
}


class Call(NamedTuple):
    """A function that the model asked for."""

    id: str
    name: str
    arguments: str


class Heard(NamedTuple):
    """An answer, in no format."""

    text: str
    reasoning: str
    refusal: str
    calls: list[Call]
    finish: str
    """As `messages.FinishReason` names it."""
    usage: Usage | None
    cost_nano_usd: int | None
    error: Body | None
    """The inner error object of a stream that failed."""


def heard_stream(format: str, response: Response, model: str, *, fails: bool = False) -> Heard:
    """Check a streamed answer by its format's grammar and return what it says."""
    assert response.status == 200, response.body
    assert response.header("content-type") == "text/event-stream; charset=utf-8"
    parsed: ParsedStream = CHECK[format](response.body, model=model, end="error" if fails else "done")
    if fails:
        text = parsed.text
        if format == "responses":  # its items stay open
            text = "".join(
                event["delta"] for event in parsed.events if event["type"] == "response.output_text.delta"
            )
        return Heard(text, parsed.reasoning, parsed.refusal, [], "", None, None, parsed.error)
    assert parsed.usage is not None, "no usage"
    check_cost(parsed.usage)
    calls = [Call(*call) for call in parsed.tool_calls]
    return Heard(
        parsed.text,
        parsed.reasoning,
        parsed.refusal,
        calls,
        reason_of(parsed.finish, calls),
        usage_of(format, parsed.usage),
        parsed.usage["cost_nano_usd"],
        None,
    )


CHECK = {
    "chat": check_chat_stream,
    "completions": check_completions_stream,
    "responses": check_responses_stream,
    "messages": check_messages_stream,
    "gemini": check_gemini_stream,
}
_REASONS = {
    "completed": "stop",
    "max_output_tokens": "length",
    "end_turn": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "OTHER": "content_filter",  # a prompt's block reason: there is no answer at all
}


def reason_of(word: str | None, calls: list[Call]) -> str:
    """Return the finish reason that a format's word stands for; two of them have no word for calls."""
    assert word is not None, "no finish reason"
    if word in ("completed", "STOP") and calls:
        return "tool_calls"
    return _REASONS.get(word, word)


def usage_of(format: str, spelled: Body) -> Usage:
    """Return a format's usage as inclusive counts; a count of zero in details is as good as none."""
    if format == "gemini":
        thoughts = spelled.get("thoughtsTokenCount", 0)
        return Usage(
            input_tokens=spelled["promptTokenCount"] + spelled.get("toolUsePromptTokenCount", 0),
            cache_read_tokens=spelled.get("cachedContentTokenCount") or None,
            output_tokens=spelled.get("candidatesTokenCount", 0) + thoughts,
            reasoning_tokens=thoughts or None,
        )
    if format == "messages":
        cached = spelled.get("cache_read_input_tokens") or 0
        written = spelled.get("cache_creation_input_tokens") or 0
        return Usage(
            input_tokens=spelled["input_tokens"] + cached + written,
            cache_read_tokens=cached or None,
            cache_write_tokens=written or None,
            output_tokens=spelled["output_tokens"],
            reasoning_tokens=(spelled.get("output_tokens_details") or {}).get("thinking_tokens") or None,
        )
    input_key, output_key = ("prompt", "completion") if format != "responses" else ("input", "output")
    input_details = spelled.get(f"{input_key}_tokens_details") or {}
    output_details = spelled.get(f"{output_key}_tokens_details") or {}
    assert spelled["total_tokens"] == spelled[f"{input_key}_tokens"] + spelled[f"{output_key}_tokens"]
    return Usage(
        input_tokens=spelled[f"{input_key}_tokens"],
        cache_read_tokens=input_details.get("cached_tokens") or None,
        cache_write_tokens=input_details.get("cache_write_tokens") or None,
        output_tokens=spelled[f"{output_key}_tokens"],
        reasoning_tokens=output_details.get("reasoning_tokens") or None,
    )


def heard_plain(format: str, response: Response, model: str) -> Heard:
    """Check an answer that was not streamed, and return what it says."""
    assert response.status == 200, response.body
    assert response.header("content-type") == "application/json"
    body = response.json()
    assert body["modelVersion" if format == "gemini" else "model"] == model
    assert body["responseId" if format == "gemini" else "id"]
    text, reasoning, refusal, calls, finish = HEAR[format](body)
    usage = body["usageMetadata" if format == "gemini" else "usage"]
    check_cost(json.loads(json.dumps(usage), parse_float=_decimal))
    return Heard(
        text,
        reasoning,
        refusal,
        calls,
        reason_of(finish, calls),
        usage_of(format, usage),
        usage["cost_nano_usd"],
        None,
    )


def _decimal(number: str) -> Any:
    from decimal import Decimal

    return Decimal(number)


Pieces = tuple[str, str, str, list[Call], str]


def _hear_chat(body: Body) -> Pieces:
    assert body["object"] == "chat.completion"
    (choice,) = body["choices"]
    message = choice["message"]
    assert message["role"] == "assistant"
    assert "content" in message
    calls = [
        Call(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    reasoning = message.get("reasoning_content") or ""
    return (
        message["content"] or "",
        reasoning,
        message.get("refusal") or "",
        calls,
        choice["finish_reason"],
    )


def _hear_completions(body: Body) -> Pieces:
    assert body["object"] == "text_completion"
    (choice,) = body["choices"]
    return choice["text"], "", "", [], choice["finish_reason"]


def _hear_responses(body: Body) -> Pieces:
    assert body["object"] == "response"
    text = reasoning = refusal = ""
    calls = []
    for item in body["output"]:
        if item["type"] == "reasoning":
            reasoning += "".join(part["text"] for part in (item.get("content") or []) + item["summary"])
        elif item["type"] == "function_call":
            calls.append(Call(item["call_id"], item["name"], item["arguments"]))
        else:
            assert item["type"] == "message"
            text += "".join(part["text"] for part in item["content"] if part["type"] == "output_text")
            refusal += "".join(part["refusal"] for part in item["content"] if part["type"] == "refusal")
    why = (body.get("incomplete_details") or {}).get("reason")
    assert (why is None) == (body["status"] == "completed")
    return text, reasoning, refusal, calls, why or body["status"]


def _hear_messages(body: Body) -> Pieces:
    assert (body["type"], body["role"]) == ("message", "assistant")
    text = reasoning = ""
    calls = []
    for block in body["content"]:
        if block["type"] == "text":
            text += block["text"]
        elif block["type"] == "thinking":
            reasoning += block["thinking"]
            assert isinstance(block["signature"], str)
        elif block["type"] == "tool_use":
            calls.append(Call(block["id"], block["name"], json.dumps(block["input"], ensure_ascii=False)))
        else:
            assert block["type"] == "redacted_thinking"
    return text, reasoning, "", calls, body["stop_reason"]


def _hear_gemini(body: Body) -> Pieces:
    if "promptFeedback" in body:
        assert not body.get("candidates")
        return "", "", "", [], body["promptFeedback"]["blockReason"]
    (candidate,) = body["candidates"]
    assert candidate["content"]["role"] == "model"
    text = reasoning = ""
    calls = []
    for part in candidate["content"]["parts"]:
        if "functionCall" in part:
            call = part["functionCall"]
            calls.append(Call(call.get("id", ""), call["name"], json.dumps(call["args"], ensure_ascii=False)))
            text += part.get("text", "")
        elif part.get("thought"):
            reasoning += part["text"]
        else:
            text += part.get("text", "")
    return text, reasoning, "", calls, candidate["finishReason"]


HEAR = {
    "chat": _hear_chat,
    "completions": _hear_completions,
    "responses": _hear_responses,
    "messages": _hear_messages,
    "gemini": _hear_gemini,
}


class Told(NamedTuple):
    """An error in words that are the same for every format."""

    status: int
    word: str | None
    """The type, or Gemini's status string."""
    message: str


_WORDS: dict[str, tuple[tuple[int, str], tuple[int, str], tuple[int, str]]] = {
    "bad_request": (
        (400, "invalid_request_error"),
        (400, "invalid_request_error"),
        (400, "INVALID_ARGUMENT"),
    ),
    "unsupported_feature": (
        (400, "invalid_request_error"),
        (400, "invalid_request_error"),
        (400, "INVALID_ARGUMENT"),
    ),
    "upstream_auth": ((502, "server_error"), (502, "api_error"), (503, "UNAVAILABLE")),
    "rate_limited": ((429, "rate_limit_error"), (429, "rate_limit_error"), (429, "RESOURCE_EXHAUSTED")),
    "upstream_error": ((502, "server_error"), (502, "api_error"), (503, "UNAVAILABLE")),
    "overloaded": ((503, "service_unavailable_error"), (529, "overloaded_error"), (503, "UNAVAILABLE")),
}
"""Kind: status and word for OpenAI's formats, Messages and Gemini. Source: wire formats page `errors.md`."""


def wording(format: str, kind: str) -> tuple[int, str]:
    """Return the status and word by which a format must tell a kind of error."""
    openai, messages, gemini = _WORDS[kind]
    return {"messages": messages, "gemini": gemini}.get(format, openai)


def told_error(format: str, response: Response) -> Told:
    """Check an error answer's shape and return what it says."""
    assert response.header("content-type") == "application/json"
    body = response.json()
    error = body["error"]
    if format == "gemini":
        assert error["code"] == response.status
        return Told(response.status, error["status"], error["message"])
    if format == "messages":
        assert body["type"] == "error"
        assert body["request_id"]
    else:
        assert {"message", "type", "param", "code"} <= error.keys()
    return Told(response.status, error["type"], error["message"])


def told_inside(format: str, error: Body | None) -> Told:
    """Return what the error event of a stream says; the status is what the event claims."""
    assert error is not None
    word = error.get("status") if format == "gemini" else error.get("type")
    return Told(200, word, error["message"])


def stream_events(format: str, response: Response) -> list[Body]:
    """Return the JSON objects of a streamed answer."""
    lines = [line.removeprefix("data: ") for line in response.body.decode().split("\n")]
    return [json.loads(line) for line in lines if line.startswith("{")]
