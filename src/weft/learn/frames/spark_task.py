"""A worker of a fit on a Spark frame: one barrier task, which reads its partition and joins the others.

The tasks of a barrier stage run at once and know each other; rank 0's opens the store that our collectives meet in.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import numpy as np

from weft.errors import DataError, ShareError, UsageError
from weft.learn.workers.faults import Fault, fault_of
from weft.learn.workers.group import current_workers, together
from weft.learn.workers.joint_fit import all_or_none

Array = np.ndarray[Any, Any]

TOLD = "rank int, model binary, said string, of_input boolean"  # what a worker tells the driver
CACHED = 1 << 18  # bytes of rows that columns are turned into at once
WAIT = timedelta(minutes=30)  # for the slowest of the workers to read its partition


@dataclass(frozen=True)
class SparkRows:
    """The columns that workers read of a frame: features and their type, label and weights."""

    features: tuple[str, ...]
    label: str
    weight: str | None
    width: str  # float or double
    vector: bool = False  # whether the only feature is MLlib's vector

    @property
    def dtype(self) -> Any:
        return np.float32 if self.width == "float" else np.float64


@dataclass(frozen=True)
class SparkShare:
    """The rows of one worker; of an empty one, X has no columns."""

    X: Array
    y: Array
    weights: Array | None


def packed(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield every batch of rows as one cell of bytes: Spark deals out a few blocks faster than millions of rows."""
    import pyarrow as pa

    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"block": pa.array([sink.getvalue().to_pybytes()], pa.binary())})


