"""How a provider is asked to go on with an answer that another began: the request, and behind it the text so far.

On the same format the client's body is edited at its offsets; across formats a turn joins `messages.Request`. Which
models can do that is `Capabilities.continuation`. Source: translation matrix, section 34; the vendors' pages on
prefilled answers: Anthropic, Gemini; Mistral and DeepSeek (`prefix`); vLLM and SGLang (`continue_final_message`).
"""

import msgspec

from sluicegate.capabilities import Capabilities
from sluicegate.messages import Format, Message, Request, Text
from sluicegate.wire import json_edit
from sluicegate.wire.json_text import quote

_FLAGS = {"add_generation_prompt": b"false", "continue_final_message": b"true"}


def takes_over(target: Format, can: Capabilities) -> bool:
    """Whether a model of a format goes on with a partial answer, and how that is asked for is known."""
    if target == "chat":
        return can.continuation != "none"
    return target != "responses" and can.continuation == "turn" and can.prefill


def may_be_taken_over(request: Request) -> bool:
    """Whether another provider may answer the rest of a request: it has to be one plain text, freely written.

    Thinking cannot be gone on with, as nobody but who thought knows the thought; a shape that is enforced, a call that
    is demanded and probabilities begin with the first token. Where the last turn is the assistant's already, its
    end and the answer's beginning could not be told apart.
    """
    control, choice = request.reasoning, request.tool_choice
    thinks = control is not None and (control.effort or "none", control.budget_tokens or 0) != ("none", 0)
    return not (
        thinks
        or request.choices > 1
        or request.others
        or request.logprobs
        or request.response_format is not None
        or (choice is not None and choice.mode in ("required", "tool"))
        or request.web_search is not None
        or request.suffix
        or request.echo
        or not request.messages
        or request.messages[-1].role == "assistant"
    )


def with_turn(request: Request, text: str) -> Request:
    """Return a request whose last turn is the partial answer."""
    turn = Message(role="assistant", parts=[Text(text=text)])
    return msgspec.structs.replace(request, messages=[*request.messages, turn], continues=False)


def body_with_text(body: bytes, target: Format, text: str) -> bytes | None:
    """Return a client's body with the partial answer behind it; None where the format has no place for it."""
    top = json_edit.decode_top(body, target)
    match target:
        case "chat" | "messages":
            turn = b'{"role":"assistant","content":%b}' % quote(text)
            return json_edit.changed(body, {"messages": _appended(bytes(top["messages"]), turn)})
        case "gemini":
            turn = b'{"role":"model","parts":[{"text":%b}]}' % quote(text)
            return json_edit.changed(body, {"contents": _appended(bytes(top["contents"]), turn)})
        case "completions":
            prompt = msgspec.json.decode(top["prompt"])
            if isinstance(prompt, str):  # of several, or of tokens, it is not known where it ends
                return json_edit.changed(body, {"prompt": quote(prompt + text)})
    return None


def marked(body: bytes, target: Format, can: Capabilities) -> bytes:
    """Return a provider's body in which the last turn is marked as partial, as this one wants it."""
    if target != "chat" or can.continuation == "turn":
        return body
    if can.continuation == "final_message":
        return json_edit.changed(body, _FLAGS)
    messages = msgspec.json.decode(json_edit.decode_top(body, target)["messages"], type=list[msgspec.Raw])
    last = json_edit.changed(bytes(messages[-1]), {"prefix": b"true"})
    turns = b",".join([*(bytes(message) for message in messages[:-1]), last])
    return json_edit.changed(body, {"messages": b"[%b]" % turns})


def _appended(array: bytes, element: bytes) -> bytes:
    inside = array.strip()[1:-1].strip()
    return b"[%b,%b]" % (inside, element) if inside else b"[%b]" % element
