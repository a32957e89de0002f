"""The bundled local model, one process for all tests of this folder."""

from collections.abc import Iterator

import pytest

from sluicegate.local_model import LocalModel


@pytest.fixture(scope="session")
def local_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Base address of the running model, without a path."""
    with LocalModel(tmp_path_factory.mktemp("model") / "model.log") as model:
        yield model.wait_ready()
