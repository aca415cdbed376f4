"""What the records of a trial say: when the next step was committed, how long it paused, which samples it consumed.

Pure: lines in, figures out.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A worker committed a step."""

    t: float
    worker: str
    pid: int
    step: int
    samples: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Start:
    """A worker goes on from the state after step `base`: what was committed beyond it before is void."""

    t: float
    worker: str
    pid: int
    base: int


def parse(line: str) -> Commit | Start:
    entry = json.loads(line)
    if "base" in entry:
        return Start(**entry)
    return Commit(**entry | {"samples": tuple(entry["samples"])})


def in_step(last: Collection[Commit], workers: int) -> bool:
    """Whether the last commits are those of so many workers, and of one step."""
    return len(last) == workers and len({commit.step for commit in last}) == 1


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Seconds from a fault to the first commit, and to the first of a step that was not committed before it."""

    first_s: float
    next_s: float
    redone: int  # steps that had been committed and were done again


def recovery(commits: Iterable[Commit], fault_t: float, victims: Collection[int]) -> Recovery | None:
    """None while nothing beyond the fault was committed by those who live."""
    known = sorted(commits, key=lambda commit: commit.t)
    reached = max((commit.step for commit in known if commit.t <= fault_t), default=0)
    after = [commit for commit in known if commit.t > fault_t and commit.pid not in victims]
    beyond = [commit for commit in after if commit.step > reached]
    if not beyond:
        return None
    redone = max(0, reached + 1 - min(commit.step for commit in after))
    return Recovery(first_s=after[0].t - fault_t, next_s=beyond[0].t - fault_t, redone=redone)


def progress(commits: Iterable[Commit]) -> list[float]:
    """The times at which a step was committed that none had reached before."""
    times, reached = [], 0
    for commit in sorted(commits, key=lambda commit: commit.t):
        if commit.step > reached:
            reached = commit.step
            times.append(commit.t)
    return times


def longest_pause_s(commits: Iterable[Commit], since: float, until: float) -> float:
    """The longest time without progress that ended after `since`, or has not ended by `until`."""
    times = [*progress(commits), until]
    return max((b - a for a, b in pairwise(times) if b > since), default=0.0)


def step_s(commits: Iterable[Commit], skip: int = 0) -> float:
    """The median time from one step to the next, the first few left out."""
    times = progress(commits)[skip:]
    return statistics.median(b - a for a, b in pairwise(times))


def standing(commits: Iterable[Commit], starts: Iterable[Start]) -> list[Commit]:
    """The commits that no later start from an older state made void."""
    known = list(starts)
    return [c for c in commits if not any(start.t > c.t and start.base < c.step for start in known)]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """How an epoch treated its samples: how many of `total` no standing commit consumed, how many several did."""

    total: int
    lost: int
    twice: int


def account(commits: Iterable[Commit], starts: Iterable[Start], total: int) -> Samples:
    seen = Counter(number for commit in standing(commits, starts) for number in commit.samples)
    twice = sum(count > 1 for count in seen.values())
    return Samples(total=total, lost=sum(number not in seen for number in range(total)), twice=twice)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank; trials that never ended may count as infinite."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
