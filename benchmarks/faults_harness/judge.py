"""The judge of `benchmarks/faults.py`: from the lines that workers wrote, what was lost, doubled or different."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StepLine:
    """One step, as one worker was about to reduce its gradients or has applied it."""

    t: float  # seconds since 1970
    worker: str  # host and process
    epoch: int
    step: int
    view: int
    size: int  # members of the view
    samples: tuple[int, ...]  # that this worker computed
    checksum: int | None  # of all parameters after the step; None: the gradients were not reduced yet


@dataclass(frozen=True)
class Verdict:
    """What the lines of a whole run amount to."""

    steps: int
    lost: int  # steps that had been committed and were done again although a worker that had them was not harmed
    doubled: int  # samples that several workers computed for one step
    missing: int  # samples of an epoch that no step consumed
    different: int  # steps after which parameters were not equal on all workers

    @property
    def sound(self) -> bool:
        return not (self.lost or self.doubled or self.missing or self.different)


def parse(line: str) -> StepLine:
    data = json.loads(line)
    return StepLine(**{**data, "samples": tuple(data["samples"])})


def judge(lines: Iterable[StepLine], samples: int) -> Verdict:
    """Judge a run that came to its end; `samples` is how many an epoch has."""
    by_step: defaultdict[int, list[StepLine]] = defaultdict(list)
    computed: defaultdict[int, list[StepLine]] = defaultdict(list)  # by step
    for line in sorted(lines, key=lambda line: (line.view, line.t)):
        if line.checksum is None:
            computed[line.step].append(line)
        else:
            by_step[line.step].append(line)
    final = {step: _of_newest_view(done) for step, done in by_step.items()}
    consumed: defaultdict[int, list[int]] = defaultdict(list)
    for step, done in final.items():
        shares = _shares(done, [line for line in computed[step] if line.view <= done[0].view])
        consumed[done[0].epoch] += [sample for share in shares for sample in share]
    return Verdict(
        steps=len(final),
        lost=_count_lost(by_step),
        doubled=sum(len(taken) - len(set(taken)) for taken in consumed.values()),
        missing=sum(samples - len(set(taken)) for taken in consumed.values())
        + len(set(range(max(final, default=-1) + 1)) - final.keys()),
        different=sum(len({line.checksum for line in done}) > 1 for done in final.values()),
    )


def ended_too_late(lines: Iterable[StepLine], killed_at: Iterable[float], last_step: int) -> bool:
    """Return whether a worker was killed when the last step was done; such a run has to fail."""
    done_at = min(
        (line.t for line in lines if line.step >= last_step and line.checksum is not None), default=None
    )
    return done_at is not None and any(killed >= done_at for killed in killed_at)


def _of_newest_view(done: Sequence[StepLine]) -> list[StepLine]:
    return [line for line in done if line.view == done[-1].view]


def _shares(done: Sequence[StepLine], computed: Sequence[StepLine]) -> list[tuple[int, ...]]:
    """The samples of each member in a step that was applied.

    A member may be killed after its gradients were summed with the others' and before it applied them: what it was
    about to reduce then counts too. It may have computed that in a view before, as a change of members takes nothing
    from those who stay. Who has died since then does not count: others have computed its samples again.
    """
    shares = {line.worker: line.samples for line in done}
    in_view = [line for line in computed if line.view == done[0].view]
    if len(shares) < done[0].size:
        shares = {line.worker: line.samples for line in in_view} | shares
    for line in reversed(computed):
        taken = {sample for share in shares.values() for sample in share}
        if len(shares) < done[0].size and line.worker not in shares and taken.isdisjoint(line.samples):
            shares[line.worker] = line.samples
    return list(shares.values())


def _count_lost(by_step: dict[int, list[StepLine]]) -> int:
    """Count committed steps that were done again, but for the last one before a change: who had it may be dead."""
    newest: dict[int, int] = {}  # by view: the highest step
    first: dict[int, int] = {}  # by view: the lowest step
    for step, done in by_step.items():
        for line in done:
            newest[line.view] = max(newest.get(line.view, -1), step)
            first[line.view] = min(first.get(line.view, step), step)
    lost, highest = 0, -1
    for view in sorted(newest):
        lost += max(0, highest - first[view])  # done again: all but the last one before the fault
        highest = max(highest, newest[view])
    return lost
