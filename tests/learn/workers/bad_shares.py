"""Fits of three workers, one of which has rows that cannot be fitted: writes what each of them raised.

bad_shares.py FOLDER [RANK]: with RANK, that one fails in the midst of a fit instead, and its process ends with it.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tests.learn.data import classes

import weft
from weft.learn import (
    DecisionTreeClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    RandomForestRegressor,
    Ridge,
    together,
)

Array = np.ndarray[Any, Any]
Fit = Callable[[], Any]
LARGE = 600_000  # rows of two columns that are not searched for NaN before the first pass


def rows_of(rank: int, rows: int = 60, columns: int = 4) -> tuple[pd.DataFrame, Array]:
    X, y = classes(rows, columns, seed=rank)
    return pd.DataFrame(X, columns=list("abcdefgh")[:columns]), y


def fails_in_a_round(bad: bool) -> Callable[[int, Any, Any], bool]:
    def monitor(done: int, model: Any, found: Any) -> bool:
        if bad and done == 2:
            raise ValueError("the third round must go well, got bad luck; try again")
        return False

    return monitor


def cases(rank: int, folder: Path) -> Iterator[tuple[str, Any, Fit]]:
    """A name, a model, and its fit."""

    def case(name: str, model: Any, *args: Any, **more: Any) -> tuple[str, Any, Fit]:
        return name, model, lambda: model.fit(*args, **more)

    X, y = rows_of(rank)
    if rank == 1:
        X.iloc[3, 1] = np.nan
    yield case("nan", LogisticRegression(), X, y)

    X, y = rows_of(rank)
    weights = np.ones(len(y))
    if rank == 2:
        weights[5] = -1
    yield case("weight", Ridge(), X, y, weights)
    yield case("weight of a tree", DecisionTreeClassifier(), X, y, weights)

    yield case("columns", Lasso(), X[list("abc")] if rank == 1 else X, y)
    yield case("targets", Ridge(), X, np.stack([y, y], axis=1) if rank == 1 else y)
    order = list("abdc") if rank == 2 else list("abcd")
    yield case("order", GradientBoostingClassifier(n_estimators=2), X[order], y)
    yield case("order in a forest", RandomForestRegressor(2, max_depth=2), X[order], y)
    yield case("labels", DecisionTreeClassifier(), X, y + 0.25 if rank == 0 else y)
    yield case("kinds of labels", LinearSVC(), X, y.astype(str) if rank == 1 else y)
    yield case("parameter", LogisticRegression(C=-1.0 if rank == 0 else 1.0), X, y)

    z = y.astype(float)
    z[7] = np.nan if rank == 1 else 0.5
    yield case("target", GradientBoostingRegressor(n_estimators=2), X, z)
    yield case("target of a forest", RandomForestRegressor(2, max_depth=2), X, z)

    mine = folder / f"share-{rank}.parquet"
    X.assign(y=y).to_parquet(mine)
    yield case("file without target", Ridge(), mine, "z" if rank == 2 else "y")
    if rank == 1:
        mine.write_bytes(mine.read_bytes()[:-100])
    yield case("corrupt file", LinearSVC(loss="hinge"), mine, "y")

    large = np.random.default_rng(rank).standard_normal((LARGE, 2)).astype(np.float32)
    halves = (large[:, 0] > 0).astype(int)
    if rank == 1:
        large[LARGE // 2, 1] = np.inf
    yield case("large", LogisticRegression(), large, halves)
    yield case("large, squares", Ridge(), large, halves)
    yield case("large, dual", LinearSVC(loss="hinge", max_iter=5), large, halves)

    same = X.assign(d=X["c"])
    yield case("everyone", LinearRegression(), same, y)


def what_came(name: str, model: Any, fit: Fit) -> dict[str, Any]:
    before = dict(vars(model))
    try:
        with together(), warnings.catch_warnings():
            warnings.simplefilter("error")
            fit()
    except Exception as error:
        return {
            "case": name,
            "kinds": [kind.__name__ for kind in type(error).__mro__],
            "code": getattr(error, "exit_code", None),
            "said": str(error),
            "at": time.monotonic(),
            "left": [each for each in vars(model) if each not in before],
        }
    return {"case": name, "kinds": [], "said": "", "coef": np.ravel(getattr(model, "coef_", [])).tolist()}


def main() -> None:
    folder, bad = Path(sys.argv[1]), [int(each) for each in sys.argv[2:]]
    rank = weft.init().rank
    told = []
    X, y = rows_of(rank)
    if not bad:
        told = [what_came(*one) for one in cases(rank, folder)]
        # The group is whole after all of that.
        model = LogisticRegression()
        told.append(what_came("good", model, lambda: model.fit(X, y)))
    trees = GradientBoostingClassifier(n_estimators=5)
    failing = fails_in_a_round(rank == (bad or [1])[0])
    told.append(what_came("round", trees, lambda: trees.fit(X, y, monitor=failing)))
    (folder / f"told-{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
