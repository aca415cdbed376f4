"""With one accelerator: it is found, a worker gets it, and NCCL comes up over the card we chose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.topology.detect import detect

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def an_accelerator() -> None:
    if not detect().accelerators:
        pytest.skip("needs an accelerator; run by hand where there is one: pytest -m gpu")


def test_the_accelerator_is_described() -> None:
    first = detect().accelerators[0]
    assert first.memory_bytes > 1 << 30
    assert "NVIDIA" in first.model


def test_a_worker_per_accelerator_reduces_by_nccl(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch, weft\nworld = weft.init()\nt = torch.ones(1 << 20, device=world.device)\n"
        "torch.distributed.all_reduce(t)\nc = torch.ones(1)\ntorch.distributed.all_reduce(c)\n"
        "print(world.device, world.backend, int(t[0]), int(c))\nweft.shutdown()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "weft", "run", "train.py"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    count = len(detect().accelerators)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}] cuda:{rank} cpu:gloo,cuda:nccl {count} {count}" for rank in range(count)
    ]
