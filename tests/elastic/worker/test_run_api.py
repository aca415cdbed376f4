"""What a script may do with an elastic run: the same as with plain PyTorch, or a clear error."""

from __future__ import annotations

import subprocess
import sys

from testing.elastic.local_run import WORKERS, environment

SCRIPT = WORKERS / "api.py"


def test_in_a_world_of_one() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=250,  # for a hang, not for a machine that is busy
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("done") == 11
