"""A legacy Completions request read by its edges: what routing and metering need, and the body a provider gets.

Source: wire formats page `completions.md`, "Request".
"""

from hashlib import blake2b

import msgspec

from sluicegate.errors import BadRequest
from sluicegate.wire.openai_completions_request_shapes import Edges
from sluicegate.wire.openai_request import MAX_CHOICES, OpenAIRequest
from sluicegate.wire.request_edges import estimate_input, flag, needed_text, number

DEFAULT_MAX_TOKENS = 16
"""What the format says of a request without a limit."""
_HASHED_BYTES = 1024


_decode_edges = msgspec.json.Decoder(Edges).decode


class CompletionRequest(OpenAIRequest):
    """One request as the client sent it. See `PassedRequest`."""

    __slots__ = ("prompts",)

    def __init__(self, body: bytes) -> None:
        """Read a body.

        Raises:
            BadRequest: what is wrong, and `param` says where.
        """
        super().__init__(body)
        try:
            edges = _decode_edges(body)
        except msgspec.ValidationError:
            # One of them cannot be read; the others are told of first.
            edges = Edges(**{key: self._value(key) for key in Edges.__struct_fields__})
        self.model = needed_text("model", edges.model)
        self.stream = flag("stream", edges.stream)
        self.prompts = self._count_prompts()
        """How many prompts there are, each with its own answers."""
        choices = number("n", edges.n, 1, MAX_CHOICES) or 1
        best_of = number("best_of", edges.best_of, 1, MAX_CHOICES)
        if best_of is not None and best_of < choices:
            raise BadRequest("Invalid 'best_of': must be at least 'n'.", param="best_of")
        if best_of is not None and best_of > 1 and self.stream:
            raise BadRequest("Invalid 'best_of': cannot be streamed.", param="best_of")
        self.choices = choices * self.prompts
        self.max_output_key = "max_tokens"
        self.max_output_tokens = number("max_tokens", edges.max_tokens, 0)
        self._read_stream_options()
        self.input_estimate = estimate_input(body, self.prompts)

    @property
    def messages_hash(self) -> bytes:
        """Of the prompt's beginning: requests that go on with one text share it."""
        return blake2b((self.value("prompt") or b"")[:_HASHED_BYTES], digest_size=16).digest()

    def _count_prompts(self) -> int:
        prompt = self._value("prompt")
        if prompt is None or isinstance(prompt, str):
            return 1
        if not isinstance(prompt, list):
            raise BadRequest("Invalid type for 'prompt': expected a string or an array.", param="prompt")
        if not prompt:
            raise BadRequest("Invalid 'prompt': must not be empty.", param="prompt")
        for place, entry in enumerate(prompt):
            if not isinstance(entry, str | int | list) or type(entry) is not type(prompt[0]):
                where = f"prompt[{place}]"
                raise BadRequest(f"Invalid type for '{where}'.", param=where)
        return 1 if isinstance(prompt[0], int) else len(prompt)
