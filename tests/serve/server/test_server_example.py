"""The example, run as its docstring says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from testing.forking.server import EXPORTS, TABLES, ForkServer

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "serve.py"


@pytest.mark.long
def test_a_fitted_model_is_exported_served_and_asked(forks: ForkServer) -> None:
    done = subprocess.run(
        [forks.load(*TABLES, *EXPORTS).python, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "label: ['setosa', 'versicolor', 'virginica']" in done.stdout
    assert "ended with 0" in done.stdout
