"""Streams with several pictures: every one of them counts."""

import json

from sluicegate.messages import Usage
from sluicegate.wire import Bill
from sluicegate.wire.translation import PassOptions
from sluicegate.wire.unary.event_stream import EventStream
from sluicegate.wire.unary.images import usage_of_event


def completed(read: int, seen: int | None, made: int) -> bytes:
    usage = {"input_tokens": read, "output_tokens": made, "total_tokens": read + made}
    if seen is not None:
        usage |= {"input_tokens_details": {"image_tokens": seen, "text_tokens": read - seen}}  # type: ignore[dict-item]
    event = {"type": "image_edit.completed", "b64_json": "AA==", "size": "1024x1024", "usage": usage}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def test_b2_tokens_of_all_pictures_are_added_up() -> None:
    stream = EventStream(
        PassOptions(count_text=lambda text: None), usage_of_event(None, "low"), (".completed",)
    )
    for event in (completed(300, 258, 100), completed(20, None, 110), completed(40, 30, 120)):
        stream.feed(event)
    stream.finish()
    assert stream.ended
    assert stream.usage == Usage(
        input_tokens=360,
        input_image_tokens=288,
        output_tokens=330,
        output_image_tokens=330,
        images=3,
        image_size="1024x1024",
        image_quality="low",
    )
    assert len(stream.out) == 2
    last = json.loads(stream.farewell(Bill(Usage(), b'"cost":1')).removeprefix(b"data: "))
    assert last["usage"] | {"cost": 1} == last["usage"]
