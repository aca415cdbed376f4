"""Two workers that share one accelerator: the backend "weft" through main memory, and mode nccl by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.topology.detect import detect

pytestmark = pytest.mark.gpu
WORKERS = Path(__file__).parent / "workers"


@pytest.mark.parametrize("script", [["shared_gpu.py"], ["shared_gpu.py", "nccl"], ["nccl_mode.py"]])
def test_two_workers_agree(script: list[str], tmp_path: Path) -> None:
    if not detect().accelerators:
        pytest.skip("needs an accelerator; run by hand where there is one: pytest -m gpu")
    done = subprocess.run(
        [sys.executable, "-m", "weft", "run", "-n", "2", WORKERS / script[0], *script[1:]],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] rank 0 agrees", "[1] rank 1 agrees"]
