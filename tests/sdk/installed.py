"""Whether the Node SDKs are there, which `make test` installs."""

from pathlib import Path

import pytest

NODE_SDKS = Path(__file__).with_name("node_modules") / "openai"

needs_node_sdks = pytest.mark.skipif(
    not NODE_SDKS.exists(),
    reason="the Node SDKs are not installed: `make test` found no npm registry, or did not run",
)
