"""The examples, run as the README says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.launch.conftest import Shell

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_ten_lines(shell: Shell) -> None:
    done = shell.weft("run", "-n", "2", str(EXAMPLES / "ten_lines.py"))
    assert done.returncode == 0, done.stderr
    assert sorted(line[:15] for line in done.stdout.splitlines()) == ["[0] rank 0 of 2", "[1] rank 1 of 2"]


@pytest.mark.timeout(200)  # it computes, and the other tests want the same cores
def test_digits_reaches_its_goal_and_reports(shell: Shell) -> None:
    done = shell.weft("run", "-n", "2", str(EXAMPLES / "digits.py"), timeout=180)
    assert done.returncode == 0, done.stderr
    found = re.search(r"test accuracy   ([\d.]+)%", done.stdout)
    assert found is not None
    assert float(found[1]) >= 97.0
    for part in ("topology        2 workers on 1 host", "samples/s", "communication", "next "):
        assert part in done.stdout
    assert (shell.run_dir() / "digits.pt").stat().st_size > 100_000
    assert "12/12" in done.stderr  # the progress bar's last state
