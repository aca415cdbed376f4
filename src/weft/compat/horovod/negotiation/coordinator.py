"""The coordinator: a state machine that hears which rank is ready for what, and decides what all carry out next.

Operations are matched by name within a process set, in whatever order ranks come to them. What all members of a set are
ready for is decided at once, in the order in which it became complete; each rank is sent the same decisions in the same
order, so nobody waits for somebody who does something else. Requests that do not fit together become an error for all
members, and nothing else is touched.

A request that was agreed on has a number, by which it travels from then on. The coordinator keeps `capacity` of them
and forgets those that were not used for longest; a rank that still uses a forgotten number is asked for the request.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from weft.compat.horovod.negotiation.batches import CoordinatorBatches
from weft.compat.horovod.negotiation.checks import mismatch, refused_with_join
from weft.compat.horovod.negotiation.fusion import DecidedOp, fuse, fusion_key
from weft.compat.horovod.negotiation.messages import (
    GLOBAL_SET,
    AgreedBatch,
    AgreedOp,
    AgreedOps,
    Execution,
    OpKind,
    OpRequest,
    ReadyOps,
    SendAgain,
    ToRank,
)

Letter = tuple[int, ToRank]  # to a rank


@dataclass(slots=True)
class PendingOp:
    """An operation that some ranks are ready for."""

    since: float  # when the first rank became ready, in seconds of any clock
    requests: dict[int, OpRequest] = field(default_factory=dict)  # by rank
    number: int = -1  # by which every rank so far has named it; -1: they have not
    alike: bool = True  # no two requests are different objects
    warned: bool = False


@dataclass(slots=True)
class NumberedOp:
    """A request that has a number."""

    request: OpRequest
    decided: DecidedOp  # what is decided when all ranks name it by its number


class Coordinator:
    """The state of the negotiation; `receive` takes what ranks say, `decide` returns what they are to be told."""

    def __init__(self, size: int, *, capacity: int = 1024, fusion_bytes: int = 128 << 20) -> None:
        self.size = size
        self.sets: dict[int, tuple[int, ...]] = {GLOBAL_SET: tuple(range(size))}
        self._capacity, self._fusion_bytes = capacity, fusion_bytes
        self._pending: dict[tuple[int, str], PendingOp] = {}
        self._complete: list[
            tuple[int, str]
        ] = []  # keys of `_pending`, in the order in which they became complete
        self._joined: list[int] = []  # ranks, in the order in which they joined
        self._numbered: OrderedDict[int, NumberedOp] = OrderedDict()  # least recently used first
        self._numbers: dict[tuple[int, str], int] = {}
        self._next_number = 0
        self._next_set = 1
        self._again: list[tuple[int, int]] = []  # rank and number
        self._forgotten: list[int] = []
        self._batches = CoordinatorBatches()
        self._complete_batches: list[int] = []
        self._used_batches: dict[int, None] = {}  # since a single number was used: the last one is used last

    # -- what ranks say -----------------------------------------------------------------------------

    def receive(self, rank: int, ready: ReadyOps, now: float = 0.0) -> None:
        """Note what a rank has become ready for."""
        if ready.batch >= 0:
            self._receive_batch(rank, ready.batch, now)
        if self._batches and (ready.numbers or ready.requests):
            self._spell_out(ready)
        for number in ready.numbers:
            self._receive_number(rank, number, now)
        for request in ready.requests:
            if request.kind == OpKind.JOIN:
                self._join(rank)
            else:
                self._note(rank, request, -1, now)

    def _receive_number(self, rank: int, number: int, now: float) -> None:
        known = self._numbered.get(number)
        if known is None:
            self._again.append((rank, number))
        else:
            self._use(number)
            self._note(rank, known.request, number, now)

    def _use(self, number: int) -> None:
        """Note that a number was used just now."""
        self._use_batches()
        self._numbered.move_to_end(number)

    def _use_batches(self) -> None:
        """Note the use of the numbers of batches, which is put off until it makes a difference."""
        if self._used_batches:
            for batch in self._used_batches:
                for number in filter(self._numbered.__contains__, self._batches.members(batch)):
                    self._numbered.move_to_end(number)
            self._used_batches.clear()

    def _receive_batch(self, rank: int, batch: int, now: float) -> None:
        """Note that a rank is ready for a batch; where others speak of its requests otherwise, spell it out."""
        members = self._batches.members(batch)
        spoken_of = self._pending and any(self._key(number) in self._pending for number in members)
        if self._joined or spoken_of or not self._batches.may_wait(batch):
            self._expand(self._batches.touching(members))
            for number in members:
                self._receive_number(rank, number, now)
        elif self._batches.wait(rank, batch, now) == self.size:
            self._batches.done(batch)
            self._complete_batches.append(batch)
            self._used_batches.pop(batch, None)
            self._used_batches[batch] = None

    def _key(self, number: int) -> tuple[int, str] | None:
        known = self._numbered.get(number)
        return (known.request.set_id, known.request.name) if known is not None else None

    def _spell_out(self, ready: ReadyOps) -> None:
        """Spell out the waiting batches with one of these operations, and all if a rank joins."""
        if any(request.kind == OpKind.JOIN for request in ready.requests):
            self._expand(self._batches.waiting_since(math.inf))
            return
        keys = [(request.set_id, request.name) for request in ready.requests]
        self._expand(self._batches.touching([*ready.numbers, *(self._numbers.get(key, -1) for key in keys)]))

    def _expand(self, taken: Iterable[tuple[int, list[int], float]]) -> None:
        for batch, ranks, since in taken:
            for rank in ranks:
                for number in self._batches.members(batch):
                    self._receive_number(rank, number, since)

    def spelled_out(self, ready: ReadyOps) -> ReadyOps:
        """Return a message without a batch."""
        return ready if ready.batch < 0 else ReadyOps(self._batches.members(ready.batch))

    def _note(self, rank: int, request: OpRequest, number: int, now: float) -> None:
        key = request.set_id, request.name
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = PendingOp(now, number=number)
        elif pending.number != number:
            pending.number, pending.alike = -1, False
        elif number < 0:
            pending.alike = False
        pending.requests[rank] = request
        here, wanted = len(pending.requests), len(self._members(request.set_id))
        if here == wanted:
            self._complete.append(key)
        elif self._joined and here + len(self._joined) >= wanted:
            self._complete_if(key, pending)

    def _complete_if(self, key: tuple[int, str], pending: PendingOp) -> None:
        members = self._members(key[0])
        if all(rank in pending.requests or rank in self._joined for rank in members):
            self._complete.append(key)

    def _members(self, set_id: int) -> tuple[int, ...]:
        return self.sets.get(set_id, ())

    def _join(self, rank: int) -> None:
        """Note that a rank has nothing more to reduce: it is ready for every reduction from now on."""
        if rank not in self._joined:
            self._joined.append(rank)
        done = set(self._complete)
        for key, pending in self._pending.items():
            if key not in done:
                self._complete_if(key, pending)

    # -- what they are told -------------------------------------------------------------------------

    def decide(self) -> list[Letter]:
        """Return what ranks are to be told now, in the order in which each is to hear it."""
        letters: list[Letter] = []
        if self._again:
            for rank in sorted({rank for rank, _ in self._again}):
                letters.append((rank, SendAgain(tuple(number for to, number in self._again if to == rank))))
            self._again = []
        batches, self._complete_batches = self._complete_batches, []
        for told in map(AgreedBatch, batches):
            letters += [(rank, told) for rank in range(self.size)]
        members = dict(self.sets)  # before a set is removed by what is decided now
        by_set: dict[int, list[DecidedOp]] = {}
        for key in self._complete:
            by_set.setdefault(key[0], []).append(self._agree(key, self._pending.pop(key)))
        self._complete = []
        executions = [each for decided in by_set.values() for each in fuse(decided, self._fusion_bytes)]
        if len(self._joined) == self.size:
            last = AgreedOp("join", value=self._joined[-1])
            executions.append(Execution(OpKind.JOIN, GLOBAL_SET, (last,)))
            self._joined = []
        if executions or self._forgotten:
            letters += self._letters(executions, members)
        return letters

    def _letters(
        self, executions: Sequence[Execution], members: Mapping[int, tuple[int, ...]]
    ) -> list[Letter]:
        forgotten, self._forgotten = tuple(self._forgotten), []
        if all(each.set_id == GLOBAL_SET for each in executions):
            batch = self._batches.number(executions) if not forgotten and not self._joined else -1
            everyone = AgreedOps(tuple(executions), forgotten, batch)
            return [(rank, everyone) for rank in range(self.size)]
        letters: list[Letter] = []
        for rank in range(self.size):
            mine = tuple(each for each in executions if rank in members[each.set_id])
            if mine or forgotten:
                letters.append((rank, AgreedOps(mine, forgotten)))
        return letters

    def _agree(self, key: tuple[int, str], pending: PendingOp) -> DecidedOp:
        """Return the operation that ranks have agreed on, or have failed to."""
        if pending.number >= 0 and pending.alike and not self._joined:  # nothing new about it
            return self._numbered[pending.number].decided
        request = next(iter(pending.requests.values()))
        joined = [rank for rank in self._members(key[0]) if rank not in pending.requests]
        error = mismatch(pending.requests) or (refused_with_join(request, joined) if joined else "")
        if error:
            return DecidedOp(request, AgreedOp(request.name, error=error), 0, None)
        agreed = AgreedOp(
            request.name,
            number=self._number(request) if request.may_repeat else -1,
            sizes=self._sizes(key[0], pending),
            request=request if joined else None,
            value=self._change_sets(request),
        )
        return DecidedOp(request, agreed, request.bytes, fusion_key(request))

    def _sizes(self, set_id: int, pending: PendingOp) -> tuple[tuple[int, ...], ...]:
        """Return what each member brings, where that may differ."""
        ordered = [pending.requests[rank] for rank in self._members(set_id) if rank in pending.requests]
        first = ordered[0]
        if first.kind == OpKind.ALLGATHER:
            return tuple(
                tuple(request.shapes[index][0] for request in ordered) for index in range(len(first.shapes))
            )
        return tuple(request.splits for request in ordered) if first.kind == OpKind.ALLTOALL else ()

    def _change_sets(self, request: OpRequest) -> int:
        """Carry out a change of the process sets; return the number of the set it is about."""
        if request.kind == OpKind.ADD_SET:
            number, self._next_set = self._next_set, self._next_set + 1
            self.sets[number] = request.splits
            return number
        if request.kind == OpKind.REMOVE_SET:
            self.sets.pop(request.root, None)
            return request.root
        return -1

    # -- numbers ------------------------------------------------------------------------------------

    def _number(self, request: OpRequest) -> int:
        """Return the number of a request, a new one if it has none; -1 if none are kept."""
        key = request.set_id, request.name
        number = self._numbers.get(key, -1)
        if number >= 0:
            if self._numbered[number].request == request:
                self._use(number)
                return number
            self._forget(number)
        if not self._capacity:
            return -1
        self._use_batches()
        if len(self._numbered) >= self._capacity:
            self._forget(next(iter(self._numbered)))
        number, self._next_number = self._next_number, self._next_number + 1
        self._numbers[key] = number
        decided = DecidedOp(request, number, request.bytes, fusion_key(request))
        self._numbered[number] = NumberedOp(request, decided)
        return number

    def _forget(self, number: int) -> None:
        """Forget a number. What is pending under it goes on: it has the request itself."""
        self._expand(self._batches.touching([number]))
        self._batches.forget(number)
        request = self._numbered.pop(number).request
        key = request.set_id, request.name
        if self._numbers.get(key) == number:
            del self._numbers[key]
        self._forgotten.append(number)
        for pending in self._pending.values():
            if pending.number == number:
                pending.number, pending.alike = -1, False

    def request_of(self, number: int) -> OpRequest | None:
        """Return the request that a number stands for; None if it was forgotten."""
        known = self._numbered.get(number)
        return known.request if known is not None else None

    # -- who is missing -----------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Return whether nobody waits for anybody."""
        return not self._pending and not self._joined and not self._batches

    def arrivals(self) -> Iterable[tuple[str, PendingOp]]:
        """Return the operations that are not complete, by name."""
        self._expand(self._batches.waiting_since(math.inf))
        return [(name, pending) for (_, name), pending in self._pending.items()]

    def oldest(self) -> float | None:
        """Return since when the longest-waiting operation waits."""
        first = min((pending.since for pending in self._pending.values()), default=None)
        batch = self._batches.oldest()
        return batch if first is None else first if batch is None else min(first, batch)

    def missing(self, now: float, after_s: float, *, again: bool = False) -> dict[int, list[str]]:
        """Return, by rank, the operations that others have waited for longer than this; each is named once."""
        self._expand(self._batches.waiting_since(now - after_s))
        found: dict[int, list[str]] = {}
        for (set_id, name), pending in self._pending.items():
            if now - pending.since < after_s or (pending.warned and not again):
                continue
            pending.warned = True
            for rank in self._members(set_id):
                if rank not in pending.requests and rank not in self._joined:
                    found.setdefault(rank, []).append(name)
        return found
