"""Checks of an estimator's inputs: parameters, tables, targets and weights."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from weft.errors import DataError
from weft.learn.tables.finite import with_place
from weft.learn.tables.form import StoredTable
from weft.learn.tables.mapped import Mapped
from weft.learn.tables.sizes import share_out
from weft.learn.tables.source import is_source, open_source
from weft.learn.workers.group import current_workers, distinct_over_workers, sum_over_workers

Array = np.ndarray[Any, Any]

LARGE = 10_000  # rows from which integer classes are found by counting instead of sorting
CLOSE = 256  # largest range of integer classes that are counted
SMALL = 1 << 20  # stored numbers up to which a float32 table is widened to float64
FEW = 1 << 14  # numbers of rows to predict up to which looking at each of them costs nothing


def check_number(name: str, value: Any, *, least: float = 0.0, open_end: bool = False) -> float:
    """Return a real parameter; raise unless it is at least `least`, or above it if `open_end`."""
    good = _is(value, Real) and not np.isnan(float(value))
    if not good or (value <= least if open_end else value < least):
        bound = f"above {least:g}" if open_end else f"at least {least:g}"
        raise ValueError(f"{name} must be a number {bound}, got {value!r}")
    return float(value)


def check_count(name: str, value: Any, *, least: int = 0) -> int:
    if not _is(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def _is(value: Any, kind: Any) -> bool:
    """Return whether a value is of a kind of number; True and False are not."""
    return isinstance(value, kind) and not isinstance(value, bool | np.bool_)


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def are_plain_rows(model: Any, X: Any) -> bool:
    """Return whether scikit-learn's checks would hand back few rows to predict as they are.

    They take longer than a prediction of one row. Whatever they would change, refuse or warn of is left to them.
    """
    known = model.__dict__
    return (
        type(X) is np.ndarray
        and X.dtype.char in "fd"
        and X.ndim == 2
        and 0 < X.size <= FEW
        and X.shape[1] == known.get("n_features_in_")
        and "feature_names_in_" not in known
        and bool(np.isfinite(np.add.reduce(X, axis=None)))
    )


def plain_float32_rows(model: Any, X: Any) -> Array | None:
    """Return few rows to predict in float32, where scikit-learn's checks would do no more than that; else None."""
    if not are_plain_rows(model, X):
        return None
    with np.errstate(over="ignore"):
        rows: Array = X.astype(np.float32)
        return rows if np.isfinite(np.add.reduce(rows, axis=None)) else None


def checked_table(
    estimator: Any, X: Any, y: Any, *, memory: str | int | None = None, **options: Any
) -> tuple[Any, Array]:
    """Return X as a float array or CSR matrix, and y; small float32 tables are widened to float64 at little cost.

    A path, glob or dataset is read from disk within `memory`; y is then the name of its target.

    A large dense table is not searched for NaN and infinity, which would be one more pass over it: solvers see them in
    the sums of their first pass, and then call the table's `check_finite`.
    """
    if is_source(X):
        X, y = stored_table(estimator, X, y, memory)
        if sparse.issparse(X):
            return X if X.data.size > SMALL else X.astype(np.float64), y
        return X if len(X) * X.shape[1] > SMALL else X.array.astype(np.float64), y
    large = isinstance(X, np.ndarray) and X.dtype in (np.float32, np.float64) and X.size > SMALL
    options.setdefault("ensure_all_finite", not large)
    X, y = validated(estimator, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], **options)
    stored = X.nnz if sparse.issparse(X) else X.size
    if X.dtype == np.float32 and stored <= SMALL:
        X = X.astype(np.float64)
    return X, y


def validated(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[Any, Array]:
    """Apply scikit-learn's checks; the error of a value that is not finite names its row and column."""
    try:
        X, y = validate_data(estimator, X, y, **options)
    except ValueError as error:
        raise with_place(error, X, y) from None
    return X, y


def checked_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any, **options: Any
) -> tuple[Any, Array, Array]:
    """Return X and y of `checked_table`, and weights; in a joint fit a worker may have no rows, or no weight."""
    others = current_workers()
    if others is None:
        X, y = checked_table(estimator, X, y, **options)
        return X, y, checked_weights(sample_weight, X)
    if is_source(X) or np.shape(X)[0]:
        X, y = checked_table(estimator, X, y, **options)
        weights = checked_weights(sample_weight, X, may_be_zero=True)
        others.gathered(y[:1])
    else:
        row = next((one for one in others.gathered(y[:0]) if len(one)), None)
        if row is None:
            raise ValueError("a fit must have at least one row, got 0 sample(s): no worker has rows")
        X, y = checked_table(estimator, _nothing(X), row, **options)
        weights = np.zeros(1)
    if not sum_over_workers([float(weights.sum())])[0] > 0:
        raise ValueError(
            "sample_weight must hold a weight that is not zero, got zero in every row of every worker"
        )
    return X, y, weights


def _nothing(X: Any) -> Any:
    """Return one row of zeros in the form of the empty table X, so that sums have a row; its weight must be 0."""
    if hasattr(X, "iloc"):
        return X.reindex([0], fill_value=0)
    if sparse.issparse(X):
        return sparse.csr_matrix((1, X.shape[1]), dtype=X.dtype)
    return np.zeros((1, np.shape(X)[1]), getattr(X, "dtype", float))


