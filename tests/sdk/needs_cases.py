"""What providers say oddly, once more: the cases that an SDK would stumble over if they passed as they came."""

from tests.cases.broken import BROKEN
from tests.cases.called import CALLED
from tests.cases.case import Case
from tests.cases.counted import COUNTS
from tests.cases.ended import ENDED
from tests.cases.framed import FRAMED

LEFT_OUT = {"B014", "B027", "B033", "B074", "B086", "B131"}
"""Megabytes, and what the framing alone is about: it is taken off before any codec, whatever the client's format."""
UNLIKE = {("B021-chat-a-filter-alone", "gemini")}
"""There is no candidate to read: `test_gemini_blocked_prompts_are_no_error` does."""


def cells() -> list[tuple[Case, str]]:
    """Return each case with the formats of the clients that it is shown to.

    On the same format all of them, since bytes pass there; across formats those that are about events and their order.
    """
    chosen = []
    for case in (*FRAMED, *ENDED, *CALLED, *COUNTS, *BROKEN):
        if case.id in LEFT_OUT:
            continue
        for client in case.heard_by():
            if (case.name, client) in UNLIKE:
                continue
            if client == case.provider or case in CALLED or case in ENDED:
                chosen.append((case, client))
    return chosen
