"""Envelopes of opaque state: what was sealed comes back whole, and nothing else opens."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.messages import Opaque
from sluicegate.wire.envelope import open_envelope, seal
from tests.profiles import examples

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
OPAQUE = st.builds(
    Opaque,
    vendor=st.sampled_from(["openai", "anthropic", "google", "other"]),
    kind=st.sampled_from(["signature", "encrypted", "redacted"]),
    value=TEXT,
    model=st.none() | TEXT,
    id=st.none() | TEXT,
)
SIGNATURE = Opaque(vendor="anthropic", kind="signature", value="U0lH+/==", model="m", id=None)


@settings(max_examples=examples(50), deadline=None)
@given(OPAQUE)
def test_sealed_state_comes_back_whole(opaque: Opaque) -> None:
    text = seal(opaque)
    assert open_envelope(text) == opaque
    assert text == seal(opaque)
    assert text.startswith(f"gw1.{opaque.vendor}.")
    assert not set(text) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@settings(max_examples=examples(50), deadline=None)
@given(OPAQUE, st.data())
def test_a_damaged_envelope_does_not_open(opaque: Opaque, data: st.DataObject) -> None:
    text = seal(opaque)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters().filter(lambda character: character != text[at]))
    assert open_envelope(text[:at] + other + text[at + 1 :]) is None
    assert open_envelope(text[:at]) is None


@settings(max_examples=examples(50), deadline=None)
@given(st.text(max_size=80))
def test_other_text_does_not_open(text: str) -> None:
    assert open_envelope(text) is None
    assert open_envelope("gw1." + text) is None


@pytest.mark.parametrize("body", ["W10", "e30", "bnVsbA", "eyJ2IjoxLCJrIjoic2lnbmF0dXJlIn0", "e", "_w"])
def test_a_right_checksum_over_a_wrong_body_does_not_open(body: str) -> None:
    head = f"gw1.anthropic.{body}"
    assert open_envelope(f"{head}.{zlib.crc32(head.encode()):08x}") is None


def test_an_unknown_vendor_does_not_open() -> None:
    head = seal(SIGNATURE).rpartition(".")[0].replace("anthropic", "nobody")
    assert open_envelope(f"{head}.{zlib.crc32(head.encode()):08x}") is None
