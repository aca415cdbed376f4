"""The job behind `weft learn fit`: fits, scores and saves a model of a table, in one process or on all workers.

python -m weft.learn.fitting_job '{"source": "table.parquet", "target": "y", ...}'
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy import sparse

from weft import learn
from weft.documents import Document, read_document
from weft.errors import CollectiveError, DataError, UsageError
from weft.files import write_whole
from weft.learn import inputs
from weft.learn.tables.form import StoredTable
from weft.learn.tables.source import open_source
from weft.learn.workers.faults import fault_of
from weft.learn.workers.group import Workers, current_workers, together
from weft.learn.workers.joint_fit import all_or_none

Array = np.ndarray[Any, Any]

# name of a model: (its classifier, its regressor)
MODELS = {
    "linear": ("LogisticRegression", "Ridge"),
    "lasso": ("", "Lasso"),
    "svm": ("LinearSVC", ""),
    "tree": ("DecisionTreeClassifier", "DecisionTreeRegressor"),
    "forest": ("RandomForestClassifier", "RandomForestRegressor"),
    "boosting": ("GradientBoostingClassifier", "GradientBoostingRegressor"),
}
FEW = 100  # a target of whole numbers with at most so many distinct values is a class
TESTED = 1 << 16  # about so many rows, spread over the table, give the score


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """The settings of a fit: table, target, model and its parameters, memory, and files to write."""

    source: str
    target: str | None = None
    model: str = "linear"
    params: Mapping[str, Any] = field(default_factory=dict)
    memory: str | int = "4GB"
    out: str | None = None
    test: str | None = None
    report: str | None = None  # the file for rank 0's report, as JSON

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UsageError(f"--model must be one of {', '.join(MODELS)}, got {self.model!r}")


class FitFile(Document, frozen=True, omit_defaults=True):
    """A YAML file that says what to fit, in the words of the options."""

    table: str
    target: str | None = None
    model: str = "linear"
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    memory: str | int | float = "4GB"
    out: str | None = None
    test: str | None = None


def settings_of(path: Path) -> dict[str, Any]:
    """Return the arguments of FitConfig from a YAML file, which calls the source `table`."""
    given: dict[str, Any] = msgspec.to_builtins(read_document(path, FitFile))
    if isinstance(given.get("memory"), float):
        given["memory"] = repr(given["memory"])  # 4.0e+9: a size in text
    return {"source": given.pop("table"), **given}


def check_out(path: Path) -> None:
    """Raise an error, before an hour of fitting, where a model cannot be kept."""
    if path.is_dir():
        raise DataError(f"--out must be a file, got the folder {path}; write --out {path / 'model.pkl'}")
    if not path.absolute().parent.is_dir():
        raise DataError(f"--out must be in a folder that exists, got {path}; make {path.parent} first")
    if not os.access(path.absolute().parent, os.W_OK):
        raise DataError(f"--out must be in a folder that can be written, got {path}; choose another")
    if path.suffix == ".onnx" and importlib.util.find_spec("onnx") is None:
        raise DataError(f"{path} must be written by onnx, got none installed; install weft[onnx]")


def estimator_of(config: FitConfig, *, classes: bool) -> Any:
    """Return the estimator that the config names, with its parameters set."""
    name = MODELS[config.model][0 if classes else 1]
    if not name:
        kind = "numbers" if classes else "classes"
        raise UsageError(
            f"--model {config.model} must have a target of {kind}, got one of {'classes' if classes else 'numbers'}"
        )
    estimator = getattr(learn, name)()
    unknown = sorted(set(config.params) - set(estimator.get_params()))
    if unknown:
        known = ", ".join(sorted(estimator.get_params()))
        raise UsageError(f"--param must be one of {name}'s ({known}), got {', '.join(unknown)}")
    return estimator.set_params(**config.params)


def has_classes(table: StoredTable) -> bool:
    """Return whether a target is a class: it has names, or few distinct whole numbers."""
    if table.description.classes is not None:
        return True
    some = table.target()[:100_000]
    return bool((some == np.floor(some)).all()) and len(np.unique(some)) <= FEW


def fit_job(config: FitConfig) -> dict[str, Any]:
    """Fit, score and save; workers inside `together()` each take their share of the rows."""
    with all_or_none():
        return _fit_job(config)


def _fit_job(config: FitConfig) -> dict[str, Any]:
    others = current_workers()
    if config.out is not None and (others is None or others.rank == 0):
        check_out(Path(config.out))
    if others is not None and others.rank > 0:
        others.gathered(None)  # wait until rank 0 has converted the files
    table = open_source(config.source, config.target, config.memory)
    tested = None if config.test is None else _open_test(config, config.test, table)
    if others is not None and others.rank == 0:
        others.gathered(None)
    estimator = estimator_of(config, classes=has_classes(table))
    began = time.perf_counter()
    try:
        _fit(estimator, table, config)
    except UsageError:
        raise
    except (ValueError, TypeError) as error:  # a parameter or rows that scikit-learn refuses
        raise DataError(fault_of(error).said) from error
    seconds = time.perf_counter() - began
    report = {
        "model": type(estimator).__name__,
        "rows": table.description.rows,
        "columns": table.description.count,
        "workers": 1 if others is None else others.size,
        "seconds": round(seconds, 3),
        "train_score": _score(estimator, table),
    }
    if getattr(estimator, "history_", None):
        report["gap"] = estimator.history_[-1].gap
    if tested is not None:
        report["test_score"] = _score(estimator, tested)
    if config.out is not None and (others is None or others.rank == 0):
        _keep(estimator, Path(config.out))
        report["saved"] = config.out
    return report


def _open_test(config: FitConfig, source: str, table: StoredTable) -> StoredTable:
    """Open the rows to score a model on, before it is fitted: they must have the columns of the table."""
    tested, needed = open_source(source, config.target, config.memory), table.description
    if tested.description.count != needed.count:
        raise UsageError(f"--test must have {needed.count} columns, got {tested.description.count}")
    if not needed.sparse and list(tested.description.columns) != list(needed.columns):
        raise UsageError(
            f"--test must have the columns {list(needed.columns)}, got {list(tested.description.columns)}"
        )
    return tested


def _fit(estimator: Any, table: StoredTable, config: FitConfig) -> None:
    others = current_workers()
    if others is None:
        estimator.fit(table, config.target, memory=config.memory)
        return
    if not estimator.__sklearn_tags__().input_tags.allow_nan:
        inputs.check_missing(table)  # here, where an error can name rows and columns of the whole table
    start, stop = (table.description.rows * part // others.size for part in (others.rank, others.rank + 1))
    estimator.fit(_in_memory(table.features()[start:stop]), table.target()[start:stop])
    if not table.description.sparse:
        estimator.feature_names_in_ = np.array(table.description.columns, object)


def _in_memory(rows: Any) -> Any:
    return rows if sparse.issparse(rows) else np.asarray(rows)


def _keep(estimator: Any, path: Path) -> None:
    """Write the model as ONNX to a file that ends in .onnx, else pickled."""
    as_onnx = path.suffix == ".onnx"
    content = learn.to_onnx(estimator).SerializeToString() if as_onnx else pickle.dumps(estimator)
    try:
        write_whole(path.resolve(), content)
    except OSError as error:
        raise DataError(f"--out must be a file that can be written, got {path}: {error.strerror}") from error


def _score(estimator: Any, table: StoredTable) -> float:
    """Return accuracy or R² of rows spread over the table."""
    step = max(1, table.description.rows // TESTED)
    rows = _in_memory(table.features()[::step])
    names = estimator.__dict__.pop("feature_names_in_", None)  # the array of rows has no names to compare
    try:
        return round(float(estimator.score(rows, table.target()[::step])), 6)
    finally:
        if names is not None:
            estimator.feature_names_in_ = names


def main() -> None:
    """Run the job on one worker; rank 0 prints or writes the report, or the reason why there is none."""
    import weft

    config = FitConfig(**json.loads(sys.argv[1]))
    weft.init()
    with together() as others:
        try:
            _tell(others, config, fit_job(config))
        except UsageError as error:
            _tell(others, config, {"refused": str(error)})
            # The launcher stops all workers when the first one exits: wait for rank 0's report.
            with suppress(CollectiveError):
                others.gathered(None)
            raise SystemExit(error.exit_code) from None
    weft.shutdown()


def _tell(others: Workers, config: FitConfig, report: dict[str, Any]) -> None:
    if others.rank:
        return
    if config.report:
        Path(config.report).write_text(json.dumps(report))
    elif "refused" in report:
        print(f"weft: {report['refused']}", file=sys.stderr, flush=True)
    else:
        print(json.dumps(report), flush=True)


def as_argument(config: FitConfig) -> str:
    """Return the config as the command-line argument of `main`."""
    return json.dumps(asdict(config))


if __name__ == "__main__":
    main()
