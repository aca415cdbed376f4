"""The lines of a ledger: a header for each life of a host's agent, then one record for each step that was committed.

Every host keeps its own file, so most steps are recorded several times. A step that was redone, since nobody who had
committed it was left, is recorded again by a later view; that one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from weft.elastic.data.order import SampleOrder
from weft.elastic.history.lines import LEDGER, read_lines, trace_files
from weft.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class LedgerHeader:
    """The facts that the samples of all steps follow from; the same for all hosts of a run."""

    run: str
    host: str
    length: int | None  # None: an iterable data set, whose samples are numbered as they come
    batch: int
    micro: int
    seed: int
    shuffle: bool
    drop_last: bool
    where: str = field(default="", compare=False)  # file:line

    @property
    def order(self) -> SampleOrder | None:
        if self.length is None:
            return None
        return SampleOrder(self.length, self.batch, self.micro, self.seed, self.shuffle, self.drop_last)

    @property
    def epoch_end(self) -> int | None:
        """The position at which an epoch is over."""
        if self.length is None:
            return None
        return self.length - self.length % self.batch if self.drop_last else self.length

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "where"}


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One committed step as one host saw it."""

    step: int  # over the whole run
    epoch: int
    start: int  # positions in the order of the epoch
    stop: int
    view: int
    parts: Mapping[str, tuple[int, ...]]  # worker: the micro-batches it contributed
    digest: str
    t: float
    where: str = field(default="", compare=False)

    @property
    def samples(self) -> tuple[int, int, int, str]:
        """Return the samples, on which all records of a step must agree."""
        return self.epoch, self.start, self.stop, self.digest

    def span(self, micro: int, size: int) -> tuple[int, int]:
        """The positions of a micro-batch; size is that of all but the last."""
        return min(self.start + micro * size, self.stop), min(self.start + (micro + 1) * size, self.stop)

    def to_json(self) -> dict[str, Any]:
        data = {name: value for name, value in asdict(self).items() if name != "where"}
        return data | {"parts": {worker: list(micros) for worker, micros in self.parts.items()}}


@dataclass(frozen=True)
class Ledger:
    """All that was found of a run's ledger."""

    files: tuple[str, ...]
    headers: tuple[LedgerHeader, ...]
    records: tuple[StepRecord, ...]

    @property
    def header(self) -> LedgerHeader:
        return self.headers[0]

    @property
    def absent(self) -> tuple[str, ...]:
        """Hosts whose workers contributed, but whose file is not here."""
        here = {header.host for header in self.headers}
        hosts = {worker.split("/")[0] for record in self.records for worker in record.parts}
        return tuple(sorted(hosts - here))


@dataclass(frozen=True)
class LedgerHistory:
    """One record for each step, of those that count."""

    records: tuple[StepRecord, ...]  # by step
    redone: tuple[int, ...]
    undone: tuple[int, ...]  # committed, but a later view began again before them and has not come so far yet


def read_ledger(run_dir: Path) -> Ledger:
    """Read what hosts have left here; headers must agree."""
    files = trace_files(run_dir, LEDGER)
    headers: list[LedgerHeader] = []
    records: list[StepRecord] = []
    for path in files:
        known = len(headers)
        for where, data in read_lines(path):
            if "header" in data:
                headers.append(_header(data["header"], where))
            elif len(headers) > known:
                records.append(_record(data, where))
            else:
                raise UsageError(
                    f"{where} must follow a header, got {str(data)[:60]}; is the file an agent's?"
                )
    if not headers:
        raise UsageError(f"{run_dir} must hold a ledger with a header, got {len(files)} empty files")
    agree(headers)
    return Ledger(tuple(path.name for path in files), tuple(headers), tuple(records))


def agree(headers: Sequence[LedgerHeader]) -> None:
    """Refuse headers of different runs, or of a run that was gone on with in another way."""
    first = headers[0]
    for name in (item.name for item in fields(LedgerHeader) if item.name not in ("host", "where")):
        for other in headers[1:]:
            ours, theirs = getattr(first, name), getattr(other, name)
            if ours != theirs:
                raise UsageError(
                    f"headers of one run must agree, got {name} {ours} in {first.where} and {theirs} in {other.where}; "
                    "take away the file that is of another run"
                )


def history(records: Iterable[StepRecord]) -> LedgerHistory:
    """Return the records that count: of each step that of the highest view, without those that a later view redid."""
    best: dict[int, StepRecord] = {}
    views: dict[int, set[int]] = {}
    for record in records:
        views.setdefault(record.step, set()).add(record.view)
        if record.step not in best or record.view > best[record.step].view:
            best[record.step] = record
    counted: list[StepRecord] = []
    undone: list[StepRecord] = []
    latest = -1
    for step in sorted(best):
        # Who redid an earlier step in a later view had not seen this one.
        (counted if best[step].view >= latest else undone).append(best[step])
        latest = max(latest, best[step].view)
    redone = tuple(record.step for record in counted if len(views[record.step]) > 1)
    return LedgerHistory(tuple(counted), redone, tuple(record.step for record in undone))


def _header(data: Any, where: str) -> LedgerHeader:
    try:
        length = data["length"]
        header = LedgerHeader(
            run=str(data["run"]),
            host=str(data["host"]),
            length=None if length is None else int(length),
            batch=int(data["batch"]),
            micro=int(data["micro"]),
            seed=int(data["seed"]),
            shuffle=bool(data["shuffle"]),
            drop_last=bool(data["drop_last"]),
            where=where,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{where} must be a header with all its fields, got {_reason_of(error)}") from error
    if min(header.batch, header.micro) < 1:
        raise UsageError(
            f"{where} must have batch and micro of at least 1, got {header.batch}, {header.micro}"
        )
    return header


def _record(data: dict[str, Any], where: str) -> StepRecord:
    try:
        return StepRecord(
            **{name: int(data[name]) for name in ("step", "epoch", "start", "stop", "view")},
            parts={str(worker): tuple(map(int, micros)) for worker, micros in data["parts"].items()},
            digest=str(data["digest"]),
            t=float(data.get("t", 0.0)),
            where=where,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{where} must be a step with all its fields, got {_reason_of(error)}") from error


def _reason_of(error: Exception) -> str:
    return f"none named {error}" if isinstance(error, KeyError) else str(error)
