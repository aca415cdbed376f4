"""A service for all tests of data sets of pictures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testing.jobs.web import ServiceThread, WebService


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebService]:
    with ServiceThread(tmp_path_factory.mktemp("data"), {}) as service:
        yield service
