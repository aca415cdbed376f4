"""Fits of a table on disk beside the same in memory: seconds of a pass, and the most memory that was used.

    python benchmarks/learn_stored.py                       1 GB of rows within 256 MB
    python benchmarks/learn_stored.py --rows 10000000 --memory 1GB

Each fit runs in a process of its own, whose memory is counted from before the fit. The pages of a mapped file that are
in use count, too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import numpy as np

from weft.learn import DecisionTreeClassifier, LogisticRegression
from weft.learn.tables.form import RowsFile, TableDescription, describe
from weft.learn.tables.sizes import format_memory, parse_memory

COLUMNS = 100


def make(folder: Path, rows: int) -> None:
    """A table in the fast form, written in parts."""
    random = np.random.default_rng(0)
    coef = random.standard_normal(COLUMNS) / 5
    file, targets = RowsFile(folder / "X.npy", COLUMNS, np.float32), []
    for start in range(0, rows, 1 << 17):
        X = random.standard_normal((min(1 << 17, rows - start), COLUMNS), dtype=np.float32)
        file.append(X)
        targets.append(X @ coef + random.logistic(size=len(X)) > 0)
    file.close()
    np.save(folder / "y.npy", np.concatenate(targets).astype(np.float64))
    describe(folder, TableDescription(rows, tuple(f"c{i}" for i in range(COLUMNS)), "y", None, 0, "made"))


def measured(folder: str, model: str, stored: bool, memory: str) -> dict[str, Any]:
    """One fit in this process."""
    estimator: Any = (
        LogisticRegression(tol=1e-5, n_jobs=1, random_state=0)
        if model == "logistic"
        else DecisionTreeClassifier(max_depth=8, n_jobs=1, random_state=0)
    )
    warm = np.random.default_rng(0).standard_normal((12_000, COLUMNS)).astype(np.float32)
    type(estimator)(**estimator.get_params()).fit(
        warm, warm[:, 0] > 0
    )  # compiles, or loads what was compiled
    X = y = None
    if not stored:
        X, y = np.load(Path(folder) / "X.npy"), np.load(Path(folder) / "y.npy")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    if stored:
        estimator.fit(folder, "y", memory=memory)
    else:
        estimator.fit(X, y)
    passes = len(estimator.history_) + 1 if model == "logistic" else 1
    return {
        "wall": (time.perf_counter() - wall) / passes,
        "cpu": (time.process_time() - cpu) / passes,
        "peak": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10,
        "passes": passes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_600_000)
    parser.add_argument("--memory", default="256MB")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(**json.loads(options.one))))
        return
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.rows)
        size = options.rows * COLUMNS * 4
        print(f"{options.rows:,} x {COLUMNS}: {format_memory(size)}, within {options.memory}")
        for model in ("logistic", "tree"):
            best: dict[bool, dict[str, Any]] = {}
            for _ in range(options.repeats):
                for stored in (False, True):
                    asked = {"folder": folder, "model": model, "stored": stored, "memory": options.memory}
                    done = subprocess.run(
                        [sys.executable, __file__, "--one", json.dumps(asked)],
                        capture_output=True,
                        text=True,
                        check=True,
                    )
                    found = json.loads(done.stdout)
                    if stored not in best or found["wall"] < best[stored]["wall"]:
                        best[stored] = found
            report(model, best, parse_memory(options.memory))


def report(model: str, best: dict[bool, dict[str, Any]], bound: int) -> None:
    unit = "s a pass" if model == "logistic" else "s"
    for stored, found in best.items():
        print(
            f"  {model:9}{'on disk' if stored else 'in memory':10}"
            f"{found['wall']:7.3f} {unit} ({found['cpu']:.3f} CPU), "
            f"{found['passes']} passes, {format_memory(max(found['peak'], 0))} more memory"
        )
    print(
        f"  {best[True]['wall'] / best[False]['wall']:.2f}x the time in memory; must be 1.3x, "
        f"within {format_memory(bound)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
