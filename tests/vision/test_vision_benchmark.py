"""The training rows of `benchmarks/vision.py`: their commands run as they are written, on a few made-up pictures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_a_training_row_prints_its_figures(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    data = tmp_path / "few.npz"
    pictures, classes = draw.integers(0, 256, (40, 32, 32, 3), np.uint8), np.arange(40) % 10
    np.savez(data, train_x=pictures, train_y=classes, test_x=pictures, test_y=classes)
    settings = ["schedule.epochs=1", "batch=20", 'precision="float32"', "threads=1"]
    command = [sys.executable, "benchmarks/vision.py", "cifar94", "--data", str(data), "--device", "cpu"]
    done = subprocess.run(
        [*command, "--set", *settings], capture_output=True, text=True, cwd=ROOT, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "cifar94 accuracy: mean " in done.stdout
    assert "cifar94 training_s: mean " in done.stdout
