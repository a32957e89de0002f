"""How a simulator is set up, as plain data: by tests, the command line, or JSON for another process."""

import msgspec

from sluicegate.simulator.answer import Answer


class SimulatorSettings(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Where it listens, and what it says to a request that no script was meant for."""

    host: str = "127.0.0.1"
    port: int = 0
    tls_cert_file: str | None = None
    tls_key_file: str | None = None

    tokens: int = 32
    """Length of the default answer."""
    tokens_per_event: int = 1
    input_tokens: int = 9
    first_token_s: float = 0.0
    interval_s: float = 0.0
    """Between events; 0: the whole answer in one write."""
    stamped: bool = False
    """Each piece of text is the moment it was sent, as 19 digits of the machine's monotonic nanoseconds."""
    answer: Answer | None = None
    """The default answer, instead of one made from the counts above."""

    tick_s: float = 0.001
    """Events due within one tick leave together."""
    keep: int = 10_000
    """So many requests are remembered, the newest ones."""
    answers_per_connection: int = 0
    """Close a connection, unannounced, after so many answers; 0: never."""
    idle_close_s: float = 0.0
    """Close a connection that was idle for so long; 0: never."""
