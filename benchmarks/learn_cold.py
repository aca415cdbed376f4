"""The first fit on a new machine: CPU seconds of a fit with no compiled kernel at hand, beside those of the next one.

    python benchmarks/learn_cold.py                                every estimator
    python benchmarks/learn_cold.py --tasks logistic,tree          some of them
    python benchmarks/learn_cold.py --kernels                      and what each kernel's compilation took
    python benchmarks/learn_cold.py --no-archives                  as where nothing was compiled ahead

Each estimator runs twice in processes of its own, with a cache folder that is empty for the first. Both import and fit
alike, so that their difference is the compilation of kernels, or reading what `weft learn compile --ahead` compiled,
alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROOT / "src"), str(_ROOT)]

from weft.learn.kernels import ahead  # noqa: E402

MOST_S = 3.0  # CPU seconds that a first fit may take more than the second

# Each makes an estimator; rows are 20,000 of 20 columns in float32, or a sparse table of 10,000 columns.
FITS = {
    "logistic": "learn.LogisticRegression()",
    "classes": "learn.LogisticRegression()",
    "sparse": "learn.LogisticRegression()",
    "l1": "learn.LogisticRegression(l1_ratio=1.0)",
    "svm": "learn.LinearSVC()",
    "ridge": "learn.Ridge()",
    "lasso": "learn.Lasso(0.01)",
    "tree": "learn.DecisionTreeClassifier(max_depth=8)",
    "forest": "learn.RandomForestClassifier(n_estimators=5)",
    "boosting": "learn.GradientBoostingClassifier(n_estimators=5)",
    "boosting-regression": "learn.GradientBoostingRegressor(n_estimators=5)",
}

CHILD = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
from scipy import sparse
from weft import learn
from weft.learn.kernels import ahead
name = sys.argv[2]
if len(sys.argv) > 4:
    ahead.FOLDER = ahead.Path(sys.argv[4])
random = np.random.default_rng(0)
X = random.standard_normal((20_000, 20), dtype=np.float32)
y = X[:, 0] * 2 + X[:, 1] + random.logistic(size=len(X))
if name == "sparse":
    X = sparse.random(20_000, 10_000, 0.003, "csr", random_state=0, dtype=np.float32)
if name == "classes":
    y = np.digitize(y, [-1.0, 1.0])
elif name not in ("ridge", "lasso", "boosting-regression"):
    y = (y > 0).astype(int)
from numba.core import event
class Kernels(event.Listener):
    took, open = {}, {}
    def on_start(self, each):
        self.open[id(each.data["dispatcher"])] = time.process_time()
    def on_end(self, each):
        one = each.data["dispatcher"]
        named = one.py_func.__module__.split("learn.")[-1] + "." + one.py_func.__name__
        self.took[named] = self.took.get(named, 0.0) + time.process_time() - self.open[id(one)]
event.register("numba:compile", Kernels())
began = time.process_time()
eval(sys.argv[3]).fit(X, y)
print(json.dumps({"fit_s": time.process_time() - began, "kernels": Kernels.took}))
"""


def fitted(name: str, cache: str, archives: str | None) -> dict[str, Any]:
    """Return the CPU seconds of one fit in a process of its own, and those of each kernel that it compiled."""
    environ = {**os.environ, "XDG_CACHE_HOME": cache, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environ.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-W", "ignore", "-c", CHILD, str(_ROOT / "src"), name, FITS[name]]
    command += [archives] if archives else []
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(name: str, *, kernels: bool, archives: bool) -> float:
    """Print the two fits of one estimator; returns by how many CPU seconds the first one is longer."""
    with tempfile.TemporaryDirectory() as cache:
        none = None if archives else cache  # a folder without any
        first, second = fitted(name, cache, none), fitted(name, cache, none)
    more = float(first["fit_s"] - second["fit_s"])
    print(f"{name:22}{first['fit_s']:8.2f}{second['fit_s']:8.2f}{more:8.2f}", flush=True)
    for kernel, seconds in sorted(first["kernels"].items(), key=lambda one: -one[1]) if kernels else ():
        print(f"    {kernel:48}{seconds:8.2f}")
    return more


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(FITS))
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--no-archives", dest="archives", action="store_false")
    options = parser.parse_args()
    names = options.tasks.split(",")
    unknown = [name for name in names if name not in FITS]
    if unknown:
        parser.error(f"a task must be one of {', '.join(FITS)}, got {', '.join(unknown)}")
    if options.archives and not any(ahead.FOLDER.glob("*.zip")):
        parser.error("archives must be there, got none; weft learn compile --ahead, or add --no-archives")
    print(f"{'CPU s of a fit':22}{'first':>8}{'second':>8}{'more':>8}")
    most = max(measure(name, kernels=options.kernels, archives=options.archives) for name in names)
    print(f"\nthe first fit takes up to {most:.1f} CPU s more than the second; must be {MOST_S:g} s at most")


if __name__ == "__main__":
    main()
