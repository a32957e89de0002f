"""What a path and a method ask for. Pure; ids in a path may hold slashes and colons, so it is split at its last colon.

Source: wire formats page `README.md`, routes.
"""

from typing import Literal
from urllib.parse import parse_qsl, unquote

from sluicegate.errors import ClientError, MethodNotAllowed, NotImplementedYet, PathUnknown
from sluicegate.messages import Endpoint, Format
from sluicegate.wire.gemini_models import model_of_path

Kind = Literal[
    "generate",
    "unary",
    "count_tokens",
    "models",
    "model",
    "probe",
    "generation",
    "response",
    "objects",
    "upload",
]

_GENERATE: dict[str, Format] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
_COUNT: dict[str, Format] = {
    "/v1/messages/count_tokens": "messages",
    "/v1/responses/input_tokens": "responses",
}
_UNARY: dict[str, Endpoint] = {
    "/v1/embeddings": "embeddings",
    "/v1/moderations": "moderation",
    "/v1/rerank": "rerank",
    "/v2/rerank": "rerank",
    "/v1/images/generations": "images",
    "/v1/audio/speech": "speech",
    "/v1/images/edits": "image_edits",
    "/v1/images/variations": "image_variations",
    "/v1/audio/transcriptions": "transcription",
    "/v1/audio/translations": "audio_translation",
}
_PROBES = frozenset({"/", "/healthz", "/readyz"})
_GEMINI_VERSIONS = ("/v1/", "/v1beta/", "/v1alpha/", "/v1beta1/")
_GEMINI_METHODS: dict[str, tuple[Kind, bool]] = {
    "generateContent": ("generate", False),
    "streamGenerateContent": ("generate", True),
    "countTokens": ("count_tokens", False),
    "embedContent": ("unary", False),
    "batchEmbedContents": ("unary", False),
}
_RESPONSES = "/v1/responses/"
_OF_RESPONSE = {"": ("GET", "DELETE"), "input_items": ("GET",), "cancel": ("POST",)}
_OBJECTS: dict[str, Endpoint] = {"videos": "videos", "files": "files", "batches": "batches"}
"""What providers keep, by the path under which it is listed."""
_REWORKS: dict[str, Endpoint] = {"edits": "video_edit", "extensions": "video_extension"}
"""What is made of a video that the body names, by the path behind that of videos."""
_OF_OBJECT: dict[Endpoint, dict[str, tuple[str, ...]]] = {
    "videos": {"": ("GET", "DELETE"), "content": ("GET",), "remix": ("POST",)},
    "files": {"": ("GET", "DELETE"), "content": ("GET",)},
    "batches": {"": ("GET",), "cancel": ("POST",)},
}
_DOUBLED = ("/v1/v1/", "/v1beta/v1beta/", "/v1/v1beta/", "/v1beta/v1/")


class Route:
    """One endpoint."""

    __slots__ = ("array", "batch", "endpoint", "format", "id", "kind", "model", "part", "stream")

    def __init__(
        self,
        kind: Kind,
        format: Format = "chat",
        model: str | None = None,
        stream: bool = False,
        array: bool = False,
        id: str = "",
        part: str = "",
        endpoint: Endpoint | None = None,
        batch: bool = False,
    ) -> None:
        self.kind: Kind = kind
        self.format: Format = format
        """The format in which it is answered, errors included."""
        self.model = model
        """The id that the path names."""
        self.stream = stream
        """A Gemini method that streams."""
        self.array = array
        """Gemini without `alt=sse`: a JSON array instead of events."""
        self.id = id
        """Of the response, or of what else is kept, that the path names."""
        self.part = part
        """What of it, or what to do with it: nothing more, `input_items`, `content`, `cancel`; or `list`, of all."""
        self.endpoint: Endpoint | None = endpoint
        """Of a request whose answer is no text."""
        self.batch = batch
        """Gemini's `batchEmbedContents`."""


def format_of(path: str) -> Format:
    """Return the format in which errors of a path are told: the one it looks like, else OpenAI's."""
    if path.startswith("/v1/messages"):
        return "messages"
    if path.startswith(("/v1beta", "/v1alpha")) or path.rpartition(":")[2] in _GEMINI_METHODS:
        return "gemini"
    return _GENERATE.get(path, "chat")


