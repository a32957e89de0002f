"""What property tests draw from: answers of a model.

Kept free of any wire format: an `Answer` is encoded by the simulator's formats where bytes are needed.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from hypothesis import strategies as st

from sluicegate.messages import FinishReason
from sluicegate.simulator import Answer, ToolCall

ODD = '\u2028\u2029\x85\x7f\ufeff\U0001f469\u200d\U0001f467é"\\\n\r\t: '
"""Characters that line readers, JSON writers and careless decoders stumble over."""

texts = st.text(st.characters(codec="utf-8") | st.sampled_from(ODD), min_size=1, max_size=12)
"""Text without lone surrogates, never empty."""
names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_-]{0,20}", fullmatch=True)
"""Names of functions."""


def split(text: str, at: Sequence[int]) -> tuple[str, ...]:
    """Cut text at some places; no piece is empty unless the text is."""
    marks = sorted({0, len(text), *(place % (len(text) + 1) for place in at)})
    return tuple(text[left:right] for left, right in pairwise(marks)) or (text,)


@st.composite
def tool_calls(draw: st.DrawFn) -> ToolCall:
    """A call with a JSON object as arguments, in any pieces."""
    arguments = json.dumps(
        draw(
            st.dictionaries(
                names, texts | st.integers() | st.none() | st.lists(texts, max_size=2), max_size=3
            )
        ),
        ensure_ascii=draw(st.booleans()),
    )
    return ToolCall(
        name=draw(names), arguments=split(arguments, draw(st.lists(st.integers(0, 200), max_size=4)))
    )


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Any answer that a healthy model may give."""
    pieces = st.lists(texts, max_size=4).map(tuple)
    calls = tuple(draw(st.lists(tool_calls(), max_size=3)))
    finish = "tool_calls" if calls else draw(st.sampled_from(["stop", "length", "content_filter"]))
    input_tokens = draw(st.integers(0, 10**6))
    cached = draw(st.none() | st.integers(0, input_tokens))
    return Answer(
        reasoning=draw(pieces),
        signature=draw(st.none() | st.just("U0lH")),
        text=draw(pieces),
        refusal=() if calls else draw(pieces),
        tool_calls=calls,
        finish=cast(FinishReason, finish),
        choices=draw(st.integers(1, 3)),
        input_tokens=input_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=None
        if cached is None
        else draw(st.none() | st.integers(0, input_tokens - cached)),
    )
