"""The choice of running jobs that give way to an urgent one: elastic jobs by shrinking, others by pausing.

A job may ask jobs of lower priority. Among jobs of equal priority, only elastic ones shrink, and only for a user who
has clearly less of the cluster than theirs. The lowest priority gives way first, then the user with the largest share,
then the youngest job. No job shrinks below its minimum, and only workers that are in the way go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.jobs.scheduler.capacity import ROUNDING, FreeCapacity, vector
from weft.jobs.scheduler.model import Allocation, Demand, JobRequest, Pause, Placed, Policy, Shrink, merged
from weft.jobs.scheduler.placement import place_in

Share = Callable[[str], float]  # a user's part of the cluster, 0 to 1


@dataclass(frozen=True)
class Room:
    """Room made for one job: where it will run, who shrinks, who pauses."""

    allocation: Allocation
    shrinks: tuple[Shrink, ...]
    pauses: tuple[Pause, ...]


@dataclass(frozen=True)
class Offer:
    """One running job and the workers it could do without; all of them if it would pause."""

    holder: Placed
    workers: Allocation
    pause: bool = False


class GivingWay:
    """The running jobs of one decision, in the order in which they give way."""

    def __init__(self, placed: Mapping[int, Placed], policy: Policy, now_s: float, share: Share) -> None:
        self._policy, self._now_s, self._share = policy, now_s, share
        self._shares = {user: share(user) for user in {p.request.user for p in placed.values()}}
        self._groups: dict[int, list[Placed]] = {}  # by priority; each is put in order when it is asked for
        for holder in placed.values():
            if holder.workers and (holder.request.preemptible or holder.request.elastic):
                self._groups.setdefault(holder.request.priority, []).append(holder)
        self._ordered: set[int] = set()
        self._rich: dict[int, list[Placed]] = {}
        self._refused: dict[
            tuple[Demand, str], tuple[int, int]
        ] = {}  # fewest workers and priority without room

    def _group(self, priority: int) -> list[Placed]:
        """Return the jobs of one priority: largest share of their users first, then the youngest."""
        group = self._groups.get(priority, [])
        if priority not in self._ordered:
            self._ordered.add(priority)
            group.sort(key=self._order)
        return group

    def _rich_group(self, priority: int) -> list[Placed]:
        """Return the jobs of one priority that can shrink for others of it: those of users who have a large share."""
        if priority not in self._rich:
            rich = {user for user, share in self._shares.items() if share >= self._policy.share_margin}
            group = [p for p in self._groups.get(priority, ()) if p.request.user in rich and _surplus(p)]
            group.sort(key=self._order)
            self._rich[priority] = group
        return self._rich[priority]

    def _order(self, holder: Placed) -> tuple[float, float, int]:
        return -self._shares[holder.request.user], -holder.started_s, holder.request.id

    def make_room(self, job: JobRequest, soon: FreeCapacity, placed: Mapping[int, Placed]) -> Room | None:
        """Return the least disturbing way to free enough hosts for a job, or None if there is none.

        `placed` has the jobs as they are now: those that gave way earlier in this decision have less to give.
        """
        if not self._groups or min(self._groups) > job.priority:
            return None
        key = job.demand, job.user
        workers, priority = self._refused.get(key, (0, -1))
        if workers and job.min_workers >= workers and job.priority <= priority:
            return None
        room = self._make_room(job, soon, placed)
        if room is None:
            self._refused[key] = job.min_workers, job.priority
        return room

    def _make_room(self, job: JobRequest, soon: FreeCapacity, placed: Mapping[int, Placed]) -> Room | None:
        lower = [
            placed[holder.request.id]
            for priority in sorted(self._groups)
            if priority < job.priority
            for holder in self._group(priority)
        ]
        shrinks = (
            [_shrink_offer(holder) for holder in lower if _surplus(holder)] if self._policy.shrink else []
        )
        moved = soon.table.share(job.demand, job.min_workers)
        shrinks += [_shrink_offer(holder) for holder in self._richer(job, moved, placed)]
        room = _enough(job, soon, shrinks)
        if room is None:
            pauses = [
                Offer(holder, holder.staying, pause=True)
                for holder in lower
                if holder.request.preemptible and holder.workers
            ]
            room = _enough(job, soon, pauses, shrinks)
        return room

    def _richer(self, job: JobRequest, moved: float, placed: Mapping[int, Placed]) -> Iterator[Placed]:
        """Yield jobs of equal priority that can shrink and whose users would still have more than the job's user."""
        if not self._policy.shrink:
            return
        bound = self._share(job.user) + 2 * moved + self._policy.share_margin
        for holder in self._rich_group(job.priority):
            if self._shares[holder.request.user] < bound:
                return
            current = placed[holder.request.id]
            settled = self._now_s - holder.moved_s >= self._policy.settle_s
            if settled and holder.request.user != job.user and _surplus(current):
                yield current


