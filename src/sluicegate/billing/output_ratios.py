"""How many tokens a model's provider reports for each that we count: other vendors' vocabularies are not ours.

Learned from whole answers that were reported, by key and model, since one key's texts are mostly of one kind and
language. What is learned is used only where nothing was reported. Of the last eight answers the second least counts (of
fewer the least), not the middle: texts of several languages differ, thoughts that a provider keeps to itself only ever
make a report larger, and a doubt is the client's.
"""

from collections.abc import Hashable
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)
MAX_RATIOS = 4_000
"""Keys and models that are remembered; beyond, the one that learned longest ago is forgotten."""
LAST = 8
"""Answers that are remembered of each."""
ENOUGH = 3
"""Answers that have to be known before anything is made of them."""
MIN_TOKENS = 200
"""Shorter answers teach nothing: what surrounds calls and turns weighs too much in them."""
PLAUSIBLE = (0.5, 3.0)
"""A ratio beyond these tells of something else than a vocabulary."""
OURS = 0.02
"""A model whose counts differ by less is taken to have our vocabulary: its counts are left as they are."""


class OutputRatios:
    """Reported output tokens for each that was counted, as last learned; bounded."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], list[float]] = {}
        self._by_model: dict[str, list[float]] = {}

    def learn(self, key_id: str, model: str, reported: int, counted: int) -> None:
        """Remember a whole answer.

        Args:
            model: the provider's id, which the vocabulary belongs to.
        """
        if counted < MIN_TOKENS or not PLAUSIBLE[0] <= reported / counted <= PLAUSIBLE[1]:
            return
        _put(self._by_key, (key_id, model), reported / counted)
        _put(self._by_model, model, reported / counted)

    def factor(self, key_id: str, model: str) -> float:
        """Return what a count is to be multiplied by: what the key's answers say, else all of the model's, else 1."""
        for known in (self._by_key.get((key_id, model)), self._by_model.get(model)):
            if known is not None and len(known) >= ENOUGH:
                factor = sorted(known)[len(known) // LAST]
                return factor if abs(factor - 1) >= OURS else 1.0
        return 1.0


def _put(ratios: dict[_Key, list[float]], key: _Key, ratio: float) -> None:
    known = ratios.pop(key, None) or []
    known.append(ratio)
    del known[:-LAST]
    ratios[key] = known
    if len(ratios) > MAX_RATIOS:
        del ratios[next(iter(ratios))]
