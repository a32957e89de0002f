"""The scripted provider: a real HTTP server that plays model answers and every fault we know of.

Tests, load tests and `sluicegate simulate` talk to it over a socket, as the gate talks to a provider. It
shares no code with `server`, so that a fault there cannot hide behind the same fault here. What it plays is
data (`script.py`), what it was asked is kept (`record.py`), and what it "really" produced is the truth that
billing is audited against.
"""

from sluicegate.simulator.answer import Answer, ToolCall
from sluicegate.simulator.process import SimulatorProcess
from sluicegate.simulator.record import Received
from sluicegate.simulator.script import (
    Close,
    CutAt,
    Cuts,
    Done,
    Drip,
    EndlessLine,
    Error,
    Event,
    Flood,
    Head,
    Huge,
    Informational,
    Play,
    Raw,
    Reset,
    Script,
    Send,
    Stall,
    Wait,
)
from sluicegate.simulator.server import Simulator
from sluicegate.simulator.settings import SimulatorSettings

__all__ = [
    "Answer",
    "Close",
    "CutAt",
    "Cuts",
    "Done",
    "Drip",
    "EndlessLine",
    "Error",
    "Event",
    "Flood",
    "Head",
    "Huge",
    "Informational",
    "Play",
    "Raw",
    "Received",
    "Reset",
    "Script",
    "Send",
    "Simulator",
    "SimulatorProcess",
    "SimulatorSettings",
    "Stall",
    "ToolCall",
    "Wait",
]
