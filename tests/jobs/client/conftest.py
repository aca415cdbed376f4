"""A service that tests of the client and of its commands talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testing.jobs.fake_service import TOKEN, FakeService

from weft.jobs.client.client import JobsClient


@pytest.fixture
def service() -> Iterator[FakeService]:
    made = FakeService()
    made.start()
    yield made
    made.end()


@pytest.fixture
def client(service: FakeService) -> Iterator[JobsClient]:
    with JobsClient(service.url, TOKEN) as made:
        yield made
