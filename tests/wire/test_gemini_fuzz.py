"""Gemini objects bent out of shape: nothing but the codec's own errors may come of them."""

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.capabilities import Capabilities
from sluicegate.errors import ClientError, DecodeError
from sluicegate.messages import Usage
from sluicegate.wire import Bill
from sluicegate.wire.gemini import CODEC
from sluicegate.wire.json_elements import ElementReader
from sluicegate.wire.translation import Notes
from tests.profiles import examples
from tests.wire.gemini_world import ASKED, COST, USAGE, call, candidate, decoded, response, run, text

JUNK = [
    None,
    True,
    0,
    -1,
    1.5,
    1e300,
    10**30,
    "",
    "x",
    "\ud83d",
    [],
    {},
    [None],
    [{}],
    {"a": 1},
    "STOP",
    "Z3cxLg==",
]
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
GROUNDING = {
    "groundingChunks": [{"web": {"uri": "u", "title": "t"}}],
    "groundingSupports": [
        {"segment": {"startIndex": 1, "endIndex": 3, "partIndex": 0}, "groundingChunkIndices": [0]}
    ],
}
ANSWER = response(
    candidate(
        text("a", thoughtSignature="QUJD"),
        call("f", {"a": [1]}, "c"),
        text("t", thought=True),
        PICTURE,
        {"executableCode": {"language": "PY", "code": "x"}},
        finish="STOP",
        groundingMetadata=GROUNDING,
        logprobsResult={
            "chosenCandidates": [{"token": "a", "logProbability": -1}],
            "topCandidates": [{"candidates": [{"token": "a"}]}],
        },
        citationMetadata={"citationSources": [{"uri": "u", "startIndex": 1, "endIndex": 2}]},
    ),
    usage=USAGE,
    promptFeedback={"blockReason": None},
)
REQUEST: dict[str, Any] = {
    "contents": [
        {"role": "user", "parts": [{"text": "a"}, PICTURE]},
        {"role": "model", "parts": [call("f", {"a": 1}, "c", thoughtSignature="Z3cxLmdvb2dsZQ==")]},
        {
            "parts": [
                {
                    "functionResponse": {
                        "name": "f",
                        "id": "c",
                        "response": {"output": "x"},
                        "parts": [PICTURE],
                    }
                }
            ]
        },
    ],
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": [
        {
            "functionDeclarations": [
                {"name": "f", "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}}
            ]
        }
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    "generationConfig": {
        "topK": 2,
        "candidateCount": 1,
        "maxOutputTokens": 4,
        "stopSequences": ["a"],
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True},
    },
    "safetySettings": [{"threshold": "OFF"}],
}


def bent(value: Any, chance: random.Random) -> Any:
    """Return a value in which something here and there is missing, added or of another kind."""
    if chance.random() < 0.02:
        return chance.choice(JUNK)
    if isinstance(value, dict):
        found = {key: bent(inner, chance) for key, inner in value.items() if chance.random() > 0.01}
        if chance.random() < 0.01:
            found[chance.choice(["x", "text", "parts", "thought", "error", "index"])] = chance.choice(JUNK)
        return found
    if isinstance(value, list):
        return [bent(item, chance) for item in value if chance.random() > 0.01]
    return value


@pytest.mark.parametrize("seed", range(4))
def test_bent_answers_give_events_or_decode_error(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        payloads = [json.dumps(bent(ANSWER, chance)).encode() for _ in range(2)]
        body = b"".join(b"data: " + payload + b"\n\n" for payload in payloads)
        with suppress(DecodeError):
            decoded([body])
        run([body], repair=chance.random() < 0.5)
        with suppress(DecodeError):
            CODEC.decode_answer(payloads[0], Capabilities())
        with suppress(DecodeError):
            answer = CODEC.pass_answer(ASKED, payloads[0])
            if answer.error is None:
                answer.texts()
                answer.encode(Bill(Usage(input_tokens=1), in_usage=COST))


@pytest.mark.parametrize("seed", range(4))
def test_bent_requests_are_taken_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    can = Capabilities(clean_schemas=True, signed_calls=True)
    taken = 0
    for _ in range(200):
        body = json.dumps(bent(REQUEST, chance)).encode()
        with suppress(ClientError):
            read = CODEC.read_request(body, "m", True)
            json.loads(read.upstream_body("x", ask_usage=True, max_output_tokens=3, drop=("tools",)))
            request = CODEC.decode_request(body, Notes("lenient"), "m")
            json.loads(CODEC.encode_request(request, "m", can, Notes("lenient")))
            taken += 1
    assert taken > 20


OBJECTS = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\[]{},é', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='a"\\{}', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.dictionaries(st.just("k"), OBJECTS, min_size=1), max_size=3), st.booleans(), st.integers(1, 5)
)
def test_objects_are_found_at_any_cut(values: list[Any], array: bool, size: int) -> None:
    spelled = [json.dumps(value, ensure_ascii=False).encode() for value in values]
    data = b"[" + b",\r\n".join(spelled) + b"]\n" if array else b"\n".join(spelled)
    reader = ElementReader(1000)
    found = [one for at in range(0, len(data), size) for one in reader.feed(data[at : at + size])]
    assert found == spelled
    assert not reader.inside
