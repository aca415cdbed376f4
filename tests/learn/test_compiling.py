"""Kernels are compiled once, with a message, and a second process finds them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FIT = (
    "import numpy as np\n"
    "from weft.learn import LogisticRegression\n"
    "LogisticRegression().fit(np.eye(4), [0, 1, 0, 1])\n"
    "import sys; assert 'torch' not in sys.modules\n"
)


def python(code: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(cache)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )


def test_the_second_process_starts_warm(tmp_path: Path) -> None:
    assert "compiling kernels, once" in python(FIT, tmp_path).stderr
    assert list((tmp_path / "weft" / "kernels").rglob("*.nbi"))
    assert python(FIT, tmp_path).stderr == ""


def test_the_package_opens_without_numba(tmp_path: Path) -> None:
    code = "import sys, weft.learn\nprint([m for m in ('numba', 'numpy', 'sklearn', 'torch') if m in sys.modules])"
    assert python(code, tmp_path).stdout == "[]\n"
