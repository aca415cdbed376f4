"""Frames by their library: which one a frame is of, its rows as pandas or polars, and its columns by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from weft.errors import DataError
from weft.learn.frames.columns import target_of

HERE = ("pandas", "polars", "pyarrow", "duckdb", "dask")  # libraries whose rows come to this process
SPARK = "pyspark"  # its rows are fitted where they are


def library_of(X: Any) -> str:
    """Return the library that a frame or column is of; "" for arrays, sparse tables and names of files."""
    if isinstance(X, np.ndarray | str | list | tuple) or X is None or sparse.issparse(X):
        return ""
    module = type(X).__module__
    if module.startswith("pyarrow._dataset") and hasattr(X, "get_fragments"):  # names files
        return ""
    root = module.partition(".")[0].lstrip("_")
    return root if root in (*HERE, SPARK) else ""


def brought_here(X: Any) -> Any:
    """Return the rows of a frame as pandas or polars, and a column as an array; anything else as it is."""
    library = library_of(X)
    if library == "pyarrow":
        if hasattr(X, "read_all") or hasattr(X, "to_table"):  # a stream of batches, a scanner
            X = X.read_all() if hasattr(X, "read_all") else X.to_table()
        return X.to_pandas() if hasattr(X, "column_names") or hasattr(X, "schema") else X.to_numpy(False)
    if library == "duckdb":
        return X.df()
    if library == "dask" or type(X).__name__ == "LazyFrame":
        return X.compute() if library == "dask" else X.collect()
    return X


def without_column(frame: Any, name: str, what: str) -> tuple[Any, Any]:
    """Return a pandas or polars frame without one of its columns, and that column as an array."""
    check_columns([name], list(frame.columns), what)
    column = frame[name]
    if getattr(column, "ndim", 1) != 1:
        raise DataError(f"columns of a frame must have different names, got {name!r} twice; rename one")
    rest = frame.drop(columns=[name]) if hasattr(frame, "iloc") else frame.drop(name)
    return rest, target_of(column, name, what)


def columns_in_order(frame: Any, names: Any) -> Any:
    """Return the named columns of a frame where all of them are there; else the frame, which is refused elsewhere."""
    if names is None or not set(names) <= set(frame.columns):
        return frame
    return frame[list(names)]


def check_columns(wanted: list[str], found: list[str], what: str) -> None:
    """Raise where a frame lacks a column."""
    absent = [name for name in wanted if name not in found]
    if absent:
        known = ", ".join(map(str, found[:20]))
        raise DataError(f"{what} must be a column of the frame, got {absent[0]!r}; its columns are {known}")
