"""The table of wire formats: what each of them offers, by the name that the configuration uses."""

from typing import Final

from sluicegate.wire import anthropic, gemini, openai_chat_codec, openai_completions, openai_responses
from sluicegate.wire.translation import Codec

FORMATS: Final[dict[str, Codec]] = {
    codec.name: codec
    for codec in (
        openai_chat_codec.CODEC,
        openai_completions.CODEC,
        openai_responses.CODEC,
        anthropic.CODEC,
        gemini.CODEC,
    )
}
"""Every format that a client or a provider may speak."""
