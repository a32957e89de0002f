"""Lengths of sounds and pages of documents, as their files tell them."""

import io
import wave
import zlib
from base64 import b64encode
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate.billing.media_lengths import PdfPages, page_tokens, sound_seconds, sound_tokens


def wav(seconds: float, hz: int = 16_000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(hz)
        writer.writeframes(bytes(2 * round(seconds * hz)))
    return file.getvalue()


def wav_as_it_came(seconds: float) -> bytes:
    """Its length was not known when its head was written."""
    data = bytearray(wav(seconds))
    at = data.index(b"data") + 4
    data[at : at + 4] = b"\xff\xff\xff\xff"
    return bytes(data)


def wav_with_notes(seconds: float) -> bytes:
    data = wav(seconds)
    at = data.index(b"data")
    return data[:at] + b"LIST" + (5).to_bytes(4, "little") + b"hello\0" + data[at:]


def mp3(seconds: float) -> bytes:
    """MPEG 1, layer III, 128 kbit/s, 44.1 kHz: every byte alike but for the first frame's head."""
    return b"\xff\xfb\x90\x00" + bytes(round(seconds * 16_000) - 4)


def mp3_with_cover(seconds: float) -> bytes:
    size = 300_000
    spelled = bytes((size >> 21 & 127, size >> 14 & 127, size >> 7 & 127, size & 127))
    return b"ID3\x04\0\0" + spelled + bytes(size) + mp3(seconds)


def mp3_of_varying_rate(seconds: float) -> bytes:
    frames = round(seconds * 44_100 / 1152)
    told = b"Xing" + (1).to_bytes(4) + frames.to_bytes(4)
    return b"\xff\xfb\x90\x00" + bytes(32) + told + bytes(5_000)


def flac(seconds: float) -> bytes:
    rate, samples = 44_100, round(seconds * 44_100)
    packed = (rate << 44 | 1 << 41 | 15 << 36 | samples).to_bytes(8)
    return b"fLaC\0\0\0\x22" + bytes(10) + packed + bytes(16)


def opus(seconds: float) -> bytes:
    def page(granule: int, data: bytes) -> bytes:
        return b"OggS\0\0" + granule.to_bytes(8, "little") + bytes(13) + data

    head = b"OpusHead\x01\x01" + (312).to_bytes(2, "little") + (16_000).to_bytes(4, "little") + bytes(3)
    return page(0, head) + page(48_000, bytes(90_000)) + page(312 + round(seconds * 48_000), bytes(500))


SOUNDS = [wav, wav_as_it_came, wav_with_notes, mp3, mp3_with_cover, mp3_of_varying_rate, flac, opus]


@pytest.mark.parametrize("make", SOUNDS)
@pytest.mark.parametrize("seconds", [1.0, 12.5, 61.0])
def test_a_sound_tells_its_length(make: Callable[[float], bytes], seconds: float) -> None:
    told = b64encode(make(seconds)).decode()
    assert sound_seconds(told) == pytest.approx(seconds, abs=0.03)
    assert sound_tokens(told, "gemini") == pytest.approx(32 * seconds, abs=1)
    assert sound_tokens(told, "chat") == pytest.approx(10 * seconds, abs=1)


@example(mp3, 2, 2, b"Xing")
@given(st.sampled_from(SOUNDS), st.integers(0, 200), st.integers(0, 60), st.binary(max_size=4))
def test_no_file_is_so_broken_that_it_cannot_be_looked_at(
    make: Callable[[float], bytes], cut: int, at: int, put: bytes
) -> None:
    data = make(0.5)[:cut]
    data = data[:at] + put + data[at + len(put) :]
    seconds = sound_seconds(b64encode(data).decode())
    assert seconds is None or seconds > 0


@pytest.mark.parametrize("text", ["", "!", "AAAA", "SUQz", "T2dnUw==", "ZkxhQw=="])
def test_what_is_no_sound_has_no_length(text: str) -> None:
    assert sound_seconds(text) is None
    assert sound_tokens(text, "chat") is None


def plain_pdf(pages: int) -> bytes:
    """As old writers made them: every object in the open."""
    kids = " ".join(f"{number + 3} 0 R" for number in range(pages))
    objects = [f"1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n2 0 obj\n<< /Type /Pages /Kids [{kids}]"]
    objects.append(f" /Count {pages} >>\nendobj\n")
    objects += (f"{number + 3} 0 obj\n<< /Type /Page /Parent 2 0 R >>\nendobj\n" for number in range(pages))
    return ("%PDF-1.4\n" + "".join(objects) + "%%EOF\n").encode()


def packed_pdf(pages: int) -> bytes:
    """As new ones do: pages in compressed object streams, between streams of other kinds."""
    parts = [b"%PDF-1.5\n"]
    for start in range(0, pages, 7):
        count = min(7, pages - start)
        held = b"".join(b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 %d 842]>> " % n for n in range(count))
        packed = zlib.compress(held)
        parts.append(
            b"9 0 obj\n<</Type/ObjStm/N %d/Filter/FlateDecode/Length %d>>stream\r\n" % (count, len(packed))
        )
        parts += [packed, b"\nendstream\nendobj\n"]
        parts.append(b"8 0 obj\n<</Length 9000>>stream\n" + bytes(range(256)) * 36 + b"\nendstream\nendobj\n")
    return b"".join([*parts, b"%%EOF\n"])


@given(
    st.sampled_from((plain_pdf, packed_pdf)),
    st.integers(1, 40),
    st.lists(st.integers(1, 3000), min_size=1, max_size=8),
)
def test_pages_are_counted_however_the_file_is_cut(
    make: Callable[[int], bytes], count: int, sizes: list[int]
) -> None:
    data, pages, at, turn = make(count), PdfPages(), 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        pages.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert pages.finish() == count
    assert page_tokens(count, "gemini") == 258 * count


@given(st.binary(max_size=2000), st.integers(1, 500))
def test_no_document_is_so_broken_that_it_cannot_be_looked_at(data: bytes, size: int) -> None:
    pages = PdfPages()
    whole = b"%PDF-1.5\n1 0 obj<</Type/ObjStm>>stream\n" + data + packed_pdf(1)[30:]
    for at in range(0, len(whole), size):
        pages.feed(whole[at : at + size])
    assert pages.finish() >= 0


def test_a_document_that_unpacks_without_end_is_looked_at_in_part() -> None:
    bomb = zlib.compress(bytes(50_000_000))
    pages = PdfPages()
    for _ in range(20):
        pages.feed(b"<</Type/ObjStm/Filter/FlateDecode>>stream\n" + bomb + b"\nendstream\n")
    pages.feed(b"<</Type/Page>>")
    assert pages.finish() == 1
