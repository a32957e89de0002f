"""What supervisor and workers say to each other of probes; framing and the rest is `server.control`."""

import msgspec


class ProbeAsked(msgspec.Struct, tag="probe_asked", frozen=True):
    """Probe a provider."""

    question: int
    provider: str
    models: list[str]
    """Its ids of those that it is about; a request is for the first."""
    kind: str
    """models | request"""
    timeout_s: float


class ProbeTold(msgspec.Struct, tag="probe_told", frozen=True):
    """The answer to `ProbeAsked`."""

    question: int
    finding: str
    """well | ill | refused | unclear"""
    why: str = ""
    """Kind of the error."""
    answering: list[str] = []
    """Those of the models that answered requests of clients here lately."""
