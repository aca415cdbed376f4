"""kill -9 of a study at random moments, again and again until it is through: trials lost, trials that count twice.

The clock of a kill starts when the study has begun to work: what dies while Python starts would test nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from weft.tune.study.journal import FILE, read_events
from weft.tune.study.state import SearchState

TRAIN = """
import json, os, sys, time
from pathlib import Path
x, until = float(sys.argv[1]), int(sys.argv[2])
home = Path(os.environ["WEFT_CHECKPOINT"])
saved = home / "step"
step = int(saved.read_text()) if saved.exists() else 0
while step < until:
    step += 1
    time.sleep(0.02)
    draft = home / "draft"
    draft.write_text(str(step))
    draft.replace(saved)
    print(json.dumps({"step": step, "loss": x * x + 1 / step}), flush=True)
"""
DRIVER = """
import sys
from pathlib import Path
from weft.tune.study.config import read_config
from weft.tune.study.study import Study
with Study.from_config(read_config(Path(sys.argv[1])), Path(sys.argv[2])) as study:
    study.run()
"""


def journal_bytes(folder: Path) -> int:
    """Return how much a study has written so far."""
    path = folder / FILE
    return path.stat().st_size if path.exists() else 0


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tune.py kills")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(words)
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "train.py").write_text(TRAIN)
        (home / "driver.py").write_text(DRIVER)
        settings = {
            "space": {"x": "float:-3:3"},
            "minimize": "loss",
            "run": f"{home}/train.py {{x}} {{epochs}}",
            "search": "random",
            "schedule": "asha",
            "resource": {"name": "epochs", "min": 1, "max": 9},
            "budget": {"trials": max(10, 4 * options.kills)},  # more than are done between kills
            "parallel": 2,
        }
        (home / "study.json").write_text(json.dumps(settings))
        command = [sys.executable, str(home / "driver.py"), str(home / "study.json"), str(home / "study")]
        kills = 0
        while True:
            before = journal_bytes(home / "study")
            process = subprocess.Popen(command)
            try:
                while (
                    kills < options.kills
                    and process.poll() is None
                    and journal_bytes(home / "study") == before
                ):
                    time.sleep(0.01)  # it is not at work yet
                process.wait(draw.uniform(0.0, 1.5) if kills < options.kills else None)
                if process.returncode == 0:
                    break
                raise SystemExit(f"the study failed with code {process.returncode}")
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
        events = read_events(home / "study")
        state = SearchState.of(events)
    ends = Counter(getattr(e, "trial", -1) for e in events if type(e).__name__ == "TrialEnded")
    added = Counter(getattr(e, "trial", -1) for e in events if type(e).__name__ == "TrialAdded")
    lost = [t.number for t in state if t.state in ("running", "waiting", "failed")]
    twice = [n for counted in (ends, added) for n, count in counted.items() if count > 1]
    cut = sum(type(e).__name__ == "TrialLost" for e in events)
    print(
        f"{kills} kills, {len(state.trials)} trials, interrupted {cut} times: {len(lost)} lost, {len(twice)} twice; "
        f"{state.message}"
    )
