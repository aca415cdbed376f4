"""Fixtures of tests of weft.vision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from weft.vision.library import Library

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """A library in a folder of its own."""
    with Library(tmp_path / "library") as opened:
        yield opened
