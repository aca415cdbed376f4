"""A budget on each of several ranks that train together."""

from __future__ import annotations

from pathlib import Path

import pytest
from testing.forking.server import ForkServer
from testing.shell import Shell

WORKER = Path(__file__).with_name("workers") / "ranks.py"
ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "backend"),
    [
        ("ddp", "gloo"),
        ("fsdp2", "weft"),
    ],  # Gloo's threads hold shards for a moment longer: bytes nobody can plan
)
def test_two_ranks_train_as_they_would_natively(
    shell: Shell, forks: ForkServer, way: str, backend: str
) -> None:
    done = forks.run(
        ["run", "-n", "2", str(WORKER), backend, way],
        env=shell.environment({"PYTHONPATH": str(ROOT)}),
        cwd=shell.folder,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert done.stdout.count("as it should be") == 2
