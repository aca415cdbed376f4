"""One browser and one made-up service a file of tests: both take a second to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from testing.console.browser import chromium, made_up_service, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with open_page(browser) as opened:
        yield opened


@pytest.fixture(scope="module")
def many() -> Iterator[str]:
    """The address of a service of 400 jobs, which tests leave as it is."""
    with made_up_service(400) as url:
        yield url


@pytest.fixture(scope="module")
def nothing() -> Iterator[str]:
    """The address of a service without jobs and hosts."""
    with made_up_service(0) as url:
        yield url


@pytest.fixture
def fresh() -> Iterator[str]:
    """The address of a service of forty jobs whose state a test may change."""
    with made_up_service(40) as url:
        yield url
