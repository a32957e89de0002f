"""Between a client and a provider on endpoints whose answer is no text; does there what `interpreter` does for text.

A request may take several calls, of one attempt: all of them are made at the same deployment, one after the other, and
what they bring is joined. The client pays for one request.
"""

from collections.abc import Callable

from sluicegate.errors import SluicegateError, UnsupportedFeature
from sluicegate.messages import Endpoint, Shape, Usage
from sluicegate.routing.catalog import Deployment, Model, Provider
from sluicegate.server.interpreter import EVENT_STREAM
from sluicegate.server.job_requests import REWORKS
from sluicegate.server.media_fetch import MediaFetcher
from sluicegate.server.routes import Route
from sluicegate.server.upload import Upload
from sluicegate.wire import StreamCodec
from sluicegate.wire.codecs import FORMATS
from sluicegate.wire.translation import Asked, Codec, Notes, PassedAnswer, PassOptions, Policy, Wanted
from sluicegate.wire.unary import TargetModel, UnaryRequest
from sluicegate.wire.unary.embedding_requests import EmbeddingsRequest, GeminiEmbeddingsRequest
from sluicegate.wire.unary.forms import (
    AudioTranslationRequest,
    FormRequest,
    TranscriptionRequest,
)
from sluicegate.wire.unary.image_edits import (
    ImageEditJsonRequest,
    ImageEditRequest,
    ImageVariationRequest,
)
from sluicegate.wire.unary.images import ImagesRequest
from sluicegate.wire.unary.made_pictures import PictureStream
from sluicegate.wire.unary.moderation import ModerationRequest
from sluicegate.wire.unary.rerank import RerankRequest
from sluicegate.wire.unary.speech import SpeechRequest
from sluicegate.wire.unary.videos import VideoFormRequest, VideoRequest

_READERS: dict[Endpoint, Callable[[bytes], UnaryRequest]] = {
    "embeddings": EmbeddingsRequest,
    "moderation": ModerationRequest,
    "rerank": RerankRequest,
    "images": ImagesRequest,
    "image_edits": ImageEditJsonRequest,
    "speech": SpeechRequest,
    "videos": VideoRequest,
}
_FORMS: dict[Endpoint, type[FormRequest]] = {
    request.ENDPOINT: request
    for request in (
        TranscriptionRequest,
        AudioTranslationRequest,
        ImageEditRequest,
        ImageVariationRequest,
        VideoFormRequest,
    )
}
_ONLY_FORMS = frozenset(_FORMS).difference(_READERS)
_SERVICES: dict[Endpoint, str] = {
    "gemini_embeddings": "embeddings",
    "audio_translation": "transcription",
    "image_edits": "images",
    "image_variations": "images",
    "videos": "video",
    "video_remix": "video",
    "video_edit": "video",
    "video_extension": "video",
}
"""How a provider's row names an endpoint, where not alike."""


def read_request(route: Route, body: bytes) -> UnaryRequest:
    """Read a request with a JSON body.

    Raises:
        BadRequest: in the client's own terms.
    """
    assert route.endpoint is not None
    if route.endpoint == "gemini_embeddings":
        return GeminiEmbeddingsRequest(body, route.model or "", batch=route.batch)
    return _READERS[route.endpoint](body)


def takes_form(route: Route, content_type: bytes | None) -> bool:
    """Whether a request comes as a form: those to some endpoints do, to others they may."""
    if route.endpoint not in _FORMS and route.endpoint not in REWORKS:
        return False
    return route.endpoint in _ONLY_FORMS or (content_type or b"").lower().startswith(b"multipart/")


async def read_form(route: Route, upload: Upload, size: int) -> UnaryRequest:
    """Read a request that comes as a form, once what matters of it has come.

    Args:
        size: of its body, as far as it is known.
    Raises:
        SluicegateError: it is wrong, too large, or does not come.
    """
    assert route.endpoint is not None
    kind = _FORMS[route.endpoint]
    await upload.wait_until_ready(kind.READ_FIRST)
    return kind(upload.form, size)


