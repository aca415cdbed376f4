"""Figures of searches: each is a part of its own, under benchmarks/tune_harness.

python benchmarks/tune.py                 the parts
python benchmarks/tune.py target          time to a target beside Optuna's TPE with Hyperband, and random (--case ...)
python benchmarks/tune.py curves          regret on curves that cross, 200 simulated workers (--rival PYTHON: Syne Tune)
python benchmarks/tune.py overhead        what the scheduler and the journal cost for each of 1,000 trials
python benchmarks/tune.py suggest         one suggestion by TPE at 1,000 trials, beside Optuna's own
python benchmarks/tune.py kills           kill -9 of a study at random moments: trials lost, trials twice
python benchmarks/tune.py reports         10,000 reports a second from 64 trials: reports lost, how late the page is
python benchmarks/tune.py cifar           a smaller file of pictures for `target --case cifar10`, which needs a GPU
python benchmarks/tune.py recorded        curves of CIFAR-10 recorded on a GPU, and searches played on them
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

PARTS = {
    "target": "target",
    "curves": "curves",
    "overhead": "overhead",
    "suggest": "suggest",
    "kills": "kills",
    "reports": "reports",
    "cifar": "cifar",
    "recorded": "recorded",
}  # modules with main(words)


def main(words: list[str]) -> int:
    if not words or words[0] not in PARTS:
        print(__doc__)
        return 0 if not words else 2
    importlib.import_module(f"benchmarks.tune_harness.{PARTS[words[0]]}").main(words[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
