"""Errors of Gemini, its model lists and its paths."""

import json

import pytest

from sluicegate.errors import (
    BadRequest,
    Forbidden,
    InsufficientBalance,
    InternalError,
    MethodNotAllowed,
    ModelNotFound,
    Overloaded,
    PathUnknown,
    RateLimited,
    SluicegateError,
    StreamCut,
    TooLarge,
    Unauthenticated,
    UnsupportedFeature,
    UpstreamStatus,
    UpstreamTimeout,
)
from sluicegate.wire.gemini import CODEC
from sluicegate.wire.gemini_models import ListedModel, encode_model, encode_models, model_of_path
from tests.grammar.gemini import check_gemini_stream


def upstream(kind: str, status: int = 503) -> UpstreamStatus:
    return UpstreamStatus("u", upstream_status=status, kind=kind, status=status, retry="never")


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (BadRequest("b", param="contents"), 400, "INVALID_ARGUMENT"),
        (UnsupportedFeature("b"), 400, "INVALID_ARGUMENT"),
        (upstream("context_too_long", 400), 400, "INVALID_ARGUMENT"),
        (Unauthenticated("u"), 401, "UNAUTHENTICATED"),
        (InsufficientBalance("i"), 402, "FAILED_PRECONDITION"),
        (Forbidden("f"), 403, "PERMISSION_DENIED"),
        (ModelNotFound("m"), 404, "NOT_FOUND"),
        (PathUnknown("p"), 404, "NOT_FOUND"),
        (MethodNotAllowed("m", "POST"), 405, "INVALID_ARGUMENT"),
        (TooLarge("t"), 413, "INVALID_ARGUMENT"),
        (RateLimited("r", 2.5), 429, "RESOURCE_EXHAUSTED"),
        (upstream("upstream_budget"), 503, "UNAVAILABLE"),
        (upstream("overloaded"), 503, "UNAVAILABLE"),
        (upstream("upstream_auth", 502), 503, "UNAVAILABLE"),
        (Overloaded("o", 100.0), 503, "UNAVAILABLE"),
        (StreamCut("s"), 503, "UNAVAILABLE"),
        (UpstreamTimeout("t", "idle"), 504, "DEADLINE_EXCEEDED"),
        (InternalError(""), 500, "INTERNAL"),
    ],
)
def test_every_kind_has_its_status_and_word(error: SluicegateError, status: int, word: str) -> None:
    told, body = CODEC.encode_error(error, "req")
    value = json.loads(body)
    assert list(value) == ["error"]
    assert told == status
    assert (value["error"]["code"], value["error"]["status"]) == (status, word)
    assert value["error"]["message"]
    assert check_gemini_stream(CODEC.error_event(error, "req"), end="error").error == value["error"]


def test_details_say_what_to_mend_and_when_to_come_back() -> None:
    def detail(error: SluicegateError) -> dict[str, object]:
        details = json.loads(CODEC.encode_error(error, "r")[1])["error"]["details"]
        assert len(details) == 1
        return dict(details[0])

    assert detail(RateLimited("r", 2.5))["retryDelay"] == "3s"
    assert detail(Overloaded("o", 100.0))["retryDelay"] == "59s"
    assert detail(Unauthenticated("u"))["reason"] == "API_KEY_INVALID"
    violations = [{"field": "contents[0]", "description": "b"}]
    assert detail(BadRequest("b", param="contents[0]"))["fieldViolations"] == violations
    assert "details" not in json.loads(CODEC.encode_error(InsufficientBalance("i"), "r")[1])["error"]


def test_a_refused_prompt_is_an_answer() -> None:
    status, body = CODEC.encode_error(upstream("content_blocked", 400), "r")
    assert status == 200
    assert check_gemini_stream(b"data: " + body + b"\n\n").finish == "PROHIBITED_CONTENT"


def test_models_are_listed_in_pages() -> None:
    models = [ListedModel(id=f"org/m-{number}", input_tokens=10, thinks=True) for number in range(5)]
    first = json.loads(encode_models(models, "2"))
    assert [model["name"] for model in first["models"]] == ["models/org/m-0", "models/org/m-1"]
    rest = json.loads(encode_models(models, "9", first["nextPageToken"]))
    assert len(rest["models"]) == 3
    assert "nextPageToken" not in rest
    assert len(json.loads(encode_models(models, "x", "-1"))["models"]) == 5
    assert json.loads(encode_model(models[0])) == {
        "name": "models/org/m-0",
        "version": "001",
        "displayName": "org/m-0",
        "inputTokenLimit": 10,
        "thinking": True,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }


@pytest.mark.parametrize(
    ("rest", "model"),
    [
        ("models/m", "m"),
        ("models/m%3Afree", "m:free"),
        ("models/m:free", "m:free"),
        ("models/org%2Fm-1.5", "org/m-1.5"),
        ("org/m", "org/m"),
        ("models/models/x", "models/x"),
        ("tunedModels/x", "tunedModels/x"),
        ("publishers/google/models/m", "m"),
        ("publishers/meta/models/m", "meta/m"),
        ("projects/p/locations/l/publishers/google/models/m", "m"),
    ],
)
def test_the_model_of_a_path(rest: str, model: str) -> None:
    assert model_of_path(rest) == model
