"""Where and how one provider is asked in one format: address, path, credentials, ready header lines.

Made once per provider, format and model, not per request. What a request adds is its length and its body.
"""

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from sluicegate import __version__
from sluicegate.errors import ConfigError
from sluicegate.messages import Format, Shape
from sluicegate.routing.catalog import Provider
from sluicegate.server.dialing import Origin

_AUTH_BY_FORMAT: Mapping[str, str] = {"messages": "x-api-key", "gemini": "x-goog-api-key"}
_AUTH_LINES: Mapping[str, str] = {
    "bearer": "authorization: Bearer {}\r\n",
    "x-api-key": "x-api-key: {}\r\n",
    "x-goog-api-key": "x-goog-api-key: {}\r\n",
    "api-key": "api-key: {}\r\n",
}
_PATHS: Mapping[str, str] = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "responses": "/responses",
    "messages": "/messages",
    "gemini": "/models/{model}",
    "embeddings": "/embeddings",
    "gemini_embeddings": "/models/{model}:batchEmbedContents",
    "moderation": "/moderations",
    "rerank": "/rerank",
    "images": "/images/generations",
    "gemini_images": "/models/{model}:predict",
    "gemini_native_images": "/models/{model}:generateContent",
    "speech": "/audio/speech",
    "image_edits": "/images/edits",
    "image_variations": "/images/variations",
    "transcription": "/audio/transcriptions",
    "audio_translation": "/audio/translations",
    "videos": "/videos",
    "video_remix": "/videos/{kept}/remix",
    "video_edit": "/videos/edits",
    "video_extension": "/videos/extensions",
    "files": "/files",
    "batches": "/batches",
}
_COUNT_PATHS: Mapping[str, str] = {
    "messages": "/count_tokens",
    "responses": "/input_tokens",
    "gemini": ":countTokens",
}
_WHOLE = frozenset({"gemini_images", "gemini_native_images"})
"""Shapes whose answers never stream, whatever the client asks for."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Target:
    """One provider, format or endpoint, and model: everything about its requests that does not change."""

    def __init__(self, provider: Provider, shape: Shape, model: str) -> None:
        """Work out the address.

        Raises:
            ConfigError: the provider's URL has no host.
        """
        self.provider = provider
        self._shape = shape
        self.format = _family(shape, provider)
        self.model = model
        url = urlsplit(self._url())
        if url.hostname is None or url.scheme not in _DEFAULT_PORTS:
            raise ConfigError(f"providers.{provider.name}: not an http or https URL")
        self.origin = Origin(
            url.scheme,
            url.hostname,
            url.port or _DEFAULT_PORTS[url.scheme],
            provider.proxy,
            provider.tls,
            provider.max_connections,
        )
        self._paths = (self._path(url, stream=False), self._path(url, stream=True))
        self._host = (
            url.hostname if url.port in (None, _DEFAULT_PORTS[url.scheme]) else f"{url.hostname}:{url.port}"
        )
        if ":" in url.hostname:
            self._host = self._host.replace(url.hostname, f"[{url.hostname}]", 1)
        self._heads: list[tuple[bytes, bytes]] | None = None
        self._next_key = 0

    @property
    def _own_path(self) -> str | None:
        """The path that the provider's row has for this; one way to ask for pictures is a request for content."""
        return self.provider.paths.get("gemini" if self._shape == "gemini_native_images" else self._shape)

    def _url(self) -> str:
        """Return the base URL of the format, joined to what the SDKs of that format join it to."""
        provider = self.provider
        base = provider.urls.get(self.format, provider.base_url).rstrip("/")
        if self._own_path is not None:
            return base
        if self.format == "messages":
            return base.removesuffix("/v1") + "/v1"
        if self.format == "gemini":
            for version in ("/v1beta", "/v1"):
                if base.endswith(version):
                    return base.removesuffix(version) + "/v1beta"
            return base + "/v1beta"
        return base

    def _path(self, url: SplitResult, *, stream: bool) -> str:
        query = dict(self.provider.query)
        template = self._own_path or _PATHS[self._shape]
        if self._shape == "gemini" and self._own_path is None:
            template += ":streamGenerateContent" if stream else ":generateContent"
            if stream:
                query["alt"] = "sse"
        path = url.path.rstrip("/") + template.replace("{model}", quote(self.model, safe="/:@"))
        joined = "&".join(part for part in (url.query, urlencode(query)) if part)
        return f"{path}?{joined}" if joined else path

    def _make_heads(self) -> list[tuple[bytes, bytes]]:
        """The request's head up to its length, plain and streamed, for each of the provider's keys."""
        provider = self.provider
        auth = provider.auth or _AUTH_BY_FORMAT.get(self.format, "bearer")
        line = _AUTH_LINES.get(auth)
        credentials = [line.format(key) for key in provider.api_keys] if line is not None else []
        fixed = "".join(f"{name.lower()}: {value}\r\n" for name, value in provider.headers.items())

        def head(credential: str, path: str, accept: str) -> bytes:
            return (
                f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\nuser-agent: sluicegate/{__version__}\r\n"
                f"content-type: application/json\r\naccept-encoding: identity\r\naccept: {accept}\r\n"
                f"{credential}{fixed}"
            ).encode()

        plain, streamed = self._paths
        events = "application/json" if self._shape in _WHOLE else "text/event-stream"
        return [
            (head(credential, plain, "application/json"), head(credential, streamed, events))
            for credential in credentials or [""]
        ]

    def head(self, body_bytes: int, *, stream: bool, lines: bytes = b"") -> bytes:
        """Return a request's head; the provider's keys take turns.

        Args:
            lines: further ready header lines.
        """
        heads = self._heads
        if heads is None:
            heads = self._heads = self._make_heads()
        self._next_key = (self._next_key + 1) % len(heads)
        return b"%b%bcontent-length: %d\r\n\r\n" % (heads[self._next_key][stream], lines, body_bytes)

    def kept_head(self, method: str, suffix: str, query: str, body_bytes: int = 0) -> bytes:
        """Return the head of a request about what the provider keeps.

        Args:
            suffix: follows the format's path.
            query: joins the provider's own.
        """
        plain, _ = self._paths
        path, _, own = plain.partition("?")
        joined = "&".join(part for part in (own, query) if part)
        wanted = f"{method} {path}{suffix}" + (f"?{joined}" if joined else "")
        return self.head(body_bytes, stream=False).replace(b"POST " + plain.encode(), wanted.encode(), 1)

    def models_head(self, lines: bytes = b"") -> bytes:
        """Return the head of a request for the provider's list of models, in this format.

        Args:
            lines: further ready header lines.
        """
        plain, _ = self._paths
        url = urlsplit(self._url())
        query = "&".join(part for part in (url.query, urlencode(dict(self.provider.query))) if part)
        path = url.path.rstrip("/") + "/models" + (f"?{query}" if query else "")
        return self.head(0, stream=False, lines=lines).replace(
            b"POST " + plain.encode(), b"GET " + path.encode(), 1
        )

    def upload_head(self, framing: bytes, content_type: bytes, *, stream: bool) -> bytes:
        """Return the head of a request with a form.

        Args:
            framing: the ready header line of its length or its chunks.
            content_type: of the form, with its boundary.
        """
        head = self.head(0, stream=stream)
        head = head.replace(b"content-length: 0\r\n", framing, 1)
        return head.replace(b"content-type: application/json\r\n", b"content-type: %b\r\n" % content_type, 1)

    def count_head(self, body_bytes: int) -> bytes:
        """Return the head of a question for a request's tokens."""
        plain, _ = self._paths
        path, _, query = plain.partition("?")
        path = path.removesuffix(":generateContent") + _COUNT_PATHS[self.format]
        head = self.head(body_bytes, stream=False)
        return head.replace(plain.encode(), (f"{path}?{query}" if query else path).encode(), 1)


def _family(shape: Shape, provider: Provider) -> Format:
    """Return the format whose address and credentials an endpoint shares."""
    match shape:
        case "gemini_embeddings" | "gemini_images" | "gemini_native_images":
            return "gemini"
        case "messages" | "gemini" | "chat" | "completions" | "responses":
            return shape
        case _:
            spoken = (format for format in provider.speaks if format not in ("messages", "gemini"))
            return next(spoken, "chat")


class Targets:
    """All targets asked for so far; a new catalogue starts with new ones."""

    MAX: ClassVar[int] = 10_000

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._targets: dict[tuple[str, Shape, str], Target] = {}

    def get(self, provider: str, shape: Shape, model: str) -> Target:
        """Return the target of one provider's model."""
        key = (provider, shape, model)
        target = self._targets.get(key)
        if target is None:
            if len(self._targets) >= self.MAX:
                self._targets.clear()
            target = self._targets[key] = Target(self._providers[provider], shape, model)
        return target
