"""Mode `mpi`: messages by MPI, whatever network it was built for, and our own arithmetic.

MPI may add up in another order on each rank and in each run, and has neither bfloat16 nor truth values. So it only
moves bytes: each part of a tensor to its owner, who reduces in the order of the peers, and from there to everyone.

It moves them only while it is called, and wakes nobody up. So we ask again and again, ever more seldom.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.collectives.modes.messages import mpi_world
from weft.collectives.modes.messages.passage import Passage, PassageMover, Steps, Waits
from weft.collectives.modes.mode import Bounds, even_bounds
from weft.collectives.modes.peers import DimensionPeers, did_not_come
from weft.collectives.reduction import Reduction
from weft.collectives.settings import LauncherFacts
from weft.errors import PeerError

SMALL_BYTES = 1 << 15  # up to here everyone sends everything to everyone: one hop instead of two
PART_BYTES = 1 << 18  # one message: several must fit on the wire at once
PART_BYTES_HERE = 1 << 20  # between processes of one host, where a message is one copy
BLOCK_BYTES = 1 << 18  # reduced at once, in the second-level cache
_TAGS = 16000  # for what is under way, two each


class Mpi:
    """Collectives by messages in a communicator of the peers' own."""

    name = "mpi"

    def __init__(
        self,
        mpi: Any,
        communicator: Any,
        *,
        timeout_s: float,
        part_bytes: int = PART_BYTES,
        describe: Callable[[int, str], str] = lambda peer, what: f"peer {peer} {what}",
        lives: Callable[[int], bool] = lambda peer: True,
    ) -> None:
        self.index, self.size = communicator.rank, communicator.size
        self._mpi, self._communicator = mpi, communicator
        self._timeout_s, self._part_bytes = timeout_s, part_bytes
        self._describe, self._lives = describe, lives
        # Whom we send to and whom we hear in each step: nobody is sent more at once than its card can take.
        self._pairs = [
            ((self.index + offset) % self.size, (self.index - offset) % self.size)
            for offset in range(1, self.size)
        ]
        self._others = [right for right, _ in self._pairs]
        self._tag = 0
        self._scratch: list[Tensor] = []  # to be used again: new memory costs as much as filling it
        self._left: set[int] = set()  # who has said so
        self._closed = self._failed = False
        self._mover = PassageMover(
            mpi.Request.Testall,
            # Where every peer has a core, to ask again at once beats going to sleep.
            patience_s=2e-3 if self.size <= (os.cpu_count() or 1) else 5e-5,
            look=self._look,
            explain=self._explain,
            abandon=mpi_world.process.abandoned.extend,
        )
        mpi_world.process.open_modes.add(self)

    @classmethod
    def prepare(cls, store: Any, rank: int, size: int, facts: LauncherFacts) -> mpi_world.MpiWorld | str:
        """Find out together whether MPI can serve the ranks of a group, and why not."""
        return mpi_world.world_for(store, rank, size, facts.mpi)

    @classmethod
    def connect(cls, peers: DimensionPeers) -> Mpi:
        world: mpi_world.MpiWorld = peers.prepared
        one_host = len({member.host for member in peers.members}) == 1
        return cls(
            world.mpi,
            world.communicator(peers.ranks, peers.timeout_s),
            timeout_s=peers.timeout_s,
            part_bytes=PART_BYTES_HERE if one_host else PART_BYTES,
            describe=peers.describe,
            lives=peers.lives,
        )

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        self._mover.run(self._all_reduce(values, reduction))

    def start_all_reduce(self, values: Tensor, reduction: Reduction) -> Passage:
        """Begin, and go on in the background; nothing else may be called before all have ended."""
        return self._mover.post(self._all_reduce(values, reduction))

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        self._mover.run(
            [self._reduce(values, cut, reduction, self._next_tag()) for cut in self._cuts(values, bounds)]
        )

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        self._mover.run([self._gather(values, cut, self._next_tag()) for cut in self._cuts(values, bounds)])

    def broadcast(self, values: Tensor, root: int) -> None:
        if values.nbytes <= SMALL_BYTES:
            self._mover.run([self._star(values, root, self._next_tag())])
            return
        cuts = self._cuts(values, even_bounds(values.numel(), self.size))
        self._mover.run([self._spread(values, cut, root, self._next_tag()) for cut in cuts])

    def barrier(self) -> None:
        self.all_reduce(torch.zeros(1, dtype=torch.uint8), Reduction("MAX"))

    def close(self) -> None:
        """Tell those who may wait for us, and let go."""
        if self._closed or self._mpi.Is_finalized():
            return
        self._closed = True
        self._mover.close()
        with contextlib.suppress(self._mpi.Exception):
            mpi_world.process.part(
                self._communicator, self._left, whole=not self._failed and not self._mover.busy
            )

    # -- the steps of each ------------------------------------------------------------------------

    def _all_reduce(self, values: Tensor, reduction: Reduction) -> list[Steps]:
        if values.nbytes <= SMALL_BYTES:
            return [self._direct(values, reduction, self._next_tag())]
        bounds = even_bounds(values.numel(), self.size)
        return [self._both(values, cut, reduction, self._next_tag()) for cut in self._cuts(values, bounds)]

    def _both(self, values: Tensor, bounds: Bounds, reduction: Reduction, tag: int) -> Steps:
        yield from self._reduce(values, bounds, reduction, tag)
        yield from self._gather(values, bounds, tag + 1)

    def _direct(self, values: Tensor, reduction: Reduction, tag: int) -> Steps:
        """Send the values of every peer to every other; all combine them in the same order."""
        with _Borrowed(self._scratch, self.size * SMALL_BYTES) as scratch:
            terms = [scratch[peer * SMALL_BYTES :][: values.nbytes] for peer in range(self.size)]
            yield self._swap(
                tag, dict.fromkeys(self._others, values), {peer: terms[peer] for peer in self._others}
            )
            terms[self.index].copy_(values.view(torch.uint8))
            _combine([term.view(values.dtype) for term in terms], reduction, values)

    def _reduce(self, values: Tensor, bounds: Bounds, reduction: Reduction, tag: int) -> Steps:
        """Send each part to the peer that owns and reduces it."""
        mine, room = _part(values, bounds, self.index), self._part_bytes
        with _Borrowed(self._scratch, self.size * room) as scratch:
            terms = [scratch[peer * room :][: mine.nbytes].view(values.dtype) for peer in range(self.size)]
            for right, left in self._pairs:
                yield self._swap(tag, {right: _part(values, bounds, right)}, {left: terms[left]})
            # Ours may be overwritten only once it has been read: that is in the first step for peers 0 and 1.
            target = mine if self.index < 2 else terms[self.index]
            terms[self.index] = mine
            step = BLOCK_BYTES // values.element_size()
            for first in range(0, mine.numel(), step):
                block = slice(first, first + step)
                _combine([term[block] for term in terms], reduction, target[block])
            if target is not mine:
                mine.copy_(target)

    def _gather(self, values: Tensor, bounds: Bounds, tag: int, known_by: int | None = None) -> Steps:
        """Receive each part from its owner; `known_by`: who has them all."""
        mine = _part(values, bounds, self.index)
        for right, left in self._pairs:
            out = {} if right == known_by else {right: mine}
            into = {} if self.index == known_by else {left: _part(values, bounds, left)}
            yield self._swap(tag, out, into)

    def _spread(self, values: Tensor, bounds: Bounds, root: int, tag: int) -> Steps:
        """Send a part of the root's values to each peer, and from there to all."""
        if self.index == root:
            yield self._swap(tag, {peer: _part(values, bounds, peer) for peer in self._others}, {})
        else:
            yield self._swap(tag, {}, {root: _part(values, bounds, self.index)})
        yield from self._gather(values, bounds, tag + 1, known_by=root)

    def _star(self, values: Tensor, root: int, tag: int) -> Steps:
        out = dict.fromkeys(self._others, values) if self.index == root else {}
        yield self._swap(tag, out, {} if self.index == root else {root: values})

    def _cuts(self, values: Tensor, bounds: Bounds) -> Sequence[Bounds]:
        """Cut the parts into pieces of one message each."""
        step = self._part_bytes // values.element_size()
        longest = max(last - first for first, last in bounds)
        return [
            [(min(first + begin, last), min(first + begin + step, last)) for first, last in bounds]
            for begin in range(0, longest, step)
        ]

    def _next_tag(self) -> int:
        self._tag = (self._tag + 1) % _TAGS  # the same on all peers, since they make the same calls
        return 2 * self._tag

    def _swap(self, tag: int, out: Mapping[int, Tensor], into: Mapping[int, Tensor]) -> Waits:
        """Send and receive, without waiting."""
        receive, send = self._communicator.Irecv, self._communicator.Isend
        waits = [(peer, receive(self._bytes(part), peer, tag)) for peer, part in into.items() if part.numel()]
        return waits + [
            (peer, send(self._bytes(part), peer, tag)) for peer, part in out.items() if part.numel()
        ]

    def _bytes(self, part: Tensor) -> list[Any]:
        return [self._mpi.memory.fromaddress(part.data_ptr(), part.nbytes), self._mpi.BYTE]

    # -- waiting ----------------------------------------------------------------------------------

    def _look(self, idle_s: float, missing: Sequence[int]) -> None:
        """Raise if it is in vain to wait any longer for these peers."""
        for peer in missing:
            if not self._lives(peer):
                raise self._lost([peer], "died")
        self._hear()
        if self._closed:
            raise PeerError(self._describe(self._others[0], "was given up"))  # by another thread of ours
        if missing and idle_s >= self._timeout_s:
            raise self._lost(missing, did_not_come(self._timeout_s))

    def _hear(self) -> None:
        """Raise if a peer has said that it leaves."""
        self._left |= mpi_world.who_left(self._communicator, set(self._others) - self._left)
        if self._left:
            raise PeerError(self._describe(min(self._left), "gave up"))

    def _explain(self, error: BaseException) -> BaseException:
        self._failed = True
        if isinstance(error, self._mpi.Exception):
            return self._lost(self._others, f"may be lost: {error}")
        return error

    def _lost(self, peers: Sequence[int], what: str) -> PeerError:
        mpi_world.process.broken.set()
        return PeerError("; ".join(self._describe(peer, what) for peer in peers))


class _Borrowed:
    """Scratch memory, given back for others when it is no longer needed."""

    def __init__(self, pool: list[Tensor], nbytes: int) -> None:
        self._pool, self._nbytes = pool, nbytes

    def __enter__(self) -> Tensor:
        places = [place for place, tensor in enumerate(self._pool) if tensor.numel() >= self._nbytes]
        self._taken = self._pool.pop(places[0]) if places else torch.empty(self._nbytes, dtype=torch.uint8)
        return self._taken

    def __exit__(self, *_: object) -> None:
        self._pool.append(self._taken)


def _part(values: Tensor, bounds: Bounds, peer: int) -> Tensor:
    first, last = bounds[peer]
    return values[first:last]


def _combine(terms: Sequence[Tensor], reduction: Reduction, into: Tensor) -> None:
    """In the order of the peers, so that every rank and every run gets the same bits."""
    if len(terms) == 1:
        return
    reduction.combine(terms[0], terms[1], into)
    for term in terms[2:]:
        reduction.combine(into, term, into)
