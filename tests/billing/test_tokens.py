"""Local token counts: the same as the package's own, piece by piece nearly the same, bounded in time."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.billing.tokens import PIECE_CHARS, TokenCounter, _tokenizer, count_tokens, warm_up

ENGLISH = (
    "The gate passes every event on as it comes, counts what the model produced, and charges each token once. "
    "A stream that was cut is billed for what had arrived; nobody pays twice, and nothing is lost on a crash.\n\n"
) * 40
CODE = (
    "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n"
    "    return fibonacci(n - 1) + fibonacci(n - 2)\n\n\n"
    "values = [fibonacci(number) for number in range(32)]\nprint(f'{values!r:>80}')\n"
) * 40
JSON = '{"id":"call_1","city":"Oslo","days":[1,2,3],"units":"metric","note":"\\u00e9\\n"},' * 120
CHINESE = "网关逐个事件地转发回答、并且只对每个令牌收费一次。" * 120
MIXED = "Grüße aus Zürich – 😀🎉 naïve café, Ελληνικά, русский текст, 日本語テキスト, العربية. " * 60
NO_SPACE = "".join(random.Random(1).choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(20_000))

TEXTS = {
    "english": ENGLISH,
    "code": CODE,
    "json": JSON,
    "chinese": CHINESE,
    "mixed": MIXED,
    "no space": NO_SPACE,
}
ERROR = {"english": 0.0005, "code": 0.002, "json": 0.003, "chinese": 0.003, "mixed": 0.002, "no space": 0.003}
"""Share by which counting in pieces may differ from counting at once, for texts of 8,000 characters and more."""


def at_once(text: str) -> int:
    return _tokenizer().count(text)


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    warm_up()


@pytest.mark.parametrize(
    "text", ["", "a", "Hello, world!", " ", "\n\n", "😀", "tiktoken is great!", "x" * 100]
)
def test_short_texts_are_exact(text: str) -> None:
    assert count_tokens(text) == at_once(text)


@pytest.mark.parametrize(
    ("text", "tokens"), [("Hello world", 2), ("tiktoken is great!", 6), ("antidisestablishmentarianism", 6)]
)
def test_known_counts_of_o200k(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


@pytest.mark.parametrize("name", TEXTS)
def test_long_texts_counted_in_pieces(name: str) -> None:
    text = TEXTS[name]
    assert abs(count_tokens(text) - at_once(text)) <= ERROR[name] * at_once(text) + 2


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("size", [1, 3, 17, 500, 5000])
def test_texts_that_come_in_deltas(name: str, size: int) -> None:
    text = TEXTS[name]
    counter = TokenCounter()
    for at in range(0, len(text), size):
        counter.add(text[at : at + size])
    whole = at_once(text)
    assert counter.total() == counter.total()  # asking changes nothing
    assert counter.floor() <= counter.total()
    # a text without white space is cut wherever 1,024 characters end
    allowed = 0.01 if name in ("no space", "chinese") else ERROR[name]
    assert abs(counter.total() - whole) <= allowed * whole + 2


def test_an_ordinary_answer_is_exact() -> None:
    counter = TokenCounter()
    words = ENGLISH[:6000].split(" ")
    for word in words:
        counter.add(word + " ")
    assert counter.total() == at_once(" ".join(words) + " ")


def test_progress_is_told_from_time_to_time() -> None:
    told: list[int] = []
    counter = TokenCounter()
    counter.on_counted = told.append
    for _ in range(1000):
        counter.add("some words ")
    assert told == sorted(told)
    assert 5 <= len(told) <= 20
    assert told[-1] == counter.floor() <= counter.total()


@given(st.lists(st.text(max_size=30), max_size=60))
def test_any_deltas_are_counted(deltas: list[str]) -> None:
    counter = TokenCounter()
    for delta in deltas:
        counter.add(delta)
    text = "".join(deltas)
    assert counter.total() == count_tokens(text) or len(text) > TokenCounter.GATHER_CHARS


@pytest.mark.parametrize(
    "text", ["a" * 1_500_000, " " * 1_500_000, "é" * 500_000, "\n" * 500_000, "ab " * 400_000]
)
def test_a_million_characters_are_counted_without_stalling(text: str) -> None:
    start = time.process_time()
    assert count_tokens(text) > 0
    whole = time.process_time() - start
    start = time.process_time()
    count_tokens(text[:PIECE_CHARS])
    assert time.process_time() - start < 0.1
    assert whole < 5


def test_one_gigantic_delta_and_many_small_ones_are_linear() -> None:
    counter = TokenCounter()
    start = time.process_time()
    counter.add("word " * 100_000)
    for _ in range(100_000):
        counter.add("x")
    assert counter.total() > 100_000
    assert time.process_time() - start < 3


@pytest.mark.parametrize("late", [False, True])
@given(
    sizes=st.lists(st.integers(1, 40_000), min_size=1, max_size=12),
    marks=st.sets(st.integers(0, 11)),
    turns=st.sets(st.integers(0, 11)),
)
def test_what_came_since_a_mark(late: bool, sizes: list[int], marks: set[int], turns: set[int]) -> None:
    """Whatever is counted when, it is what all of it counts less what stood before the mark."""
    counter = TokenCounter()
    if late:
        counter.on_late = lambda: None
    text, before, at = ENGLISH * 40, "", 0
    for place, size in enumerate(sizes):
        counter.add(text[at : at + size])
        at += size
        if place in marks:
            counter.mark()
            before = text[:at]
        if place in turns:
            counter.catch_up()
    whole = at_once(text[:at])
    allowed = 2 + 0.002 * whole
    assert abs(counter.since_mark() - (whole - at_once(before))) <= allowed
    assert abs(counter.total() - whole) <= allowed


@given(sizes=st.lists(st.integers(1, 3_000), min_size=1, max_size=40))
def test_a_running_count_is_at_most_a_tenth_too_high(sizes: list[int]) -> None:
    counter = TokenCounter()
    at = 0
    for size in sizes:
        counter.add(ENGLISH[at : at + size])
        at += size
        running, whole = counter.running(), at_once(ENGLISH[:at])
        assert 0.99 * whole - 2 <= running <= 1.1 * whole + len(sizes)


def test_what_waits_in_line_has_a_bound() -> None:
    counter = TokenCounter()
    counter.on_late = lambda: None
    for _ in range(20):
        counter.add("more words " * 100_000)
    assert counter._late is not None
    assert len(counter._late) <= counter.MAX_LATE_PIECES
