"""Answers of the endpoints that give no text: right in shape, and the same for the same question.

A vector is made from the digest of its input, so that equal inputs are equal vectors and joined batches can be told
apart. Usage counts four bytes a token.
"""

import array
import base64
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec

from sluicegate.simulator.script import Event, Script, Send

DIMENSIONS = 8
IMAGE_TOKENS, INPUT_IMAGE_TOKENS = 1290, 258
"""What a Gemini model counts for a picture that it makes, and for one that it is given."""


def script_of(path: str, body: bytes) -> Script | None:
    """Return what answers a question, or None where a path is no endpoint of these.

    Raises:
        msgspec.MsgspecError: the body is not JSON.
    """
    if path.endswith(":generateContent"):
        asked = msgspec.json.decode(body)
        made = _native_images(asked) if _wants_pictures(asked) else None
        return None if made is None else Script(body=msgspec.json.encode(made).decode())
    for end, answer in _ANSWERS.items():
        if path.endswith(end):
            asked = form_of(body) if is_form(body) else msgspec.json.decode(body)
            told = answer(asked if isinstance(asked, dict) else {})
            return told if isinstance(told, Script) else Script(body=msgspec.json.encode(told).decode())
    return None


def is_endpoint(path: str) -> bool:
    """Whether a path is one of these."""
    return path.endswith(tuple(_ANSWERS))


def is_form(body: bytes) -> bool:
    """Whether a body is a form with files, by how it begins."""
    return body.startswith(b"--")


def form_of(body: bytes) -> dict[str, Any]:
    """Return a form's fields: texts, and the bytes of files."""
    boundary = body.partition(b"\r\n")[0].rstrip(b" \t")
    fields: dict[str, Any] = {}
    for part in body.split(boundary)[1:-1]:
        head, _, value = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = head.partition(b'name="')[2].partition(b'"')[0].decode()
        value = value.removesuffix(b"\r\n")
        fields[name] = value if b"filename=" in head else value.decode()
    return fields


def vector(given: Any, dimensions: int = DIMENSIONS) -> list[float]:
    """Return the vector of an input: multiples of 1/128, which every encoding holds exactly."""
    digest = blake2b(msgspec.json.encode(given), digest_size=64).digest()
    return [(digest[at % 64] - 128) / 128 for at in range(dimensions)]


def tokens(given: Any) -> int:
    """Return the tokens that an input counts."""
    return len(given) if isinstance(given, list) else max(1, len(str(given).encode()) // 4)


def _embeddings(asked: dict[str, Any]) -> dict[str, Any]:
    inputs = asked.get("input", "")
    if isinstance(inputs, str) or (inputs and isinstance(inputs[0], int)):
        inputs = [inputs]
    vectors: list[Any] = [vector(given, asked.get("dimensions") or DIMENSIONS) for given in inputs]
    if asked.get("encoding_format") == "base64":
        vectors = [base64.b64encode(array.array("f", floats).tobytes()).decode() for floats in vectors]
    data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(vectors)]
    read = sum(map(tokens, inputs))
    usage = {"prompt_tokens": read, "total_tokens": read}
    return {"object": "list", "data": data, "model": asked.get("model"), "usage": usage}


def _text_of(request: dict[str, Any]) -> str:
    return "\n".join(part.get("text", "") for part in request.get("content", {}).get("parts", ()))


def _embed_content(asked: dict[str, Any]) -> dict[str, Any]:
    text = _text_of(asked)
    values = vector(text, asked.get("outputDimensionality") or DIMENSIONS)
    return {"embedding": {"values": values}, "usageMetadata": {"promptTokenCount": tokens(text)}}


def _batch_embed_contents(asked: dict[str, Any]) -> dict[str, Any]:
    requests = asked.get("requests", [])
    answers = [_embed_content(request) for request in requests]
    read = sum(answer["usageMetadata"]["promptTokenCount"] for answer in answers)
    return {
        "embeddings": [answer["embedding"] for answer in answers],
        "usageMetadata": {"promptTokenCount": read, "totalTokenCount": read},
    }


def _moderations(asked: dict[str, Any]) -> dict[str, Any]:
    inputs = asked.get("input", "")
    count = 1 if isinstance(inputs, str) else len(inputs)
    result = {"flagged": False, "categories": {"violence": False}, "category_scores": {"violence": 0.01}}
    return {"id": "modr-1", "model": asked.get("model"), "results": [result] * count}


def _rerank(asked: dict[str, Any]) -> dict[str, Any]:
    documents = asked.get("documents", [])
    scored = sorted(
        ({"index": at, "relevance_score": abs(vector(one)[0])} for at, one in enumerate(documents)),
        key=lambda result: -result["relevance_score"],
    )
    read = tokens(asked.get("query")) + sum(map(tokens, documents))
    results = scored[: asked.get("top_n") or len(scored)]
    return {"model": asked.get("model"), "results": results, "usage": {"total_tokens": read}}


def _images(asked: dict[str, Any]) -> dict[str, Any]:
    picture = base64.b64encode(str(asked.get("prompt")).encode()).decode()
    count = asked.get("n") or 1
    read, made = tokens(asked.get("prompt")), 100 * count
    usage = {
        "input_tokens": read,
        "output_tokens": made,
        "total_tokens": read + made,
        "input_tokens_details": {"text_tokens": read, "image_tokens": 0},
    }
    told = {"created": 1, "data": [{"b64_json": picture}] * count, "usage": usage}
    return told | {key: asked[key] for key in ("size", "quality") if key in asked}


