"""Runs the simulator with settings given as JSON: how `SimulatorProcess` starts it."""

import sys

import msgspec

from sluicegate.simulator.process import run
from sluicegate.simulator.settings import SimulatorSettings

if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=SimulatorSettings), with_parent=True)