class UnaryInterpreter:
    """One request of one client, for as many attempts as it takes. See `Interpreter`."""

    array = False

    def __init__(
        self,
        route: Route,
        request: UnaryRequest,
        policy: Policy,
        upload: Upload | None = None,
        *,
        fetches: bool = False,
    ) -> None:
        """Begin with a request that was read.

        Args:
            upload: gives the form that is its body.
            fetches: media that a provider takes only as data may come by address.
        """
        assert route.endpoint is not None
        self._endpoint = route.endpoint
        self.client_name: str = route.endpoint
        """What rows call the endpoint."""
        self._policy: Policy = policy
        self._fetches = fetches
        self.request = request
        self._upload = upload
        self._passes_form = upload is not None
        """The attempt's provider gets the form as it came."""
        self.asked: Asked
        self.client: Codec = FORMATS[route.format]
        """In which errors are told."""
        self.wanted: list[Wanted | Upload] = []
        """Media to be fetched, or the rest of a form: until they are here, the body that was made is of no use."""
        self.dropped: list[str] = []
        self.untold: list[str] = []
        self.pausable: None = None
        """Nothing of the kind: such answers are not paused."""
        self.calls: list[bytes] = []
        """Bodies of the attempt's calls that are still to make."""
        self.first_part = 1.0
        """How much of what the client asked the first call reads."""
        self._split_bytes = 0
        """Of the bodies of all calls, where they share out what was asked."""
        self._brought: list[bytes] = []
        self._kind = b"application/octet-stream"
        """Of bytes that pass: what the provider says they are."""
        self._stream: PictureStream | None = None
        """The codec of a streamed answer that takes several calls."""

    @property
    def upload(self) -> Upload | None:
        """What gives the attempt's provider the form; None where it is asked in another way."""
        return self._upload if self._passes_form else None

    def note_type(self, kind: bytes) -> None:
        """Take what the provider calls an answer of bytes."""
        self._kind = kind

    @property
    def answer_line(self) -> bytes:
        """Return the header line that says what a plain answer is."""
        return b"content-type: %b\r\n" % self.request.answer_type

    @property
    def stream_lines(self) -> bytes:
        """Return the header lines that say what a streamed answer is."""
        return b"content-type: %b\r\n" % self._kind if self.passes_bytes else EVENT_STREAM

    @property
    def keepalive(self) -> bytes:
        """Nothing: there is no stream to keep alive."""
        return b""

    @property
    def spent(self) -> bool:
        """Whether the request cannot be sent a second time."""
        return self._upload is not None and self._upload.passing

    @property
    def units(self) -> Usage | None:
        """What it is known to be charged for beside tokens."""
        return self.request.units

    @property
    def keeper(self) -> str:
        """The provider that keeps what the request names."""
        keeper: str = getattr(self.request, "keeper", "")
        return keeper

    @property
    def passes_bytes(self) -> bool:
        """Whether the answer is a stream of bytes that are no events."""
        return self.request.passes_bytes

    def release(self) -> None:
        """Let the request's body go: there will be no other attempt."""
        self.request.release()

    def take_out(self, field: str) -> None:
        """Refuse what only text endpoints know."""
        raise UnsupportedFeature(f"'{field}' is not supported on this endpoint.", param=field)

    async def fill(self, media: MediaFetcher) -> None:
        """Have what is wanted fetched, and the rest of a form come.

        Raises:
            SluicegateError: it cannot be had.
        """
        fetched: list[Wanted] = []
        for one in self.wanted:
            if isinstance(one, Upload):
                await one.hold_whole()
            else:
                fetched.append(one)
        if fetched:
            await media.fill(fetched)

    def target_format(self, provider: Provider, deployment: Deployment) -> Shape:
        """Return how the provider is asked; what it does not serve at all, `upstream_body` refuses."""
        return self.request.target_of(provider.speaks, deployment.capabilities) or self._endpoint

    def upstream_body(
        self, target: Shape, provider: Provider, model: Model, deployment: Deployment, limit: int | None
    ) -> bytes:
        """Return the body of the first call; `calls` has the others.

        Raises:
            UnsupportedFeature: the provider does not serve the endpoint, or cannot say what was asked.
        """
        service = _SERVICES.get(self._endpoint, self._endpoint)
        served = provider.unary is None or service in provider.unary
        if not served or self.request.target_of(provider.speaks, deployment.capabilities) is None:
            raise UnsupportedFeature(
                f"The model '{self.request.model}' does not serve {service}.", param="model"
            )
        self.wanted, self.dropped, self.calls, self._brought = [], [], [], []
        if self._upload is not None:
            self._passes_form = target == self._endpoint
            if not self._passes_form and not self._take_form(self._upload):
                return b""
        notes = Notes(self._policy)
        notes.fetches = self._fetches
        asked = TargetModel(deployment.model, deployment.capabilities, model.max_calls)
        bodies = self.request.upstream_bodies(target, asked, provider.drop_fields, notes)
        first, *self.calls = bodies
        self._split_bytes = sum(map(len, bodies)) if self.request.splits else 0
        self.first_part = self.part_of(first)
        self.dropped = notes.dropped
        self.wanted += notes.wanted
        return first

    def part_of(self, call: bytes) -> float:
        """Return how much of what the client asked a call reads."""
        return len(call) / self._split_bytes if self._split_bytes else 1.0

    def _take_form(self, upload: Upload) -> bool:
        """Read a form that a provider wants said anew; return False where its rest has to come first."""
        if not upload.complete:
            self.wanted.append(upload)
            return False
        assert isinstance(self.request, ImageEditRequest), "only these are said anew"
        self.request.take_form(upload.first_part(self.request.model))
        return True

    def reads_arrays(self, target: Shape) -> bool:
        """Whether a stream of the provider's may come as a JSON array that grows."""
        return False

    def next_answer(self) -> None:
        """Go on with the call that answers after the one at hand."""
        if self._stream is not None:
            self._stream.next_call()

    def keep(self, body: bytes) -> None:
        """Keep what a call brought, until the last one has."""
        self._brought.append(body)

    def upstream_lines(
        self, target: Shape, provider: Provider, body: bytes, client_headers: list[tuple[bytes, bytes]]
    ) -> bytes:
        """Return no further header lines."""
        return b""

    def stream(self, target: Shape, deployment: Deployment, options: PassOptions) -> StreamCodec:
        """Return the codec of one attempt at a streamed answer."""
        codec = self.request.pass_stream(target, self.asked, options)
        self._stream = codec if isinstance(codec, PictureStream) else None
        return codec

    def plain(self, target: Shape, deployment: Deployment, body: bytes) -> PassedAnswer:
        """Read what the calls brought, this one last. Raises DecodeError."""
        return self.request.read_answers(target, self.asked, [*self._brought, body])

    def remember(self) -> None:
        """Keep nothing: there is no next turn."""

    def error(self, error: SluicegateError, request_id: str) -> tuple[int, bytes]:
        """Return status and body of an error answer in the client's format."""
        return self.client.encode_error(error, request_id)