def _images_or_previews(asked: dict[str, Any], kind: str = "image_generation") -> dict[str, Any] | Script:
    told = _images(asked)
    if asked.get("stream") is not True:
        return told
    picture = told["data"][0]
    previews = [
        {"type": f"{kind}.partial_image", "partial_image_index": at, **picture}
        for at in range(asked.get("partial_images") or 0)
    ]
    last = {"type": f"{kind}.completed", **picture, "usage": told["usage"]}
    return _events([*previews, last])


def spoken(text: str) -> bytes:
    """Return the sound of a text: its characters, each as two bytes, the first of which is white space."""
    return text.encode("utf-16-be").replace(b"\0", b" ")


def _speech(asked: dict[str, Any]) -> Script:
    sound = spoken(asked.get("input", ""))
    pieces = [sound[at : at + 16] for at in range(0, len(sound), 16)]
    if asked.get("stream_format") != "sse":
        steps = tuple(Send(data=piece) for piece in pieces)
        return Script(headers=(("content-type", "audio/mpeg"),), steps=steps)
    read = tokens(asked.get("input"))
    deltas = [{"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()} for piece in pieces]
    usage = {"input_tokens": read, "output_tokens": len(sound), "total_tokens": read + len(sound)}
    return _events([*deltas, {"type": "speech.audio.done", "usage": usage}])


def _transcription(asked: dict[str, Any]) -> dict[str, Any] | Script:
    sound: bytes = asked["file"]
    text = f"I heard {len(sound)} bytes"
    form = asked.get("response_format", "json")
    if form in ("text", "srt", "vtt"):
        return Script(body=text + "\n", headers=(("content-type", "text/plain"),))
    if form == "verbose_json":
        return {"task": "transcribe", "language": "english", "duration": len(sound) / 1000, "text": text}
    usage = {
        "type": "tokens",
        "input_tokens": 20,
        "output_tokens": 5,
        "total_tokens": 25,
        "input_token_details": {"audio_tokens": 20, "text_tokens": 0},
    }
    if asked.get("stream") != "true":
        return {"text": text, "usage": usage}
    words = [{"type": "transcript.text.delta", "delta": f"{word} "} for word in text.split()]
    return _events([*words, {"type": "transcript.text.done", "text": text, "usage": usage}])


def _edit(asked: dict[str, Any]) -> dict[str, Any] | Script:
    if "images" in asked:  # a JSON body
        prompt = f"{len(asked['images'])} pictures {asked.get('prompt', '')}"
        return _images_or_previews({**asked, "prompt": prompt}, "image_edit")
    given: bytes = asked.get("image") or asked["image[]"]
    prompt = f"{len(given)} bytes {asked.get('prompt', '')}"
    return _images({**asked, "prompt": prompt, "n": int(asked.get("n", 1))})


def _events(events: list[dict[str, Any]]) -> Script:
    steps = tuple(Event(data=msgspec.json.encode(event).decode(), event=event["type"]) for event in events)
    return Script(headers=(("content-type", "text/event-stream"),), steps=steps)


def _predict(asked: dict[str, Any]) -> dict[str, Any]:
    (instance,) = asked["instances"]
    picture = base64.b64encode(instance["prompt"].encode()).decode()
    count = asked.get("parameters", {}).get("sampleCount", 1)
    return {"predictions": [{"bytesBase64Encoded": picture, "mimeType": "image/png"}] * count}


def _wants_pictures(asked: Any) -> bool:
    config = asked.get("generationConfig") if isinstance(asked, dict) else None
    return isinstance(config, dict) and "IMAGE" in config.get("responseModalities", ())


def native_picture(text: str) -> bytes:
    """Return the picture that a Gemini model makes of a text, with what it was given beside it."""
    return b"\x89PNG\r\n\x1a\n" + text.encode()


def _native_images(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer as a model does that makes pictures as parts: one a call, and no candidates beside it."""
    if asked["generationConfig"].get("candidateCount", 1) > 1:
        message = "Multiple candidates is not enabled for this model"
        return {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}
    parts = [part for content in asked["contents"] for part in content["parts"]]
    given = [base64.b64decode(part["inlineData"]["data"]) for part in parts if "inlineData" in part]
    prompt = "".join(part.get("text", "") for part in parts)
    text = "".join(f"{len(one)} bytes " for one in given) + prompt
    picture = base64.b64encode(native_picture(text)).decode()
    read, seen = tokens(prompt), INPUT_IMAGE_TOKENS * len(given)
    details = [{"modality": "TEXT", "tokenCount": read}]
    if given:
        details.append({"modality": "IMAGE", "tokenCount": seen})
    return {
        "candidates": [
            {
                "content": {
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": picture}}],
                    "role": "model",
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": read + seen,
            "candidatesTokenCount": IMAGE_TOKENS,
            "totalTokenCount": read + seen + IMAGE_TOKENS,
            "promptTokensDetails": details,
            "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": IMAGE_TOKENS}],
        },
        "modelVersion": "gemini-image",
        "responseId": "resp-picture",
    }


_ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any] | Script]] = {
    "/images/generations": _images_or_previews,
    "/audio/speech": _speech,
    "/audio/transcriptions": _transcription,
    "/audio/translations": _transcription,
    "/images/edits": _edit,
    "/images/variations": _edit,
    ":predict": _predict,
    "/embeddings": _embeddings,
    ":embedContent": _embed_content,
    ":batchEmbedContents": _batch_embed_contents,
    "/moderations": _moderations,
    "/rerank": _rerank,
}
