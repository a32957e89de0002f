"""The command line in the test's own process."""

from pathlib import Path

import pytest

from sluicegate.cli import main
from tests.cli.world import CONFIGURATION, Run, Sluicegate


@pytest.fixture
def sluicegate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Sluicegate:
    """Run a command with a configuration of its own."""
    config = tmp_path / "sluicegate.yaml"
    config.write_text(CONFIGURATION)

    def run(*words: str) -> Run:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--config", str(config)])
        captured = capsys.readouterr()
        status = ended.value.code
        assert isinstance(status, int | None)
        return Run(status or 0, captured.out, captured.err)

    return run