def _surplus(holder: Placed) -> int:
    return max(0, holder.workers - holder.request.min_workers)


def _shrink_offer(holder: Placed) -> Offer:
    return Offer(holder, loosest(holder.staying, _surplus(holder)))


def loosest(staying: Allocation, surplus: int) -> Allocation:
    """Return the workers a job would do without: those on hosts with few of its workers, so that it stays compact."""
    gone = []
    for host, count in sorted(staying, key=lambda pair: (pair[1], pair[0])):
        take = min(count, surplus)
        if take:
            gone.append((host, take))
        surplus -= take
    return tuple(sorted(gone))


def _enough(
    job: JobRequest, soon: FreeCapacity, offers: Sequence[Offer], before: Sequence[Offer] = ()
) -> Room | None:
    """Return room made from the first offers that suffice; those in `before` count from the start."""
    potential = soon.copy()
    given = {}
    for offer in before:
        potential.give(offer.holder.request.demand, offer.workers)
        given[offer.holder.request.id] = offer.workers
    for index, offer in enumerate(offers):
        request = offer.holder.request
        potential.give(request.demand, merged(offer.workers, given.get(request.id, ()), -1))
        slots = potential.slots(job.demand)
        if int(slots.sum()) >= job.min_workers:
            found = place_in(potential.table, slots, job.min_workers)
            if found is not None:
                return _choose(job, soon, found, (*before, *offers[: index + 1]))
    return None


def _choose(
    job: JobRequest, soon: FreeCapacity, allocation: Allocation, offers: Sequence[Offer]
) -> Room | None:
    """Return the workers that must go for an allocation: host by host, until what is missing there is freed."""
    removed: dict[int, dict[str, int]] = {}
    paused: set[int] = set()
    left = soon.copy()
    left.take(job.demand, allocation)
    for host, _ in allocation:
        column = left.free[:, left.table.number[host]]
        for offer in offers:
            if not (column < -ROUNDING).any():
                break
            _free_some(offer, host, left, removed, paused)
        if (column < -ROUNDING).any():
            return None
    holders = {offer.holder.request.id: offer.holder for offer in offers}
    return Room(
        allocation,
        tuple(
            Shrink(victim, tuple(sorted(counts.items())), job.id)
            for victim, counts in removed.items()
            if victim not in paused
        ),
        tuple(Pause(victim, job.id) for victim in holders if victim in paused),
    )


def _free_some(
    offer: Offer, host: str, left: FreeCapacity, removed: dict[int, dict[str, int]], paused: set[int]
) -> None:
    """Take workers of one offer from a host, as few as fill what is missing there."""
    victim, demand = offer.holder.request.id, offer.holder.request.demand
    here = dict(offer.workers).get(host, 0)
    if not here or victim in paused:
        return
    if offer.pause:
        paused.add(victim)
        gone = removed.pop(victim, {})
        left.give(demand, merged(offer.workers, tuple(gone.items()), -1))
        return
    column = left.free[:, left.table.number[host]]
    needs = [
        (lack, need) for lack, need in zip(-column, vector(demand.per_worker), strict=True) if lack > ROUNDING
    ]
    wanted = max((int(-(-lack // need)) if need > 0 else here for lack, need in needs), default=0)
    if any(need > 0 for _, need in needs):
        count = min(here, wanted)
        removed.setdefault(victim, {})[host] = count
        left.give(demand, ((host, count),))


def with_room(placed: Mapping[int, Placed], room: Room) -> dict[int, Placed]:
    """Return the placed jobs as they are once those that give way have been told."""
    after = dict(placed)
    for shrink in room.shrinks:
        holder = after[shrink.job]
        after[shrink.job] = replace(holder, leaving=merged(holder.leaving, shrink.removed))
    for pause in room.pauses:
        after[pause.job] = replace(after[pause.job], pausing=True)
    return after


def leaving_of(holder: Placed) -> Allocation:
    """Return the workers of a job that hold resources but were told to go."""
    return holder.allocation if holder.pausing else holder.leaving
