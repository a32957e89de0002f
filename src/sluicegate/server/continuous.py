"""Continuous usage around one request: who asked for it, what the provider is asked, and the stream that tells it.

Only requests that ask for it come here. How the numbers come about is `billing.running_usage`, where they stand on the
wire `wire.continuous_usage`. Source: the streaming contract, C8.
"""

import msgspec

from sluicegate.billing.meter import Meter
from sluicegate.billing.profiles import Switches
from sluicegate.billing.running_usage import RunningUsage
from sluicegate.errors import BadRequest
from sluicegate.messages import Usage
from sluicegate.routing.catalog import Provider
from sluicegate.server.tab import Tab
from sluicegate.wire import Bill, StreamCodec, json_edit
from sluicegate.wire.continuous_usage import ContinuousUsage
from sluicegate.wire.cost import bill
from sluicegate.wire.translation import AdmittedRequest, Codec

HEADER = b"x-sluicegate-continuous-usage"
_SWITCH = {b"1": True, b"true": True, b"0": False, b"false": False}


def ask_by_header(request: AdmittedRequest, value: bytes) -> None:
    """Take down what the header says for formats whose body has no option for it; it can only ask, not take back.

    Raises:
        BadRequest: it is neither yes nor no.
    """
    asked = _SWITCH.get(value.strip().lower())
    if asked is None:
        name = HEADER.decode()
        raise BadRequest(f"Invalid value for the header '{name}': expected 1 or 0.", param=name)
    if asked:
        request.continuous_usage = request.include_usage = True


def asking_provider(body: bytes, format: str, provider: Provider) -> bytes:
    """Return a streamed request's body that asks the provider for it too, where its row says that it knows how."""
    if not (provider.continuous_usage and provider.stream_options and format in ("chat", "completions")):
        return body
    options = bytes(json_edit.decode_top(body, format).get("stream_options", msgspec.Raw(b"{}")))
    wanted = {"include_usage": b"true", "continuous_usage_stats": b"true"}
    asked = json_edit.changed(options if options.startswith(b"{") else b"{}", wanted)
    return json_edit.changed(body, {"stream_options": asked})


def telling(
    codec: StreamCodec, client: Codec, meter: Meter, tab: Tab, switches: Switches, *, array: bool
) -> StreamCodec:
    """Return a stream that tells usage and cost so far on its events, in the client's format.

    Args:
        array: Gemini without `alt=sse`.
    """
    running = RunningUsage(meter, tab.cost_so_far)

    def so_far(reported: Usage | None) -> Bill:
        usage, cost_nano_usd = running.so_far(reported)
        return bill(usage, cost_nano_usd, switches.cost, switches.cost_extension_key)

    return ContinuousUsage(codec, client.usage_mark, so_far, array=array)
