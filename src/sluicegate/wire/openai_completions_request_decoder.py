"""A legacy Completions client's request for a model that is asked in messages: the prompt becomes one user message.

That changes what a model does, it answers instead of going on, and so it is told. What only a completions server can
do is refused. Source: wire formats page `completions.md`, "Request" and "Translating it".
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sluicegate.messages import Message, Request, Text
from sluicegate.wire import json_edit
from sluicegate.wire.openai_chat_body import Name, Penalty, Sampling, Share
from sluicegate.wire.openai_completions_request import DEFAULT_MAX_TOKENS
from sluicegate.wire.translation import Notes, bad_field
from sluicegate.wire.typed_body import decode_typed

MAX_PROMPTS = 32


class _Body(msgspec.Struct, kw_only=True):
    model: Name
    prompt: str | list[Any] | None = None
    suffix: str | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    temperature: Sampling = None
    top_p: Share = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=128)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    stop: str | list[Name] | None = None
    frequency_penalty: Penalty = None
    presence_penalty: Penalty = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    seed: int | None = None
    user: str | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Body)


def decode_request(body: bytes, notes: Notes, path_model: str | None = None) -> Request:
    """Decode a body; that it names the model itself makes `path_model` of no matter. See `RequestDecoder`."""
    fields = decode_typed(_decoder, body)
    first, *others = [
        [Message(role="user", parts=[Text(text=prompt)], path=path)]
        for path, prompt in _prompts(fields.prompt, notes)
    ]
    choices = fields.n or 1
    if fields.suffix:
        notes.reject("suffix", "text cannot be filled in")
    if fields.best_of is not None and fields.best_of > choices:
        notes.reject("best_of", "answers are not compared")
    if fields.echo and fields.logprobs is not None:
        notes.reject("logprobs", "the prompt's own probabilities are not known")
    if fields.max_tokens == 0:
        notes.reject("max_tokens", "an answer needs at least one token")
    for key, value in json_edit.decode_top(body, "completions").items():
        if key not in _Body.__struct_fields__ and bytes(value) != b"null":
            notes.warn(key, "unknown field")
    notes.warn("prompt", "asked as a user message")
    stop = fields.stop or []
    return Request(
        model=fields.model,
        messages=first,
        others=others,
        stream=fields.stream or False,
        max_output_tokens=DEFAULT_MAX_TOKENS if fields.max_tokens is None else fields.max_tokens,
        limit_is_visible=True,
        temperature=fields.temperature,
        top_p=fields.top_p,
        stop=[stop] if isinstance(stop, str) else stop,
        seed=fields.seed,
        choices=choices,
        frequency_penalty=fields.frequency_penalty or None,
        presence_penalty=fields.presence_penalty or None,
        logit_bias=fields.logit_bias or None,
        logprobs=fields.logprobs is not None,
        top_logprobs=fields.logprobs,
        user=fields.user or None,
        echo=fields.echo or False,
    )


def _prompts(prompt: str | list[Any] | None, notes: Notes) -> list[tuple[str, str]]:
    """Return the prompts of a request, each behind its path.

    Raises:
        BadRequest: there is none, or one is no prompt at all.
        UnsupportedFeature: there are too many, or one is spelled in the tokens of one model.
    """
    if prompt is None:
        raise bad_field("prompt", "missing required parameter")
    entries = prompt if isinstance(prompt, list) else [prompt]
    if not entries or entries == [""]:
        raise bad_field("prompt", "must not be empty")
    if any(isinstance(entry, int | list) for entry in entries):
        notes.reject("prompt", "token ids mean something to one model only")
    for place, entry in enumerate(entries):
        if not isinstance(entry, str):
            raise bad_field(f"prompt[{place}]", "expected a string")
        if not entry:
            raise bad_field(f"prompt[{place}]", "must not be empty")
    if len(entries) > MAX_PROMPTS:
        notes.reject("prompt", f"at most {MAX_PROMPTS} prompts, each of which is a request to its provider")
    if isinstance(prompt, str) or len(entries) == 1:
        return [("prompt", entries[0])]
    return [(f"prompt[{place}]", entry) for place, entry in enumerate(entries)]
