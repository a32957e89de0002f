"""The lists of models, read by the three vendors' SDKs over a socket, and what is refused."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
import openai
import pytest
from google import genai

from sluicegate.errors import BadRequest, ModelNotFound, SluicegateError
from sluicegate.server.routes import match
from sluicegate.wire.gemini_models import ListedModel
from sluicegate.wire.model_lists import encode_list, encode_one, shape_of

CREATED = 1_790_000_000
IDS = [f"m{number}" for number in range(60)] + ["org/family:free"]
MODELS = [ListedModel(id=name, output_tokens=4096) for name in IDS]
BY_ID = {model.id: model for model in MODELS}


class _Handler(BaseHTTPRequestHandler):
    """Answers as a gate would, with nothing in between."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        headers = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        route = match("GET", path, query)
        shape = shape_of(path.split("/")[1], headers)
        try:
            if route.model is None:
                status, body = 200, encode_list(shape, MODELS, CREATED, query)
            else:
                status, body = 200, encode_one(shape, route.model, BY_ID.get, CREATED)
        except SluicegateError as error:
            status, body = error.status, b'{"error":{"code":404,"message":"no","type":"not_found_error"}}'
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def test_the_openai_sdk(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        listed = list(client.models.list())
        assert [model.id for model in listed] == IDS
        assert (listed[0].object, listed[0].created) == ("model", CREATED)
        assert client.models.retrieve("org/family:free").id == "org/family:free"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("nothing")


@pytest.mark.parametrize("limit", [anthropic.omit, 7, 1000])
def test_the_anthropic_sdk(url: str, limit: int) -> None:
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        listed = list(client.models.list(limit=limit))
        assert [model.id for model in listed] == IDS
        assert listed[0].created_at.timestamp() == CREATED
        assert (listed[0].max_tokens, listed[0].display_name, listed[0].lifecycle) == (4096, "m0", "active")
        assert [model.id for model in client.models.list(before_id="m3", limit=2).data] == ["m1", "m2"]
        assert client.models.retrieve("org/family:free").id == "org/family:free"
        with pytest.raises(anthropic.NotFoundError):
            client.models.retrieve("nothing")


@pytest.mark.parametrize("version", ["v1", "v1beta", "v1alpha"])
def test_the_gemini_sdk(url: str, version: str) -> None:
    options = genai.types.HttpOptions(base_url=url, api_version=version)
    with genai.Client(api_key="k", http_options=options) as client:
        listed = list(client.models.list(config={"page_size": 25}))
        assert [model.name for model in listed] == [f"models/{name}" for name in IDS]
        assert listed[0].output_token_limit == 4096
        assert client.models.get(model="m7").name == "models/m7"
        assert client.models.get(model="models/org/family:free").name == "models/org/family:free"
        with pytest.raises(genai.errors.ClientError):
            client.models.get(model="nothing")


@pytest.mark.parametrize(
    ("version", "names", "shape"),
    [
        ("v1", ["authorization"], "chat"),
        ("v1", ["authorization", "anthropic-version"], "messages"),
        ("v1", ["x-api-key"], "chat"),
        ("v1", ["x-goog-api-key"], "gemini"),
        ("v1", ["anthropic-version", "x-goog-api-client"], "gemini"),
        ("v1beta", ["authorization", "anthropic-version"], "gemini"),
    ],
)
def test_the_headers_choose_the_shape(version: str, names: list[str], shape: str) -> None:
    assert shape_of(version, [(name.encode(), b"x") for name in names]) == shape


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=²", "after_id=nobody", "before_id=n"]
)
def test_a_page_that_makes_no_sense(query: str) -> None:
    with pytest.raises(BadRequest) as refused:
        encode_list("messages", MODELS, CREATED, query)
    assert refused.value.param == query.partition("=")[0]


def test_pages_go_both_ways() -> None:
    def page(query: str) -> tuple[list[str], bool, str | None, str | None]:
        told = json.loads(encode_list("messages", MODELS[:5], CREATED, query))
        return [model["id"] for model in told["data"]], told["has_more"], told["first_id"], told["last_id"]

    assert page("limit=2") == (["m0", "m1"], True, "m0", "m1")
    assert page("after_id=m2&limit=2") == (["m3", "m4"], False, "m3", "m4")
    assert page("after_id=m4") == ([], False, None, None)
    assert page("before_id=m4&limit=3") == (["m1", "m2", "m3"], True, "m1", "m3")
    assert page("before_id=m1") == (["m0"], False, "m0", "m0")


def test_no_models_at_all() -> None:
    assert json.loads(encode_list("chat", [], CREATED)) == {"object": "list", "data": []}
    assert json.loads(encode_list("messages", [], CREATED))["has_more"] is False
    assert json.loads(encode_list("gemini", [], CREATED)) == {"models": []}


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(ModelNotFound, match="there is no model a/b") as refused:
        encode_one("chat", "a/b", BY_ID.get, CREATED)
    assert refused.value.status == 404
