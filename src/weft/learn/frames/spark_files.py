"""Parquet files behind a Spark frame, for workers on the machine of the driver, which read them without Spark.

Spark hands rows to Python one by one; Arrow reads whole columns, ten times as fast. That is only done where the result
is the same: a frame that is its files, read as they are, on a local Spark, whose executors see the driver's disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from weft.learn.frames.spark_task import SparkRows


@dataclass(frozen=True)
class RowGroup:
    """A part of a Parquet file, which is read as a whole."""

    path: str
    number: int
    rows: int


def shares_of(groups: Sequence[RowGroup], workers: int) -> tuple[tuple[RowGroup, ...], ...]:
    """Return the groups of each worker, in order: a group goes where the middle of its rows lies."""
    ends = list(accumulate(group.rows for group in groups))
    total = max(1, ends[-1] if ends else 0)
    found: list[list[RowGroup]] = [[] for _ in range(workers)]
    for group, end in zip(groups, ends, strict=True):
        found[min(workers - 1, int((end - group.rows / 2) * workers / total))].append(group)
    return tuple(map(tuple, found))


def groups_of(frame: Any, rows: SparkRows) -> tuple[RowGroup, ...]:
    """Return the row groups of the files that a frame is; none where Spark has to read it."""
    try:
        paths = _paths(frame)
    except Exception:  # plans of Spark Connect, and of other Sparks, are not at hand
        return ()
    wanted = [*rows.features, rows.label, *([rows.weight] if rows.weight else [])]
    return tuple(group for path in paths for group in _groups(path)) if _alike(paths, wanted) else ()


def _paths(frame: Any) -> list[str]:
    """Return the files of a frame that is nothing but some columns of Parquet files on this machine; else none."""
    if not str(frame.sparkSession.sparkContext.master).startswith("local") or frame.isStreaming:
        return []
    plan = frame._jdf.queryExecution().optimizedPlan()
    if _class(plan) == "Project":
        chosen = plan.projectList()
        if any(_class(chosen.apply(place)) != "AttributeReference" for place in range(chosen.size())):
            return []
        plan = plan.child()
    if _class(plan) != "LogicalRelation" or _class(plan.relation()) != "HadoopFsRelation":
        return []
    relation = plan.relation()
    plain = relation.partitionSchema().isEmpty() and _class(relation.location()) == "InMemoryFileIndex"
    if not plain or _class(relation.fileFormat()) != "ParquetFileFormat":
        return []
    found = [urlsplit(one) for one in relation.location().inputFiles()]
    if any(one.scheme != "file" or one.netloc for one in found):
        return []
    return [unquote(one.path) for one in found]


def _class(made: Any) -> str:
    return str(made.getClass().getSimpleName())


def _alike(paths: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether all files have the columns, in the same types, which Arrow and Spark read alike."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first: list[Any] = []
    for path in paths:
        schema = pq.read_schema(path)
        if any(name not in schema.names for name in wanted):
            return False
        kinds = [schema.field(name).type for name in wanted]
        if kinds != (first or kinds):
            return False
        first = kinds
    known = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    return bool(first) and all(any(is_one(kind) for is_one in known) for kind in first)


def _groups(path: str) -> Iterator[RowGroup]:
    import pyarrow.parquet as pq

    told = pq.read_metadata(path)
    return (RowGroup(path, number, told.row_group(number).num_rows) for number in range(told.num_row_groups))


@dataclass(frozen=True)
class GroupBatches:
    """The rows of groups in batches as Spark would hand them over: features x0, x1, ..., label, weight."""

    groups: tuple[RowGroup, ...]
    rows: SparkRows

    @property
    def row_count(self) -> int:
        """The number of all rows, so that they need be in memory only once."""
        return sum(group.rows for group in self.groups)

    def __iter__(self) -> Iterator[Any]:
        import pyarrow.parquet as pq

        for path in dict.fromkeys(group.path for group in self.groups):
            with pq.ParquetFile(Path(path)) as file:
                for group in self.groups:
                    if group.path == path:
                        yield self._batch(
                            file.read_row_group(group.number, columns=self._read, use_threads=False)
                        )

    @property
    def _read(self) -> list[str]:
        return list(dict.fromkeys([*self.rows.features, self.rows.label, *filter(None, [self.rows.weight])]))

    def _batch(self, whole: Any) -> Any:
        import pyarrow as pa

        width = pa.float32() if self.rows.width == "float" else pa.float64()
        columns = {
            f"x{place}": _as(whole.column(name), width) for place, name in enumerate(self.rows.features)
        }
        columns["label"] = _joined(whole.column(self.rows.label))
        if self.rows.weight:
            columns["weight"] = _as(whole.column(self.rows.weight), pa.float64())
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _joined(column: Any) -> Any:
    joined = column.combine_chunks()
    return joined.chunk(0) if hasattr(joined, "num_chunks") else joined


def _as(column: Any, kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return _joined(column.cast(kind, safe=False))
