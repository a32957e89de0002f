"""What is known of model families by the shape of their ids, where a catalogue row does not say it.

Only defaults that cost the operator money when they are missing stand here; a model's `capabilities`
override them."""

import re

_HIDES_REASONING = re.compile(
    r"(?:.*/)?(?:"
    r"o[1-9](?:-.*)?|gpt-(?:[5-9]|[1-9]\d)(?:[.-].*)?|codex-.*|computer-use-.*"
    r"|gemini-(?:2\.5|[3-9])(?:[.-].*)?|gemini-(?:flash|pro)(?:-lite)?-latest"
    r"|grok-(?:[4-9]|code)(?:[.-].*)?"
    r")"
)


def hides_reasoning(upstream_id: str) -> bool:
    """Tell whether a model bills reasoning that its stream does not show, so that counting the stream is
    not enough."""
    return _HIDES_REASONING.fullmatch(upstream_id.lower()) is not None
