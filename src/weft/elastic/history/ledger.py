"""The check whether a run consumed every sample exactly once per epoch, made of its ledger.

The check trusts nobody: what a step consumed follows from the headers alone, and is compared with what agents
recorded. Reading is one thing (`records.read_ledger`), judging another (`audit`, which is pure).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from weft.elastic.data.order import SampleOrder, TrainingStep
from weft.elastic.history.records import Ledger, LedgerHeader, LedgerHistory, StepRecord, history, read_ledger
from weft.elastic.history.samples import Span, format_span, size_of, tile
from weft.text import plural


@dataclass(frozen=True)
class LedgerProblem:
    """A problem that the check found, in words."""

    epoch: int
    step: int | None
    text: str


@dataclass(frozen=True)
class Contribution:
    """The contribution of one worker: steps, micro-batches and samples."""

    steps: int = 0
    micro_batches: int = 0
    samples: int = 0

    def __add__(self, other: Contribution) -> Contribution:
        return Contribution(
            self.steps + other.steps, self.micro_batches + other.micro_batches, self.samples + other.samples
        )


@dataclass(frozen=True, kw_only=True)
class EpochReport:
    """One pass over the data."""

    epoch: int
    first: int  # step
    last: int
    steps: int
    samples: int  # that were consumed
    missing: int
    twice: int  # or more often
    finished: bool  # of an iterable data set: another epoch followed
    ok: bool
    contributions: dict[str, Contribution]


@dataclass(frozen=True, kw_only=True)
class LedgerReport:
    """The result of the check of a ledger."""

    header: LedgerHeader
    files: tuple[str, ...]
    absent: tuple[str, ...]  # hosts that contributed and whose files are not here
    epochs: tuple[EpochReport, ...]
    redone: tuple[int, ...]
    undone: tuple[int, ...]
    problems: tuple[LedgerProblem, ...]
    only_epoch: int | None = None

    @property
    def exact(self) -> bool:
        return not self.problems

    @property
    def contributions(self) -> dict[str, Contribution]:
        total: dict[str, Contribution] = {}
        for row in self.epochs:
            for worker, given in row.contributions.items():
                total[worker] = total.get(worker, Contribution()) + given
        return dict(sorted(total.items()))

    def only(self, epoch: int) -> LedgerReport:
        """The part about one epoch."""
        epochs = tuple(row for row in self.epochs if row.epoch == epoch)
        return replace(
            self,
            epochs=epochs,
            redone=tuple(
                step for step in self.redone if any(row.first <= step <= row.last for row in epochs)
            ),
            problems=tuple(problem for problem in self.problems if problem.epoch == epoch),
            only_epoch=epoch,
        )

    def to_json(self) -> dict[str, Any]:
        given = {worker: asdict(put) for worker, put in self.contributions.items()}
        return asdict(self) | {"header": self.header.to_json(), "exact": self.exact, "contributions": given}


def check(run_dir: Path) -> LedgerReport:
    """Read the ledger of a run and judge it."""
    return audit(read_ledger(run_dir))


def audit(ledger: Ledger) -> LedgerReport:
    """Judge a ledger: pure."""
    counted = history(ledger.records)
    problems = [*_conflicts(ledger.records), *_gaps(counted), *_steps(counted.records, ledger.header)]
    epochs: list[EpochReport] = []
    by_epoch: dict[int, list[StepRecord]] = {}
    for record in counted.records:
        by_epoch.setdefault(record.epoch, []).append(record)
    for own in by_epoch.values():
        row, wrong = _epoch(own, counted.records, ledger.header)
        problems += wrong
        epochs.append(row)
    bad = {problem.epoch for problem in problems}
    return LedgerReport(
        header=ledger.header,
        files=ledger.files,
        absent=ledger.absent,
        epochs=tuple(
            replace(row, ok=row.epoch not in bad) for row in sorted(epochs, key=lambda row: row.epoch)
        ),
        redone=counted.redone,
        undone=counted.undone,
        problems=tuple(sorted(problems, key=lambda problem: (problem.epoch, problem.step is None))),
    )


def _conflicts(records: Iterable[StepRecord]) -> Iterator[LedgerProblem]:
    """Records of one step that cannot both be true."""
    first: dict[int, StepRecord] = {}
    of_view: dict[tuple[int, int], StepRecord] = {}
    for record in records:
        other = first.setdefault(record.step, record)
        if record.samples != other.samples:
            text = f"must have the same samples in every record, got {_place(other)} and {_place(record)}"
            yield LedgerProblem(record.epoch, record.step, f"step {record.step} {text}")
        same = of_view.setdefault((record.step, record.view), record)
        if record.parts != same.parts:
            text = f"must have one division of the work, got two, in {same.where} and {record.where}"
            yield LedgerProblem(record.epoch, record.step, f"step {record.step} of view {record.view} {text}")


def _place(record: StepRecord) -> str:
    span = format_span((record.start, record.stop))
    return f"epoch {record.epoch} positions {span} digest {record.digest} in {record.where}"


def _gaps(told: LedgerHistory) -> Iterator[LedgerProblem]:
    """Steps, from the first to the last, that nobody has recorded, and epochs."""
    for before, after in pairwise(told.records):
        if after.step != before.step + 1:
            names = format_span((before.step + 1, after.step))
            word = "step" if after.step == before.step + 2 else "steps"
            yield LedgerProblem(
                before.epoch, before.step + 1, f"{word} {names} must be recorded, got no record"
            )
        if after.epoch not in (before.epoch, before.epoch + 1):
            text = f"must be of epoch {before.epoch} or the next, got {after.epoch} ({after.where})"
            yield LedgerProblem(after.epoch, after.step, f"step {after.step} {text}")


def _steps(records: Iterable[StepRecord], header: LedgerHeader) -> Iterator[LedgerProblem]:
    """Yield the problems of each step by itself: its place, its samples, its micro-batches."""
    order = header.order
    for record in records:
        for text in _wrong(record, header, order):
            yield LedgerProblem(record.epoch, record.step, f"step {record.step} {text} ({record.where})")


def _wrong(record: StepRecord, header: LedgerHeader, order: SampleOrder | None) -> Iterator[str]:
    if not _fits(record, header):
        of = "" if header.epoch_end is None else f" of {header.epoch_end}"
        got = format_span((record.start, record.stop))
        yield f"must take one batch of {header.batch} positions{of}, got {got}"
        return
    if order is not None:
        digest = order.digest(TrainingStep(record.step, record.epoch, record.start, record.stop))
        if digest != record.digest:
            yield f"must have digest {digest} by the order of its epoch, got {record.digest}"
    yield from _wrong_parts(record, header)


def _fits(record: StepRecord, header: LedgerHeader) -> bool:
    if header.epoch_end is None:
        # A batch may be short where a stream ends, and only the stream knows where.
        return 0 < record.stop - record.start <= header.batch
    start, stop = record.start, min(record.start + header.batch, header.epoch_end)
    return start % header.batch == 0 and 0 <= start < record.stop == stop


def _wrong_parts(record: StepRecord, header: LedgerHeader) -> Iterator[str]:
    count = -(-(record.stop - record.start) // header.micro)
    given = Counter(chain.from_iterable(record.parts.values()))
    if len(given) == count == given.total() and min(given) == 0 and max(given) == count - 1:
        return
    for micro in sorted({*given, *range(count)}):
        workers = [worker for worker, micros in record.parts.items() if micro in micros]
        if not 0 <= micro < count:
            yield f"must have micro-batches 0 to {count - 1}, got {micro} by {workers[0]}"
        elif given[micro] != 1:
            times = f"{given[micro]} times by {', '.join(workers)}" if workers else "it by nobody"
            yield f"must have micro-batch {micro} computed once, got {times}"


def _epoch(
    own: Sequence[StepRecord], records: Sequence[StepRecord], header: LedgerHeader
) -> tuple[EpochReport, list[LedgerProblem]]:
    """Return how the steps of an epoch cover it."""
    epoch = own[0].epoch
    end = header.epoch_end
    reached = max(record.stop for record in own)
    finished = own[-1] is not records[-1] or reached == end
    # Before the first record, and after the last, is what these files do not tell of.
    low = own[0].start if own[0] is records[0] and records[0].step > 0 else 0
    high = reached if end is None or not finished else end
    spans = [span for record in own for span in consumed(record, header.micro)]
    missing, twice = tile(spans, low, high)
    problems = [
        LedgerProblem(epoch, None, f"epoch {epoch} must consume every sample once, got {text}")
        for text in (*_lost("missing", missing, epoch, header), *_lost("twice", twice, epoch, header))
    ]
    row = EpochReport(
        epoch=epoch,
        first=own[0].step,
        last=own[-1].step,
        steps=len(own),
        samples=high - low - size_of(missing),
        missing=size_of(missing),
        twice=size_of(twice),
        finished=finished,
        ok=not problems,
        contributions=_contributions(own, header),
    )
    return row, problems


def consumed(record: StepRecord, size: int) -> Iterator[Span]:
    """The positions whose samples really went into a step: those of the micro-batches somebody computed."""
    for micros in record.parts.values():
        for micro in micros:
            start, stop = record.span(micro, size) if micro >= 0 else (0, 0)
            if start < stop:
                yield start, stop


def _lost(word: str, spans: Sequence[Span], epoch: int, header: LedgerHeader) -> Iterator[str]:
    """`8 samples missing at positions 768-775: 12, 881, 4, ...`"""
    if not spans:
        return
    places = ", ".join(map(format_span, spans[:5])) + (", ..." if len(spans) > 5 else "")
    numbers = sample_numbers(header.order, epoch, spans[0][0], min(spans[0][1], spans[0][0] + 8))
    names = ", ".join(map(str, numbers)) + (", ..." if size_of(spans) > len(numbers) else "")
    yield f"{plural(size_of(spans), 'sample')} {word} at positions {places}: {names}"


def sample_numbers(order: SampleOrder | None, epoch: int, start: int, stop: int) -> list[int]:
    """The samples at some positions; in a stream they are numbered as they come."""
    if order is None:
        return list(range(start, stop))
    return [int(number) for number in order.samples(TrainingStep(0, epoch, start, min(stop, order.length)))]


def _contributions(records: Iterable[StepRecord], header: LedgerHeader) -> dict[str, Contribution]:
    total: dict[str, Contribution] = {}
    for record in records:
        for worker, micros in record.parts.items():
            samples = size_of(record.span(micro, header.micro) for micro in micros)
            total[worker] = total.get(worker, Contribution()) + Contribution(1, len(micros), samples)
    return total
