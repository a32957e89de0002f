"""The grammar of a legacy Completions stream as the gate must emit it. Source: contract C10; wire/completions.md."""

from typing import Any, Literal

from tests.grammar.chat import Identity, check_error, check_usage
from tests.grammar.narrow_sse import ParsedStream, check_cost, check_events, parse_object

FINISH_REASONS = {"stop", "length", "content_filter"}


def check_completions_stream(
    raw: bytes,
    *,
    model: str | None = None,
    usage: bool | None = None,
    continuous: bool = False,
    cost_nano_usd: int | None = None,
    end: Literal["done", "error"] | None = "done",
    keepalive: bool = False,
) -> ParsedStream:
    """Check the body of a streamed completion and return what it said; arguments as `check_chat_stream`.

    Raises: AssertionError with what is wrong.
    """
    events, kept = check_events(raw, keepalive="comment" if keepalive else None)
    identity = Identity("text_completion", model)
    texts: dict[int, str] = {}
    finishes: dict[int, str] = {}
    chunks: list[dict[str, Any]] = []
    final: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    done = False
    for event in events:
        assert not done, f"something follows [DONE]: {event.data!r}"
        assert error is None, f"something follows the error: {event.data!r}"
        if event.data == "[DONE]":
            done = True
            continue
        chunk = parse_object(event.data)
        if chunk.get("error"):
            error = check_error(chunk)
            continue
        chunks.append(chunk)
        identity.check(chunk)
        assert final is None, f"a chunk follows the usage chunk: {event.data!r}"
        told, listed = chunk.get("usage"), chunk.get("choices")
        assert isinstance(listed, list), f"choices is {listed!r}"
        if told is not None:
            check_usage(told)
            assert continuous or not listed, f"usage beside choices: {event.data!r}"
            final = told if not listed else None
        for choice in listed:
            index, text, finish = choice.get("index"), choice.get("text"), choice.get("finish_reason")
            assert isinstance(index, int), f"index is {index!r}"
            assert isinstance(text, str), f"text is {text!r}"
            assert index not in finishes, f"choice {index} goes on after its finish"
            texts[index] = texts.get(index, "") + text
            if finish is not None:
                assert finish in FINISH_REASONS, f"finish_reason is {finish!r}"
                finishes[index] = finish
    assert done or error is not None, "neither [DONE] nor an error: a false end"
    assert end != "done" or done, f"it ended with the error {error}"
    assert end != "error" or error is not None, "it ended with [DONE], not with an error"
    if done:
        assert texts, "no choice at all"
        assert texts.keys() == finishes.keys(), (
            f"choices {texts.keys() - finishes.keys()} have no finish_reason"
        )
        if usage is not None:
            assert (final is not None) == usage, "usage is missing" if usage else f"unasked usage {final}"
    if cost_nano_usd is not None:
        assert final is not None, "no usage, so no cost"
        check_cost(final, cost_nano_usd)
    ordered = tuple(texts[index] for index in sorted(texts))
    return ParsedStream(
        text=ordered[0] if ordered else "",
        reasoning="",
        refusal="",
        tool_calls=[],
        finish=finishes.get(0),
        usage=final,
        error=error,
        events=chunks,
        keepalives=kept,
        texts=ordered,
    )