def unpacked(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches of rows that `packed` made cells of."""
    import pyarrow as pa

    for batch in batches:
        for cell in batch.column(0):
            with pa.ipc.open_stream(cell.as_buffer()) as reader:
                yield from reader


def share_of(batches: Iterable[Any], rows: SparkRows) -> SparkShare:
    """Return the rows of Arrow batches, row by row in memory; each batch is let go as soon as it is copied.

    Batches that know their `row_count` are copied to their places; others are put together at the end.
    """
    count = getattr(batches, "row_count", 0)
    whole = np.empty((count, len(rows.features)), rows.dtype) if count and not rows.vector else None
    blocks: list[Array] = []
    labels: list[Array] = []
    weights: list[Array] = []
    at = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        width = batch.schema.names.index("label")
        if rows.vector:
            blocks.append(_vectors(batch.column(0)))
        elif whole is not None:
            _fill(whole[at : at + batch.num_rows], batch)
        else:
            blocks.append(np.empty((batch.num_rows, width), rows.dtype))
            _fill(blocks[-1], batch)
        at += batch.num_rows
        labels.append(_label(batch.column(width), rows.label))
        if rows.weight is not None:
            weights.append(batch.column(width + 1).to_numpy(zero_copy_only=False))
    y = np.concatenate(labels) if labels else np.empty(0)
    X = _joined(blocks) if whole is None else whole
    return SparkShare(X, y, np.concatenate([np.empty(0), *weights]) if rows.weight else None)


def _fill(block: Array, batch: Any) -> None:
    """Copy the features of a batch to their rows."""
    columns = [batch.column(place).to_numpy(zero_copy_only=False) for place in range(block.shape[1])]
    step = max(1, CACHED // max(1, block.shape[1] * block.itemsize))
    for start in range(0, len(block), step):  # column after column of all rows would miss the cache
        for place, column in enumerate(columns):
            block[start : start + step, place] = column[start : start + step]


def _vectors(column: Any) -> Array:
    """Return MLlib's vectors, which came as lists of one length, as rows."""
    lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1 or column.null_count:
        raise DataError("vectors of a Spark frame must have one length and be there in every row, got others")
    values: Array = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(-1, int(lengths[0]))


def _label(column: Any, name: str) -> Array:
    if column.null_count:
        raise DataError(f"the label must be there in every row, got null in {name!r}; drop those rows")
    label: Array = column.to_numpy(zero_copy_only=False)
    return label


def _joined(blocks: list[Array]) -> Array:
    """Return blocks one below the other; they are let go one by one, so that rows are there once."""
    if not blocks:
        return np.empty((0, 0))
    whole = np.empty((sum(map(len, blocks)), blocks[0].shape[1]), blocks[0].dtype)
    at = 0
    for place, block in enumerate(blocks):
        whole[at : at + len(block)] = block
        at += len(block)
        blocks[place] = block[:0].copy()
    return whole


def fit_share(
    model: Any, rows: SparkRows, options: Mapping[str, Any], store: str, dealt: bool, batches: Iterable[Any]
) -> Iterator[Any]:
    """Fit on this task's rows, together with all other tasks; yield what the driver is told.

    `store` is the port of the driver's, where it is on this machine.
    """
    import pyarrow as pa
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    if getattr(model, "n_jobs", 1) is None:
        model.n_jobs = context.cpus()
    with joined(context, store):
        fault = _fault_of_fit(model, rows, options, unpacked(batches) if dealt else batches)
    rank = context.partitionId()
    kept = pickle.dumps(learnt(model)) if rank == 0 and fault is None else None
    told = {"rank": rank, "model": kept, "said": fault and fault.said, "of_input": fault and fault.of_input}
    kinds = pa.schema([("rank", "int32"), ("model", "binary"), ("said", "string"), ("of_input", "bool")])
    yield pa.RecordBatch.from_pylist([told], kinds)


def _fault_of_fit(
    model: Any, rows: SparkRows, options: Mapping[str, Any], batches: Iterable[Any]
) -> Fault | None:
    """Fit; return what this worker's rows or the parameters are to blame for, if anything."""
    try:
        with together(), all_or_none():
            share = _with_columns(share_of(batches, rows))
            weights = {} if share.weights is None else {"sample_weight": share.weights}
            model.fit(share.X, share.y, **weights, **options)
    except ShareError:  # the worker that it is about tells it
        return Fault("", of_input=True)
    except (UsageError, ValueError, TypeError) as error:
        return fault_of(error)
    if not rows.vector:
        model.feature_names_in_ = np.array(rows.features, object)
    return None


def _with_columns(share: SparkShare) -> SparkShare:
    """Return a share with the columns that the others have, where it is empty."""
    workers = current_workers()
    widths = workers.gathered(share.X.shape[1]) if workers else [0]
    return share if len(share.X) else replace(share, X=np.empty((0, max(widths))))


def learnt(model: Any) -> dict[str, Any]:
    """Return what a fit set: all attributes but the parameters, which the driver has."""
    return {name: value for name, value in vars(model).items() if name not in model.get_params(deep=False)}


@contextmanager
def joined(context: Any, store: str) -> Iterator[None]:
    """Be a rank of torch's group, on our backend, among all tasks of a barrier stage."""
    import torch.distributed as dist

    from weft.collectives.register import autoload

    autoload()
    rank = context.partitionId()
    hosts = [info.address.rpartition(":")[0] or info.address for info in context.getTaskInfos()]
    met = _store(context, rank, hosts, store)
    dist.init_process_group("weft", store=met, rank=rank, world_size=len(hosts), timeout=WAIT)
    try:
        yield
        if not store:
            context.barrier()  # rank 0's store ends with it
    finally:
        dist.destroy_process_group()


def _store(context: Any, rank: int, hosts: list[str], port: str) -> Any:
    """Return the store that all tasks meet in: the driver's, or one that rank 0 serves on an address of its own."""
    from weft.collectives.rendezvous import serve_store
    from weft.collectives.torch_private import TCPStore

    if port:
        return TCPStore("127.0.0.1", int(port), None, is_master=False, timeout=WAIT)
    served = serve_store(address_of(hosts), 0, WAIT, wait_for_workers=False) if rank == 0 else None
    told = context.allGather(f"{served.host} {served.port}" if served else "")
    if served is not None:
        return served
    host, port = told[0].split()
    return TCPStore(host, int(port), None, is_master=False, timeout=WAIT)


def address_of(hosts: list[str]) -> str:
    """Return the address that rank 0 is reached by, as tasks on these hosts, in the order of ranks, see it."""
    if len(set(hosts)) == 1:
        return "127.0.0.1"
    try:
        found = socket.gethostbyname(hosts[0])
    except OSError:
        return hosts[0]
    return hosts[0] if ip_address(found).is_loopback else found
