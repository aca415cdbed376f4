"""What tests of weft.learn share."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.files import cache_folder


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own; but kernels are everybody's, or each such test would compile them again."""
    kernels = cache_folder("kernels")
    kernels.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mine = cache_folder("kernels")
    mine.parent.mkdir(parents=True)
    mine.symlink_to(kernels)
