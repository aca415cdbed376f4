"""The measuring of `benchmarks/recovery.py`: what is concluded from the records of a trial."""

from __future__ import annotations

import math

import pytest
from benchmarks.recovery import Outcome, render, summaries
from benchmarks.recovery_harness.measure import (
    Commit,
    Recovery,
    Samples,
    Start,
    account,
    in_step,
    longest_pause_s,
    parse,
    percentile,
    recovery,
    step_s,
)


def commit(t: float, step: int, worker: int = 0, pid: int | None = None, samples: str = "") -> Commit:
    numbers = tuple(int(digit) for digit in samples)
    return Commit(t=t, step=step, worker=str(worker), pid=worker if pid is None else pid, samples=numbers)


def test_a_line_is_a_commit_or_a_start() -> None:
    line = '{"t": 1.5, "worker": "0", "pid": 7, "step": 3, "samples": [4, 5]}'
    assert parse(line) == Commit(t=1.5, worker="0", pid=7, step=3, samples=(4, 5))
    assert parse('{"t": 1.5, "worker": "0", "pid": 7, "base": 3}') == Start(t=1.5, worker="0", pid=7, base=3)


def test_workers_are_in_step_when_all_committed_the_same_one() -> None:
    assert in_step([commit(1, 5, 0), commit(1, 5, 1)], 2)
    assert not in_step([commit(1, 5, 0), commit(1, 4, 1)], 2)
    assert not in_step([commit(1, 5, 0)], 2)


def test_recovery_waits_for_a_step_that_was_not_committed_before() -> None:
    before = [commit(1.0, 9), commit(1.25, 10), commit(1.25, 10, 1)]
    again = [commit(4.0, 9, 0, pid=20), commit(4.25, 10, 0, pid=20)]
    assert recovery([*before, *again], 1.5, {1}) is None
    found = recovery([commit(4.75, 11, 0, pid=20), *before, *again], 1.5, {1})
    assert found == Recovery(first_s=2.5, next_s=3.25, redone=2)


def test_recovery_of_one_that_goes_on_where_it_was() -> None:
    found = recovery([commit(1.0, 10), commit(1.75, 11)], 1.25, {1})
    assert found == Recovery(first_s=0.5, next_s=0.5, redone=0)


def test_a_commit_of_the_victim_is_no_recovery() -> None:
    # One that was stopped may still write what it had done.
    assert recovery([commit(1.0, 10), commit(1.2, 11, 1)], 1.1, {1}) is None


def test_a_pause_is_the_longest_time_without_a_new_step() -> None:
    commits = [
        commit(0.0, 1),
        commit(5.0, 2),
        commit(5.1, 3),
        commit(5.1, 3, 1),
        commit(6.0, 2, 2),
        commit(6.5, 4),
    ]
    assert longest_pause_s(commits, since=5.05, until=6.6) == pytest.approx(1.4)
    assert longest_pause_s(commits, since=0.0, until=6.6) == 5.0
    assert longest_pause_s(commits, since=5.05, until=9.5) == 3.0  # it goes on


def test_step_is_a_median_without_the_first() -> None:
    commits = [commit(t, step) for step, t in enumerate((0.0, 3.0, 3.1, 3.2, 3.4), 1)]
    assert step_s(commits, skip=1) == pytest.approx(0.1)


def test_samples_of_steps_that_were_rolled_back_do_not_count() -> None:
    first = [commit(1.0, 1, samples="01"), commit(1.1, 2, samples="23")]  # a checkpoint after step 1
    start = Start(t=3.0, worker="0", pid=20, base=1)
    second = [commit(3.1, 2, pid=20, samples="45"), commit(3.2, 3, pid=20, samples="14")]
    kept = account([*first, *second], [Start(t=0.5, worker="0", pid=0, base=0), start], total=6)
    assert kept == Samples(total=6, lost=2, twice=2)  # 2 and 3 never again; 1 and 4 twice


def test_every_sample_once_is_none_lost_and_none_twice() -> None:
    commits = [commit(1.0, 1, 0, samples="03"), commit(1.0, 1, 1, samples="12")]
    assert account(commits, [], total=4) == Samples(total=4, lost=0, twice=0)


def test_percentiles_are_of_the_nearest_rank_and_know_infinity() -> None:
    values = [float(n) for n in range(10, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.95)) == (5.0, 10.0)
    assert percentile([1.0, math.inf], 0.95) == math.inf
    assert percentile([2.0], 0.5) == 2.0


def test_the_table_compares_with_ours() -> None:
    def outcome(system: str, value_s: float | None, note: str = "") -> Outcome:
        return Outcome(row="kill", system=system, value_s=value_s, note=note)

    ours, rival, never, absent = summaries(
        "kill",
        [
            *(outcome("weft", value_s) for value_s in (0.4, 0.5, 0.6)),
            *(outcome("rival", value_s) for value_s in (5.0, 6.0)),
            outcome("never", math.inf),
            outcome("absent", None, "is not here"),
        ],
    )
    assert (ours.p50_s, ours.p95_s, ours.ratio, ours.met) == (0.5, 0.6, 1.0, True)
    assert (rival.p50_s, rival.ratio, rival.met) == (5.0, 10.0, None)
    assert "> 60" in render(never, 60.0)
    assert absent.trials == 0
    assert render(absent, 60.0).endswith("is not here")


def test_what_ours_must_reach() -> None:
    def ours(row: str, value_s: float, samples: Samples | None = None) -> bool | None:
        plain = Outcome(row=row, system="ddp, weft", value_s=0.1)
        mine = Outcome(row=row, system="weft", value_s=value_s, redone=0, samples=samples)
        return next(line.met for line in summaries(row, [plain, mine]) if line.system == "weft")

    assert ours("host", 1.4)
    assert ours("host", 1.6) is False
    assert ours("stop", math.inf) is False
    assert ours("cost", 0.102)
    assert ours("cost", 0.104) is False
    assert ours("samples", 1.0, Samples(total=9, lost=0, twice=0))
    assert ours("samples", 1.0, Samples(total=9, lost=1, twice=0)) is False
