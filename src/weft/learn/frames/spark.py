"""Fits on Spark's data frames: where partitions lie, workers of ours fit one model together, inside barrier tasks.

    LogisticRegression().fit(spark_frame, label="y")

This is the driver's side: it decides how many workers there are and which columns they read, and takes the model of
rank 0. `spark_task.py` is the workers' side. Rows never come to the driver.
"""

from __future__ import annotations

import pickle
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from weft.errors import DataError, UsageError
from weft.learn.frames.kinds import check_columns
from weft.learn.frames.spark_files import GroupBatches, RowGroup, groups_of, shares_of
from weft.learn.frames.spark_task import TOLD, WAIT, SparkRows, fit_share, packed
from weft.learn.workers.faults import Fault, error_of

WORKERS = (
    "spark.weft.workers"  # in the session's configuration: so many workers, in place of one for each slot
)
NUMBERS = re.compile(r"tinyint|smallint|int|bigint|float|double|decimal\(.*\)|boolean")
VECTOR = "vector"  # MLlib's type
LOCAL = re.compile(r"local(\[[^,\]]+\])?")  # a Spark in this process that tries no stage again
UNFIT = "SPARK-24820"  # Spark's error for partitions that barrier tasks cannot read directly


@dataclass(frozen=True)
class SparkPlan:
    """The number of workers, and whether rows are dealt out among them; else each partition is a worker's."""

    workers: int
    dealt: bool


def plan_of(partitions: int | None, slots: int) -> SparkPlan:
    """Decide the workers for a frame of so many partitions, unknown ones too, on so many slots that run at once.

    Partitions that all fit in, and leave at most half of the slots idle, are read where they are.
    """
    if partitions is not None and slots <= 2 * partitions <= 2 * slots:
        return SparkPlan(partitions, dealt=False)
    return SparkPlan(slots, dealt=True)


def rows_of(types: Mapping[str, str], label: str, weight: str | None) -> SparkRows:
    """Decide what workers read of a frame with columns of these types."""
    check_columns([label], list(types), "the label")
    if weight is not None:
        check_columns([weight], list(types), "sample_weight")
    features = features_of(types, without=(label, weight))
    kinds = {types[name] for name in features}
    return SparkRows(features, label, weight, "float" if kinds == {"float"} else "double", kinds == {VECTOR})


def features_of(types: Mapping[str, str], without: tuple[str | None, ...] = ()) -> tuple[str, ...]:
    """Return the names of the features; raise where one is neither a number nor, alone, a vector."""
    features = tuple(name for name in types if name not in without)
    if not features:
        raise DataError(f"the frame must have features beside the label, got {', '.join(types)}")
    vectors = [name for name in features if types[name] == VECTOR]
    if vectors and len(features) > 1:
        raise DataError(
            f"a vector must be the only feature of a frame, got {vectors[0]!r} beside others; "
            f"select it and the label"
        )
    for name in features:
        if types[name] != VECTOR and not NUMBERS.fullmatch(types[name]):
            raise DataError(
                f"features of a Spark frame must be numbers, got {types[name]} in {name!r}; encode or drop it"
            )
    return features


def fit_on_spark(model: Any, frame: Any, y: Any, options: dict[str, Any]) -> Any:
    """Fit a model to a Spark frame; `y`, and `sample_weight` among the options of `fit`, are names of its columns."""
    weight = options.pop("sample_weight", None)
    rows = rows_of(types_of(frame), _name(y, "targets"), None if weight is None else _name(weight, "weights"))
    with meeting(frame) as store:
        task = partial(fit_share, model, rows, options, store)
        groups, slots = groups_of(frame, rows), _slots(frame)
        if len(groups) >= slots:
            told = _told_by_readers(frame, shares_of(groups, slots), task, rows)
        else:
            told = _told_by_workers(_selected(frame, rows), plan_of(_partitions(frame), slots), task)
    faults = {each.rank: Fault(each.said, each.of_input) for each in told if each.said}
    if faults:
        raise _error_of(faults)
    vars(model).update(pickle.loads(next(each.model for each in told if each.model is not None)))
    return model


def _told_by_workers(frame: Any, plan: SparkPlan, task: Any) -> list[Any]:
    """Run the workers of a plan, each on a task that knows whether its rows were dealt out; return what they tell."""
    try:
        if not plan.dealt:
            return list(frame.mapInArrow(partial(task, False), TOLD, barrier=True).collect())
        blocks = frame.mapInArrow(packed, "block binary").repartition(plan.workers)
        return list(blocks.mapInArrow(partial(task, True), TOLD, barrier=True).collect())
    except Exception as error:
        text = str(error)
        if UNFIT in text and not plan.dealt:  # partitions of a union, or of a coalesced frame
            return _told_by_workers(frame, replace(plan, dealt=True), task)
        explained = _explained(text)
        if explained is None:
            raise
        raise explained from None


