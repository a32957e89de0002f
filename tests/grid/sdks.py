"""The client's side of the grid once more, spoken by the official Python SDKs, unmodified: `openai`, `anthropic`,
`google-genai`. What an SDK parsed and put together is read by the same readers as raw answers.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import anthropic
import openai
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from tests.conftest import KEY
from tests.grid.scenes import Prompt
from tests.grid.speaking import HEAR, Body, Heard, Told, reason_of, said, usage_of
from tests.grid.turns import joined

Way = Literal["plain", "raw", "helper"]
"""Not streamed; iterating over a stream; the SDK's helper that puts an answer together."""

SdkError = (openai.APIError, anthropic.APIError, genai_errors.APIError)
HELPERS_RAISE = {
    "chat": (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError),
    "responses": (RuntimeError,),
}
"""What a helper raises where a limit or a filter cut the answer: as with the vendor's own servers."""


class Sdks:
    """One client of each SDK."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self._openai = openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=10.0, default_headers=headers
        )
        self._anthropic = anthropic.AsyncAnthropic(
            base_url=url, api_key=KEY, max_retries=0, timeout=10.0, default_headers=headers
        )
        options = genai_types.HttpOptions(base_url=url, timeout=10_000, headers=headers)
        self._genai = genai.Client(api_key=KEY, http_options=options)

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str, headers: dict[str, str] | None = None) -> AsyncIterator["Sdks"]:
        """Open the clients of a gate.

        Args:
            headers: sent with every request.
        """
        sdks = cls(url, headers)
        try:
            yield sdks
        finally:
            await sdks._openai.close()
            await sdks._anthropic.close()
            await sdks._genai.aio.aclose()
            sdks._genai.close()

    async def ask(self, format: str, model: str, prompt: Prompt, way: Way) -> Heard:
        """Ask and return what the SDK heard; raises its errors."""
        body = said(format, model, prompt, way == "raw")
        if way != "raw":
            body.pop("stream", None)
        return await self.say(format, model, body, way)

    async def say(self, format: str, model: str, body: Body, way: Way = "plain") -> Heard:
        """Send a request as it is written on the wire, less what the SDK itself adds."""
        match format:
            case "chat":
                return await self._chat(body, way)
            case "completions":
                return await self._completions(body, way)
            case "responses":
                return await self._responses(body, way)
            case "messages":
                return await self._messages(body, way)
            case _:
                return await self._gemini(model, body, way)

    async def _chat(self, body: Body, way: Way) -> Heard:
        chats = self._openai.chat.completions
        if way == "plain":
            return heard("chat", dump(await chats.create(**body)))
        if way == "helper":
            async with chats.stream(**body, stream_options={"include_usage": True}) as stream:
                deltas = [event.delta async for event in stream if event.type == "content.delta"]
                final = dump(await stream.get_final_completion())
            for choice in final["choices"]:
                choice["message"].setdefault("content", None)  # where no delta had one
            answer = heard("chat", final)
            assert "".join(deltas) == answer.text
            return answer
        return heard("chat", joined("chat", [dump(chunk) async for chunk in await chats.create(**body)]))

    async def _completions(self, body: Body, way: Way) -> Heard:
        if way == "plain":
            return heard("completions", dump(await self._openai.completions.create(**body)))
        stream = await self._openai.completions.create(**body)
        return heard("completions", joined("completions", [dump(chunk) async for chunk in stream]))

    async def _responses(self, body: Body, way: Way) -> Heard:
        responses = self._openai.responses
        if way == "plain":
            return heard("responses", dump(await responses.create(**body)))
        if way == "helper":
            async with responses.stream(**body) as stream:
                deltas = [e.delta async for e in stream if e.type == "response.output_text.delta"]
                answer = heard("responses", dump(await stream.get_final_response()))
            assert "".join(deltas) == answer.text
            return answer
        events = [dump(event) async for event in await responses.create(**body)]
        return heard("responses", joined("responses", events))

    async def _messages(self, body: Body, way: Way) -> Heard:
        messages = self._anthropic.messages
        if way == "plain":
            return heard("messages", dump(await messages.create(**body)))
        if way == "helper":
            async with messages.stream(**body) as stream:
                deltas = [text async for text in stream.text_stream]
                answer = heard("messages", dump(await stream.get_final_message()))
            assert "".join(deltas) == answer.text
            return answer
        events = [dump(event) async for event in await messages.create(**body)]
        return heard("messages", joined("messages", events))

    async def _gemini(self, model: str, body: Body, way: Way) -> Heard:
        config = genai_types.GenerateContentConfig.model_validate(
            {name: body[name] for name in ("systemInstruction", "tools") if name in body}
            | body.get("generationConfig", {})
            | {"automaticFunctionCalling": {"disable": True}}
        )
        models, contents = self._genai.aio.models, body["contents"]
        if way == "plain":
            answer = await models.generate_content(model=model, contents=contents, config=config)
            return heard("gemini", dump(answer))
        if way == "raw":
            stream = await models.generate_content_stream(model=model, contents=contents, config=config)
            return heard("gemini", joined("gemini", [dump(chunk) async for chunk in stream]))
        chat = self._genai.aio.chats.create(model=model, config=config)
        parts = [genai_types.Part.model_validate(part) for part in contents[0]["parts"]]
        answer = heard(
            "gemini", joined("gemini", [dump(chunk) async for chunk in await chat.send_message_stream(parts)])
        )
        history = chat.get_history(curated=True)
        assert {content.role for content in history} == {"user", "model"}, "the session dropped the turn"
        return answer


def dump(model: Any) -> Body:
    """Return what an SDK parsed, spelled as on the wire."""
    dumped: Body = model.model_dump(by_alias=True, exclude_unset=True, warnings=False)
    return dumped


def heard(format: str, body: Body) -> Heard:
    """Read an answer; the cost where the SDK lets it be seen."""
    text, reasoning, refusal, calls, finish = HEAR[format](body)
    usage = body["usageMetadata" if format == "gemini" else "usage"]
    cost = usage.get("cost_nano_usd")
    return Heard(
        text, reasoning, refusal, calls, reason_of(finish, calls), usage_of(format, usage), cost, None
    )


def told_by(error: Exception) -> Told:
    """Return what an SDK's error says; the status is 200 for one that came inside a stream."""
    match error:
        case genai_errors.APIError():
            return Told(error.code, error.status, error.message or "")
        case anthropic.APIStatusError():
            assert isinstance(error.body, dict)
            inner = error.body["error"]
            return Told(error.status_code, inner["type"], inner["message"])
        case openai.APIStatusError():
            assert isinstance(error.body, dict)
            return Told(error.status_code, error.type, error.body["message"])
        case openai.APIError():
            return Told(200, error.type, error.message)
    raise AssertionError(f"not an SDK's error: {error!r}")
