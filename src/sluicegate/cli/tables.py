"""Tables for people: every row whole in a line of its own, however narrow the window or where there is none."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_WIDEST = 10_000


def print_table(table: Table) -> None:
    """Print a table at its full width; what a window does not hold goes on in the next line of the window."""
    console = Console()
    wanted = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    Console(width=max(console.width, wanted)).print(table)
