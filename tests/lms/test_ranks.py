"""A budget on each of several ranks that train together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launch.conftest import Shell

WORKER = Path(__file__).with_name("workers") / "ranks.py"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    built = Shell(tmp_path)
    yield built
    built.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "backend"),
    [
        ("ddp", "gloo"),
        ("fsdp2", "weft"),
    ],  # Gloo's threads hold shards for a moment longer: bytes nobody can plan
)
def test_two_ranks_train_as_they_would_natively(shell: Shell, way: str, backend: str) -> None:
    done = shell.weft("run", "-n", "2", str(WORKER), backend, way, timeout=250, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert done.stdout.count("as it should be") == 2
