"""Stories: what happens to jobs of a service that runs for one test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from testing.jobs.desk import Desk, Tell, desk_on, opened


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """A function that runs a story with a service of its own."""

    def run(story: Callable[[Desk], Awaitable[None]], **settings: Any) -> None:
        async def whole() -> None:
            async with desk_on(database, tmp_path, **settings) as desk:
                await story(desk)

        with opened(f"sqlite:///{tmp_path}/weft.db") as database:
            asyncio.run(whole())

    return run
