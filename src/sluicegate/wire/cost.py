"""The charged cost as it stands beside or inside a format's usage: an exact JSON number and an integer."""

from typing import Literal

from sluicegate.messages import Usage
from sluicegate.money import format_usd
from sluicegate.wire.bill import Bill


def bill(
    usage: Usage, cost_nano_usd: int, place: Literal["usage", "extension", "none"], extension_key: str
) -> Bill:
    """Return what the end of an answer says.

    Args:
        place: in the usage object, in a named object beside it, or nowhere.
        extension_key: the name of that object.
    """
    if place == "usage":
        return Bill(
            usage,
            in_usage=b'"cost":%b,"cost_nano_usd":%d' % (format_usd(cost_nano_usd).encode(), cost_nano_usd),
        )
    if place == "extension":
        beside = b'"%b":{"cost_nano_usd":%d,"priced_at":"online"}' % (extension_key.encode(), cost_nano_usd)
        return Bill(usage, beside_usage=beside)
    return Bill(usage)
