"""The example, run as its first lines say."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from testing.forking.server import EXPORTS, TABLES, ForkServer

from weft.serve import Store

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "export_digits.py"


@pytest.mark.long
def test_export_digits(tmp_path: Path, forks: ForkServer) -> None:
    command = [forks.load(*TABLES, *EXPORTS).python, str(EXAMPLE), "--folder", str(tmp_path / "digits")]
    env = os.environ | {"OMP_NUM_THREADS": "1"}  # other tests want the cores as well
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    exact, small = done.stdout.splitlines()
    for line in (exact, small):
        found = re.search(r"accuracy ([\d.]+)% \(model ([\d.]+)%\)", line)
        assert found is not None
        assert float(found[1]) > 90
        assert abs(float(found[1]) - float(found[2])) < 3
    store = Store(tmp_path / "digits" / "store")
    first, second = store.resolve("digits@exact"), store.verify("digits@production")
    assert (first.version, second.version) == (1, 2)
    assert second.size < first.size / 2
    assert second.card.precision == "int8"