def match(method: str, path: str, query: str) -> Route:
    """Return what a request asks for.

    Args:
        path: raw, still percent-encoded.
    Raises:
        PathUnknown, MethodNotAllowed, NotImplementedYet: to be told in the format of `format_of`.
    """
    format = _GENERATE.get(path)
    if format is not None:
        _require(method, "POST")
        return Route("generate", format)
    if path in _PROBES:
        _require(method, "GET", "HEAD")
        return Route("probe")
    format = _COUNT.get(path)
    if format is not None:
        _require(method, "POST")
        return Route("count_tokens", format)
    endpoint = _UNARY.get(path)
    if endpoint is not None:
        _require(method, "POST")
        return Route("unary", endpoint=endpoint)
    if path.startswith(_GEMINI_VERSIONS):
        name, _, action = path.rpartition(":")
        found = _GEMINI_METHODS.get(action)
        if found is not None:
            if path.startswith(_DOUBLED):
                raise _unknown(method, path)
            _require(method, "POST")
            kind, stream = found
            model = model_of_path(name[1:].partition("/")[2])
            if kind == "unary":
                batch = action == "batchEmbedContents"
                return Route(kind, "gemini", model, endpoint="gemini_embeddings", batch=batch)
            array = stream and ("alt", "sse") not in parse_qsl(query)
            return Route(kind, "gemini", model, stream, array)
        collection = path[1:].partition("/")[2]
        if collection == "models" or collection.startswith("models/"):
            _require(method, "GET", "HEAD")
            of: Format = "chat" if path.startswith("/v1/") else "gemini"
            model = unquote(collection[7:])
            return Route("model", of, model) if model else Route("models", of)
    if path.startswith(_RESPONSES):
        return _response(method, path)
    if path.startswith("/v1/"):
        name, _, rest = path[4:].partition("/")
        if name in _OBJECTS:
            return _object(method, path, _OBJECTS[name], rest)
    if path.startswith("/v1/generations/"):
        _require(method, "GET", "HEAD")
        return Route("generation", id=unquote(path[16:]))
    raise _unknown(method, path)


def _response(method: str, path: str) -> Route:
    """Return what is asked of an answer that somebody keeps."""
    id, _, part = path.removeprefix(_RESPONSES).partition("/")
    methods = _OF_RESPONSE.get(part)
    if not id or methods is None:
        raise _unknown(method, path)
    _require(method, *methods)
    return Route("response", "responses", id=unquote(id), part=part)


def _object(method: str, path: str, endpoint: Endpoint, rest: str) -> Route:
    """Return what is asked of files, video jobs or batches."""
    if not rest:
        _require(method, "GET", "POST")
        if method == "POST":
            return Route("upload" if endpoint == "files" else "unary", endpoint=endpoint)
        return Route("objects", endpoint=endpoint, part="list")
    if endpoint == "videos" and rest in _REWORKS:
        _require(method, "POST")
        return Route("unary", endpoint=_REWORKS[rest])
    id, _, part = rest.partition("/")
    methods = _OF_OBJECT[endpoint].get(part)
    if methods is None:
        raise _unknown(method, path)
    _require(method, *methods)
    if part == "remix":
        return Route("unary", endpoint="video_remix", id=unquote(id))
    return Route("objects", endpoint=endpoint, id=unquote(id), part=part)


def _require(method: str, *allowed: str) -> None:
    if method not in allowed:
        raise MethodNotAllowed(
            f"The method {method} is not allowed here; use {' or '.join(allowed)}.", ", ".join(allowed)
        )


def _unknown(method: str, path: str) -> ClientError:
    shown = path[:200]
    if path.startswith(_DOUBLED):
        return PathUnknown(f"Unknown path {shown}: the base URL names the API's version twice.")
    if path == "/v1/realtime":
        return NotImplementedYet("Realtime is not supported by this gateway.")
    return PathUnknown(f"Unknown path: {method} {shown}")
