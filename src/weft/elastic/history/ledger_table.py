"""The report on a ledger as text: a table of epochs, one of workers, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.elastic.history.ledger import LedgerReport
from weft.elastic.history.samples import SampleUse, format_span
from weft.text import format_share, format_table, plural

_MOST_PROBLEMS = 10


def render_report(report: LedgerReport) -> str:
    epochs: list[tuple[str, ...]] = [("epoch", "steps", "samples", "missing", "twice", "ok")]
    for row in report.epochs:
        said = "no" if not row.ok else "yes" if row.finished else "so far"
        numbers = (row.epoch, row.steps, row.samples, row.missing, row.twice)
        epochs.append((*map(str, numbers), said))
    lines = format_table(epochs, {"ok"})
    total = sum(given.samples for given in report.contributions.values())
    workers: list[tuple[str, ...]] = [("worker", "steps", "micro-batches", "samples", "share")]
    workers += [
        (
            worker,
            str(given.steps),
            str(given.micro_batches),
            str(given.samples),
            format_share(given.samples, total),
        )
        for worker, given in report.contributions.items()
    ]
    if report.contributions:
        lines += ["", *format_table(workers, {"worker"})]
    return "\n".join([*lines, "", verdict(report)])


def verdict(report: LedgerReport) -> str:
    """One sentence; what is wrong stands below it."""
    if not report.epochs:
        return "nothing to judge: no step has been committed"
    if report.exact:
        text = (
            f"exact: every sample consumed once, steps {report.epochs[0].first} to {report.epochs[-1].last}"
        )
        return "; ".join([text, *_remarks(report)])
    missing, twice = (sum(getattr(row, name) for row in report.epochs) for name in ("missing", "twice"))
    text = f"not exact: {plural(missing, 'sample')} missing, {twice} twice, {plural(len(report.problems), 'problem')}"
    lines = ["; ".join([text, *_remarks(report)])]
    lines += [f"  {problem.text}" for problem in report.problems[:_MOST_PROBLEMS]]
    if len(report.problems) > _MOST_PROBLEMS:
        lines.append(f"  and {len(report.problems) - _MOST_PROBLEMS} more; --json has all")
    return "\n".join(lines)


def _remarks(report: LedgerReport) -> Iterator[str]:
    header = report.header
    if report.epochs and not (last := report.epochs[-1]).finished:
        of = "" if header.epoch_end is None else f" of {header.epoch_end}"
        yield f"epoch {last.epoch} is not finished ({last.samples}{of} samples)"
    if report.epochs and report.epochs[0].first > 0 and report.only_epoch is None:
        yield f"the ledger begins at step {report.epochs[0].first}"
    if report.redone:
        yield f"{plural(len(report.redone), 'step')} redone"
    if report.undone:
        names = format_span((report.undone[0], report.undone[-1] + 1))
        yield f"undone and not redone yet: {names}"
    if header.length is not None and header.epoch_end is not None and header.epoch_end < header.length:
        yield f"drop_last leaves out {plural(header.length - header.epoch_end, 'sample')} of each epoch"
    if report.absent and not report.exact:
        yield f"{plural(len(report.absent), 'host')} took part whose files are not here: {', '.join(report.absent)}"


def render_uses(sample: int, found: Sequence[SampleUse], epoch: int | None) -> str:
    if not found:
        where = "" if epoch is None else f" in epoch {epoch}"
        return f"sample {sample} was not consumed{where} by any step recorded here"
    rows: list[tuple[str, ...]] = [("epoch", "step", "view", "worker", "micro-batch", "position", "counts")]
    rows += [
        (
            *map(str, (use.epoch, use.step, use.view)),
            use.worker,
            *map(str, (use.micro_batch, use.position)),
            "yes" if use.counts else "no, redone",
        )
        for use in found
    ]
    return "\n".join(format_table(rows, {"worker", "counts"}))