def opened(X: Any, y: Any, memory: str | int | None) -> tuple[Any, Any]:
    """Open a source: return a stored table and y, or the matrix and the target of a sparse one."""
    table = open_source(X, y, memory)
    return (table.features(), table.target()) if table.description.sparse else (table, y)


def stored_table(
    estimator: Any, X: Any, y: Any, memory: str | int | None, *, missing: bool = False
) -> tuple[Any, Array]:
    """Return rows that stay on disk (`Mapped`, or a CSR matrix) and their target; `missing` allows absent values."""
    table = open_source(X, y, memory)
    if table.description.sparse:
        estimator.n_features_in_ = table.description.width
        estimator.__dict__.pop("feature_names_in_", None)
        return table.features(), table.target()
    columns = table.description.columns
    if not missing:
        check_missing(table)
    estimator.n_features_in_ = len(columns)
    estimator.feature_names_in_ = np.array(columns, object)
    return Mapped(table.features(), share_out(memory, len(columns)).window_bytes), table.target()


def check_missing(table: StoredTable) -> None:
    """Raise an error that names the first missing value of a table, if it has any."""
    if not table.description.missing:
        return
    values = table.features()
    for start in range(0, len(values), 1 << 14):
        bad = np.argwhere(np.isnan(values[start : start + (1 << 14)]))
        if len(bad):
            row, column = bad[0]
            name = table.description.columns[column]
            raise DataError(f"Input X contains NaN: row {start + row}, column {name!r}")
    raise AssertionError("a table that says so has missing values")


def checked_weights(sample_weight: Any, X: Any, *, may_be_zero: bool = False) -> Array:
    """Return one weight for each row, in float64; `may_be_zero` allows weights that are all zero."""
    rows = X.shape[0]
    if sample_weight is None:
        return np.ones(rows)
    if isinstance(sample_weight, Real):
        weights = np.full(rows, float(sample_weight))
    else:
        weights = check_array(
            sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight", copy=True
        )
    if weights.ndim != 1:
        raise ValueError(f"sample_weight must have one dimension, got the shape {weights.shape}")
    check_consistent_length(weights, X)
    if np.any(weights < 0):
        raise ValueError(
            f"sample_weight must not be negative, got {weights.min():g} in row {weights.argmin()}"
        )
    if not may_be_zero and not np.any(weights):
        raise ValueError("sample_weight must hold a weight that is not zero, got zero in every row")
    return weights


def with_class_weights(weights: Array, class_weight: Any, classes: Array, codes: Array) -> Array:
    """Return the weights of rows, each multiplied by the weight of its class."""
    if class_weight is None:
        return weights
    if isinstance(class_weight, str) and class_weight != "balanced":
        raise ValueError(f"class_weight must be 'balanced', a dict or None, got {class_weight!r}")
    if not isinstance(class_weight, str | Mapping):
        raise ValueError(
            f"class_weight must be 'balanced', a dict or None, got {type(class_weight).__name__}"
        )
    if class_weight == "balanced":
        (counts,) = sum_over_workers([np.bincount(codes, weights=weights, minlength=len(classes))])
        each = counts.sum() / (len(classes) * np.where(counts > 0, counts, 1))
    else:
        each = compute_class_weight(class_weight, classes=classes, y=classes[codes])
    scaled: Array = weights * each[codes]
    return scaled


def checked_classes(y: Array) -> tuple[Array, Array]:
    """Return the sorted classes of all workers, and the code of each row."""
    distinct = _few_whole_numbers(y)
    if distinct is None:
        check_classification_targets(y)
    classes = distinct_over_workers(y if distinct is None else distinct)
    if len(classes) < 2:
        raise ValueError(
            f"the target must have at least 2 classes to tell apart, got one class: {classes[0]!r}"
        )
    if distinct is None or int(classes[-1]) - int(classes[0]) >= CLOSE:  # other workers may have others
        return classes, np.searchsorted(classes, y).ravel()
    places = y.astype(np.int64, copy=False) - int(classes[0])
    if int(classes[-1]) - int(classes[0]) == len(classes) - 1:
        return classes, places
    codes = np.zeros(int(classes[-1]) - int(classes[0]) + 1, np.intp)
    codes[classes.astype(np.int64) - int(classes[0])] = np.arange(len(classes))
    return classes, codes[places]


def _few_whole_numbers(y: Array) -> Array | None:
    """Return the distinct values of a large integer target with a small range; None for any other target."""
    if y.ndim != 1 or len(y) < LARGE or not np.can_cast(y.dtype, np.int64) or y.dtype.kind == "b":
        return None
    least, most = y.min(), y.max()
    if int(most) - int(least) >= CLOSE:
        return None
    if int(most) - int(least) <= 1:
        return np.unique(np.array([least, most]))
    found = np.flatnonzero(np.bincount(y.astype(np.int64, copy=False) - int(least)))
    distinct: Array = (found + int(least)).astype(y.dtype)
    return distinct


def signs(chosen: Array, dtype: Any) -> Array:
    """Return 1 for chosen rows and -1 for the others."""
    targets: Array = chosen.astype(dtype)
    targets *= 2
    targets -= 1
    return targets
