"""The example of workers that learn together, run as its docstring says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "learn_together.py"


def test_two_workers_agree(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "weft", "run", "-n", "2", str(EXAMPLE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"rank (\d): accuracy ([\d.]+), features that matter: (.*)", done.stdout)
    assert sorted(rank for rank, _, _ in found) == ["0", "1"]
    assert all(float(right) > 0.6 and names == "[0, 1, 2]" for _, right, names in found)