def _told_by_readers(
    frame: Any, shares: tuple[tuple[RowGroup, ...], ...], task: Any, rows: SparkRows
) -> list[Any]:
    """Run a worker for each share of the files behind a frame; return what they tell."""
    places = frame.sparkSession.range(0, len(shares), 1, len(shares))
    return list(places.mapInArrow(partial(read_share, task, shares, rows), TOLD, barrier=True).collect())


def read_share(task: Any, shares: tuple[tuple[RowGroup, ...], ...], rows: SparkRows, places: Any) -> Any:
    """Run the worker of this barrier task on its share of the files."""
    from pyspark import BarrierTaskContext

    deque(places, maxlen=0)  # Spark keeps a process for its next task only if that has read all its rows
    return task(False, GroupBatches(shares[BarrierTaskContext.get().partitionId()], rows))


@contextmanager
def meeting(frame: Any) -> Iterator[str]:
    """Serve the store that workers meet in while they run, and yield its port; "" where rank 0 has to serve it.

    Tasks of a barrier stage wait for each other in whole seconds; a local Spark's can reach this process instead.
    """
    try:
        once = LOCAL.fullmatch(str(frame.sparkSession.sparkContext.master)) is not None
    except Exception:  # Spark Connect has no context
        once = False
    if not once:
        yield ""
        return
    import torch  # noqa: F401  # first: it loads our backend, which needs the module of its private names whole

    from weft.collectives.rendezvous import serve_store

    store = serve_store("127.0.0.1", 0, WAIT, wait_for_workers=False)
    yield str(store.port)
    del store


def _explained(text: str) -> UsageError | None:
    """Return the commonest failures of a cluster that lacks something, in words."""
    absent = re.search(r"No module named '([\w.]+)'", text)
    if absent:
        return UsageError(
            f"Spark's executors must have weft[learn] installed, got none of {absent[1]} there; "
            "install it there, or set PYSPARK_PYTHON to a Python that has it"
        )
    if "SPARK-24942" in text:
        return UsageError(
            "Spark must have a fixed number of executors for a fit, got dynamic allocation; "
            "set spark.dynamicAllocation.enabled to false"
        )
    return None


def _error_of(faults: Mapping[int, Fault]) -> Exception:
    """Return the error for the driver: once, where all workers say the same."""
    said = {fault.said for fault in faults.values()}
    return DataError(said.pop()) if len(said) == 1 and len(faults) > 1 else error_of(faults)


def _name(given: Any, what: str) -> str:
    if not isinstance(given, str):
        raise UsageError(
            f"{what} of a Spark frame must be a column of it, got {type(given).__name__}; give the column's name"
        )
    return given


def types_of(frame: Any) -> dict[str, str]:
    """Return the types of a frame's columns by name."""
    types: dict[str, str] = {}
    for field in frame.schema.fields:
        if field.name in types:
            raise DataError(
                f"columns of a frame must have different names, got {field.name!r} twice; rename one"
            )
        types[field.name] = (
            VECTOR if "VectorUDT" in type(field.dataType).__name__ else field.dataType.simpleString()
        )
    return types


def _selected(frame: Any, rows: SparkRows) -> Any:
    """Return the columns that workers read: features as floats or one array, the label, the weights."""
    from pyspark.sql import functions

    label = functions.col(_quoted(rows.label))
    if types_of(frame)[rows.label].startswith("decimal"):
        label = label.cast("double")
    columns = [*feature_columns(rows), label.alias("label")]
    if rows.weight is not None:
        columns.append(functions.col(_quoted(rows.weight)).cast("double").alias("weight"))
    return frame.select(*columns)


def feature_columns(rows: SparkRows) -> list[Any]:
    """Return the features as columns x0, x1, ... of one type; a vector as one array."""
    from pyspark.sql import functions

    columns = [functions.col(_quoted(name)) for name in rows.features]
    if rows.vector:
        from pyspark.ml.functions import vector_to_array

        return [vector_to_array(columns[0]).alias("x0")]
    return [column.cast(rows.width).alias(f"x{place}") for place, column in enumerate(columns)]


def _quoted(name: str) -> str:
    """Return a column's name as Spark's expressions take it, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def _partitions(frame: Any) -> int | None:
    """Return how many partitions a frame has; None where only running it would tell."""
    try:
        plan = frame._jdf.queryExecution().executedPlan().toString()
        return None if "Exchange" in plan else int(frame.rdd.getNumPartitions())
    except Exception:  # Spark Connect has no plan at hand, and some plans no partitions
        return None


def _slots(frame: Any) -> int:
    """Return how many tasks Spark runs at once."""
    session = frame.sparkSession
    asked = session.conf.get(WORKERS, None)
    if asked is not None:
        if not asked.isdigit() or int(asked) < 1:
            raise UsageError(f"{WORKERS} must be a whole number of at least 1, got {asked!r}")
        return int(asked)
    try:
        cores = int(session.sparkContext.defaultParallelism)
    except Exception:
        raise UsageError(
            f"{WORKERS} must say how many tasks Spark Connect's cluster runs at once, got nothing; "
            f"set it by spark.conf.set('{WORKERS}', '8')"
        ) from None
    return max(1, cores // int(session.conf.get("spark.task.cpus", "1")))
