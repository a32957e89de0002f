"""Something odd at any place of a request, in any format and at any endpoint, is the client's error, not the gate's."""

import json
from typing import Any

import pytest

from tests.conftest import KEY, MODEL
from tests.fakes import Client, request_bytes
from tests.inprocess import InProcessGate
from tests.transcripts.test_odd_values import places

ODD = ("1e999", '{"id":1e999}', "[1e999]", "[{}]", r'"\ud800"', "null", "-1", "99999999999999999999")
"""Numbers beyond all bounds and halves of characters are JSON that cannot be read; a list cannot be looked up."""
PLACE = "@here@"
PNG = "data:image/png;base64,iVBORw0KGgo="
SAID = {"role": "user", "content": [{"type": "text", "text": "a"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": MODEL, "messages": [SAID], "n": 1, "max_tokens": 3, "stop": ["a"]},
    "/v1/completions": {"model": MODEL, "prompt": ["a"], "max_tokens": 3, "best_of": 1, "stream": False},
    "/v1/responses": {"model": MODEL, "input": [{"role": "user", "content": "a"}], "max_output_tokens": 16},
    "/v1/messages": {"model": MODEL, "max_tokens": 3, "messages": [SAID], "metadata": {"user_id": "u"}},
    f"/v1beta/models/{MODEL}:generateContent": {"contents": [{"parts": [{"text": "a"}]}]},
    "/v1/embeddings": {"model": MODEL, "input": ["a"], "dimensions": 3, "encoding_format": "base64"},
    "/v1/moderations": {
        "model": MODEL,
        "input": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": PNG}}],
    },
    "/v1/rerank": {"model": MODEL, "query": "a", "documents": ["a", {"text": "b"}], "top_n": 1},
    "/v1/images/generations": {"model": MODEL, "prompt": "a", "n": 1, "size": "256x256", "quality": "low"},
    "/v1/images/edits": {"model": MODEL, "prompt": "a", "images": [{"image_url": PNG}, {"file_id": "f"}]},
    "/v1/audio/speech": {"model": MODEL, "input": "a", "voice": {"id": "x"}, "speed": 1},
    "/v1/videos": {"model": MODEL, "prompt": "a", "seconds": "4", "input_reference": {"file_id": "f"}},
    "/v1/videos/edits": {"prompt": "a", "video": {"id": "video_x"}},
    "/v1/videos/extensions": {"prompt": "a", "video": {"id": "video_x"}, "seconds": "4"},
    "/v1/batches": {"input_file_id": "f", "endpoint": "/v1/chat/completions", "completion_window": "24h"},
    "/v1/messages/count_tokens": {"model": MODEL, "messages": [SAID], "tools": [{"name": "f"}]},
    "/v1/responses/input_tokens": {"model": MODEL, "input": [{"role": "user", "content": "a"}]},
    f"/v1beta/models/{MODEL}:countTokens": {"contents": [{"parts": [{"text": "a"}]}]},
}


@pytest.mark.parametrize("path", BODIES)
async def test_odd_values_are_the_clients_error(gate_inprocess: InProcessGate, path: str) -> None:
    body = BODIES[path]
    spelled: list[bytes] = []
    for place in places(body):
        for odd in ODD:
            changed = json.loads(json.dumps(body))
            at = changed
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = PLACE
            spelled.append(json.dumps(changed).replace(f'"{PLACE}"', odd).encode())
    async with await Client.connect(gate_inprocess.url) as client:
        for one in spelled:
            client.send(request_bytes(path, one, key=KEY))
            told = await client.response()
            assert told.status in (200, 400, 403, 404, 415, 422, 501), (one, told.body)
