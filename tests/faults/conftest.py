"""The providers that fail, for every test of the folder."""

from collections.abc import AsyncIterator

import pytest

from tests.conftest import Certificates
from tests.faults.faulty import Faulty, faulty


@pytest.fixture
async def providers(certificates: Certificates) -> AsyncIterator[Faulty]:
    async with faulty(certificates) as running:
        yield running
