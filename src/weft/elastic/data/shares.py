"""The shares of a step: micro-batches dealt to members, and dealt again when some are gone.

What a member has computed of a step it keeps until the step commits. When others are lost, only what they had not
handed in is dealt to those who are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MemberSummary:
    """The commit and the finished micro-batches that a member brings to a new view."""

    committed: int = 0  # steps
    epoch: int = 0
    start: int = 0  # position in the epoch
    held: frozenset[int] = frozenset()  # micro-batches of the next step that it has computed
    stays: bool = False  # it was in the view before, so what it committed counts
    saved: int = -1  # the newest checkpoint it can read


@dataclass(frozen=True)
class Settlement:
    """The newest commit at which a view begins, the ranks that have it, and those that must be healed."""

    sources: tuple[int, ...]  # ranks that have the newest commit
    behind: tuple[int, ...]  # ranks that must be healed
    base: MemberSummary  # a source's


def settle(summaries: Sequence[MemberSummary]) -> Settlement:
    """The newest commit, who has it, and who must get it.

    What newcomers bring counts only where nobody stays: a member that was cut off may have gone astray. At the very
    start all have the same position but perhaps not the same weights: there the first rank is the source, as in DDP.
    """
    counted = [rank for rank, summary in enumerate(summaries) if summary.stays] or list(range(len(summaries)))

    def key(rank: int) -> tuple[int, int, int]:
        return summaries[rank].committed, summaries[rank].epoch, summaries[rank].start

    newest = max(map(key, counted))
    sources = [rank for rank in counted if key(rank) == newest]
    if not any(summary.stays for summary in summaries):
        sources = sources[:1]
    behind = [rank for rank in range(len(summaries)) if rank not in sources]
    return Settlement(tuple(sources), tuple(behind), summaries[sources[0]])


def deal(
    micros: int, weights: Sequence[float], held: Sequence[frozenset[int]] = ()
) -> tuple[tuple[int, ...], ...]:
    """Return the micro-batches of a step that each member still has to compute.

    With nothing held: runs of neighbours, as many to each as its weight says. Otherwise what nobody holds goes, piece
    by piece, to whoever has the least for its weight. A member without weight gets nothing.
    """
    able = [rank for rank, weight in enumerate(weights) if weight]
    if len(able) < len(weights):
        parts = deal(micros, [weights[rank] for rank in able], [held[rank] for rank in able] if held else ())
        shares = dict(zip(able, parts, strict=True))
        return tuple(shares.get(rank, ()) for rank in range(len(weights)))
    if not any(held):
        return tuple(tuple(part) for part in _runs(micros, weights))
    taken: set[int] = set().union(*held)
    load = [float(len(own)) for own in held]
    todo: list[list[int]] = [[] for _ in weights]
    for micro in sorted(set(range(micros)) - taken):
        rank = min(range(len(weights)), key=lambda rank: ((load[rank] + 1) / weights[rank], rank))
        todo[rank].append(micro)
        load[rank] += 1
    return tuple(map(tuple, todo))


def _runs(micros: int, weights: Sequence[float]) -> list[range]:
    """Cut 0 to micros - 1 in runs by weight; each gets one before any gets what its weight leaves of a piece."""
    total = sum(weights)
    exact = [micros * weight / total for weight in weights]
    counts = [int(part) for part in exact]
    if micros >= len(weights):
        counts = [max(1, count) for count in counts]
    while sum(counts) > micros:
        spare = [rank for rank in range(len(counts)) if counts[rank] > 1]
        counts[max(spare, key=lambda rank: (counts[rank] - exact[rank], rank))] -= 1
    # Rounded up where most is missing, the first ones first.
    for rank in sorted(range(len(counts)), key=lambda rank: (counts[rank] - exact[rank], rank)):
        if sum(counts) == micros:
            break
        counts[rank] += 1
    runs, start = [], 0
    for count in counts:
        runs.append(range(start, start + count))
        start += count
    return runs
