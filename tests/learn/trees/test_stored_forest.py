"""Forests of tables on disk: the same trees as in memory, within a bound on memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.learn.data import classes, numbers

from weft.learn import RandomForestClassifier, RandomForestRegressor
from weft.learn.tables.form import RowsFile, TableDescription, describe

ROWS, COLUMNS = 400_000, 64

# In a process of its own, whose memory is counted from before the fit; pages of mapped files count, too.
CHILD = """
import json, sys
from pathlib import Path
import numpy as np
from weft.learn import RandomForestClassifier

def memory_of(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))

folder, small, memory = sys.argv[1:]
settings = {"n_estimators": 2, "max_depth": 9, "random_state": 0, "n_jobs": 2}
warm = np.random.default_rng(0).standard_normal((12_000, 64)).astype(np.float32)
RandomForestClassifier(**settings).fit(warm, warm[:, 0] > 0)
RandomForestClassifier(**settings).fit(small, None, memory=3_500_000)  # compiling takes memory, too
Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
before = memory_of("VmRSS")
model = RandomForestClassifier(**settings).fit(folder, None, memory=int(memory))
leaves = [tree.get_n_leaves() for tree in model.estimators_]
print(json.dumps({"more": memory_of("VmHWM") - before, "leaves": [int(count) for count in leaves]}))
"""


def nodes_of(forest: Any) -> Any:
    return np.concatenate([tree.tree_.__getstate__()["nodes"] for tree in forest.estimators_])


def stored(folder: Path, X: Any, y: Any) -> str:
    folder.mkdir()
    file = RowsFile(folder / "X.npy", X.shape[1], np.float32)
    file.append(X)
    file.close()
    np.save(folder / "y.npy", np.asarray(y, np.float64))
    describe(
        folder, TableDescription(len(X), tuple(f"c{i}" for i in range(X.shape[1])), "y", None, 0, "made")
    )
    return str(folder)


@pytest.mark.parametrize("settings", [{}, {"max_depth": 6, "min_samples_leaf": 3}, {"max_features": 1}])
def test_forests_fit_from_disk_as_from_memory(settings: dict[str, Any], tmp_path: Path) -> None:
    X, y = classes(20_000, 11, 3)
    X = X.astype(np.float32)
    X[:, 5:9] = 0  # nodes that draw nothing else must look further
    X[7, 0] = np.nan
    folder = stored(tmp_path / "table", X, y)
    plain = RandomForestClassifier(3, random_state=0, **settings).fit(X, y)
    # Codes take more than a third of this, and go to a file.
    filed = RandomForestClassifier(3, random_state=0, n_jobs=2, **settings).fit(folder, None, memory="600KB")
    assert (nodes_of(filed) == nodes_of(plain)).all()
    assert list(filed.feature_names_in_) == [f"c{i}" for i in range(11)]
    assert not {"_shared", "_each"} & set(vars(filed))


def test_forests_of_numbers_fit_from_disk_as_from_memory(tmp_path: Path) -> None:
    X, y = numbers(20_000, 10)
    X = X.astype(np.float32)
    folder = stored(tmp_path / "table", X, y)
    settings: dict[str, Any] = {"random_state": 0, "max_features": 4, "min_samples_leaf": 2}
    plain = RandomForestRegressor(2, **settings).fit(X, y)
    filed = RandomForestRegressor(2, **settings).fit(folder, None, memory="500KB")
    assert (nodes_of(filed) == nodes_of(plain)).all()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="mapped pages are let go of as Linux does it")
def test_a_forest_keeps_within_its_bound(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    folder = stored(tmp_path / "table", X, X[:, 0] + X[:, 1] + random.logistic(size=ROWS) > 0)
    small = stored(tmp_path / "small", X[:20_000], X[:20_000, 0] > 0)
    size = X.nbytes
    del X
    bound = 24 << 20
    done = subprocess.run(
        [sys.executable, "-c", CHILD, folder, small, str(bound)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert min(found["leaves"]) > 100
    # What rows have for themselves (targets, weights, order, words) comes on top of the bound.
    assert found["more"] < bound + 160 * ROWS < size
