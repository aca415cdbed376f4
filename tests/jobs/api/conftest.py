"""A service for all tests of a module, and one of its own for a test with other options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from testing.jobs.web import ServiceThread, WebService

StartWeb = Callable[..., WebService]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebService]:
    with ServiceThread(tmp_path_factory.mktemp("data"), {}) as service:
        yield service


@pytest.fixture
def start_web(tmp_path: Path) -> Iterator[StartWeb]:
    with ExitStack() as stack:

        def start(**options: Any) -> WebService:
            folder = tmp_path / "data"
            folder.mkdir()
            return stack.enter_context(ServiceThread(folder, options))

        yield start
