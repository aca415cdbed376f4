"""The examples, run as the README says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from difflib import unified_diff
from pathlib import Path

import pytest
from testing.forking.server import TABLES, ForkServer
from testing.shell import Shell

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_ten_lines(shell: Shell) -> None:
    done = shell.weft("run", "-n", "2", str(EXAMPLES / "ten_lines.py"))
    assert done.returncode == 0, done.stderr
    assert sorted(line[:15] for line in done.stdout.splitlines()) == ["[0] rank 0 of 2", "[1] rank 1 of 2"]


def test_digits_reaches_its_goal_and_reports(shell: Shell, forks: ForkServer) -> None:
    shell.command = forks.load(*TABLES).weft
    done = shell.weft("run", "-n", "2", str(EXAMPLES / "digits.py"), timeout=280)
    assert done.returncode == 0, done.stderr
    found = re.search(r"test accuracy   ([\d.]+)%", done.stdout)
    assert found is not None
    assert float(found[1]) >= 97.0
    for part in ("topology        2 workers on 1 host", "samples/s", "communication", "next "):
        assert part in done.stdout
    assert (shell.run_dir() / "digits.pt").stat().st_size > 100_000
    assert "12/12" in done.stderr  # the progress bar's last state


def test_the_elastic_example_differs_from_the_plain_one_in_at_most_six_lines() -> None:
    plain, elastic = (
        (EXAMPLES / name).read_text().split('"""', 2)[2].splitlines()
        for name in ("digits.py", "elastic_digits.py")
    )
    changes = list(unified_diff(plain, elastic, lineterm="", n=0))[2:]
    new = [line for line in changes if line.startswith("+")]
    assert 0 < len(new) <= 6
    shown = (EXAMPLES.parent / "docs" / "how-to" / "elastic.md").read_text()
    assert all(line in shown for line in new)


@pytest.mark.long
def test_elastic_digits_reaches_its_goal_though_a_worker_is_killed(shell: Shell, forks: ForkServer) -> None:
    shell.command = forks.load(*TABLES).weft
    run = shell.start("run", "--elastic", "1:2", "--run-dir", "run", str(EXAMPLES / "elastic_digits.py"))
    events = shell.folder / "run" / "elastic"
    pid, lines = None, [""]
    while pid is None or not any("stepped" in line for line in lines):
        assert run.poll() is None, run.communicate()
        lines = [line for path in events.glob("*.events.jsonl") for line in path.read_text().splitlines()]
        started = [json.loads(line) for line in lines if '"started"' in line and line.endswith("}")]
        pid = started[-1]["pid"] if started else None
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    out, err = run.communicate(timeout=280)
    assert run.returncode == 0, err
    assert "killed by SIGKILL" in err
    assert "12/12" in err
    found = re.search(r"test accuracy   ([\d.]+)%", out)
    assert found is not None
    assert float(found[1]) >= 97.0


@pytest.mark.long
def test_lms_keeps_its_budget(forks: ForkServer) -> None:
    command = [forks.python, str(EXAMPLES / "lms.py"), "--simulate"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "rebuild" in done.stdout
    assert "0 steps over the budget" in done.stdout
