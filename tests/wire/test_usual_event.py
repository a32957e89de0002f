"""Events that differ only inside a text pass without being decoded, and nothing else does."""

import pytest

from sluicegate.wire.usual_event import UsualEvent, learn

BEFORE = b'{"model":"theirs","text":"%b","end":null}'
AFTER = b'{"model":"ours","text":"%b","end":null}'


def framed(shape: bytes, text: bytes) -> bytes:
    return b"data: " + shape % text + b"\n\n"


@pytest.fixture
def usual() -> UsualEvent:
    learned = learn(BEFORE % b"word", AFTER % b"word", "text", "word", None)
    assert learned is not None
    return learned


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b"other", "other"),
        (b"", ""),
        (b'\\u00e9 \\n \\" \\\\', 'é \n " \\'),
        ("é\U0001f600".encode(), "é\U0001f600"),
        (b'\\",\\"end\\":\\"', '","end":"'),
    ],
)
def test_a_text_passes_as_it_is_and_is_read(usual: UsualEvent, text: bytes, read: str) -> None:
    assert usual.rewrite_read(framed(BEFORE, text)) == framed(AFTER, text)
    assert usual.text == read


def test_several_events_of_one_read_pass_together(usual: UsualEvent) -> None:
    texts = (b"a", b"\\u00e9", b"", b"c")
    assert usual.rewrite_read(b"".join(framed(BEFORE, text) for text in texts)) == b"".join(
        framed(AFTER, text) for text in texts
    )
    assert usual.text == "aéc"


@pytest.mark.parametrize(
    "text",
    [b'a","more":"b', b'a"', b"a\nb", b"\x01", b"\xff", b"\\x", b"\\ud83d", b"\\", b'a"},{"text":"b'],
    ids=repr,
)
def test_what_is_no_text_does_not_pass(usual: UsualEvent, text: bytes) -> None:
    assert usual.rewrite_read(framed(BEFORE, text)) is None


def test_other_edges_do_not_pass(usual: UsualEvent) -> None:
    event = framed(BEFORE, b"word")
    for other in (
        event[:-1],
        event[1:],
        event + b"\n",
        event.replace(b"null", b"true"),
        b"",
        framed(AFTER, b"word"),
    ):
        assert usual.rewrite_read(other) is None


def test_edges_that_overlap_are_no_event() -> None:
    learned = learn(b'{"text":"x"}', b'{"text":"x"}', "text", "x", None)
    assert learned is not None
    assert learned.wire_head.endswith(b'"')
    assert learned.wire_tail.startswith(b'"')
    assert learned.rewrite_read(learned.wire_head + learned.wire_tail[1:]) is None
