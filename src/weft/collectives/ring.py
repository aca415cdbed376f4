"""Mode `ring`: every peer passes on to its right what comes from its left, over TCP.

Nothing waits for a step to end: as soon as a block has come in and is added, it may go out. So the card sends and
receives all the time, and a reduction of S bytes among H hosts takes 2 (H - 1) / H S / rate, plus one block's way.

Small tensors take the direct way instead: everyone sends to everyone, in one hop, and adds up in the peers' order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from weft.collectives.mesh import Mesh, Waiter, bytes_of
from weft.collectives.mode import Bounds, even_bounds
from weft.collectives.reduction import Reduction
from weft.errors import PeerError

DIRECT_BYTES = 1 << 15
BLOCK_BYTES = 1 << 17


@dataclass
class Step:
    """One segment on its way: in from the left, where it may be added to ours, and out to the right."""

    segment: Tensor
    reduction: Reduction | None = None  # None: it replaces ours
    memory: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self.memory = bytes_of(self.segment)


class Ring:
    """Collectives over a mesh of connections."""

    def __init__(self, mesh: Mesh) -> None:
        self.index, self.size = mesh.index, mesh.size
        self._mesh = mesh
        self._left = (self.index - 1) % self.size
        self._right = (self.index + 1) % self.size
        self._waiter = Waiter(mesh, self._left, self._right)
        self._scratch = torch.empty(BLOCK_BYTES, dtype=torch.uint8)
        self._landing: dict[int, Tensor] = {}  # where small tensors of the others arrive

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        if values.nbytes <= DIRECT_BYTES:
            self._direct(values, reduction)
            return
        bounds = even_bounds(values.numel(), self.size)
        scatter, gather = self._scatter(values, bounds, reduction), self._gather(values, bounds)
        # The last segment that comes in on the way up is the first to go out on the way down.
        self._stream(out=[*scatter[0], *gather[0]], into=[*scatter[1], *gather[1]])

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        out, into = self._scatter(values, bounds, reduction)
        self._stream(out, into)

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        out, into = self._gather(values, bounds)
        self._stream(out, into)

    def broadcast(self, values: Tensor, root: int) -> None:
        step = [Step(values)]
        if self.index == root:
            self._stream(out=step, into=[])
        else:
            # Out is gated by what came in, so the way on starts with an empty step.
            out = [] if self._right == root else [Step(values[:0]), *step]
            self._stream(out=out, into=step)

    def barrier(self) -> None:
        token = torch.zeros(1, dtype=torch.uint8)
        self._direct(token, Reduction("MAX"))

    def _scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> tuple[list[Step], list[Step]]:
        """Out and in of a reduce-scatter that leaves peer i with segment i."""
        segments = [values[first:last] for first, last in bounds]
        turns = range(self.size - 1)
        out = [Step(segments[(self.index - 1 - turn) % self.size]) for turn in turns]
        into = [Step(segments[(self.index - 2 - turn) % self.size], reduction) for turn in turns]
        return out, into

    def _gather(self, values: Tensor, bounds: Bounds) -> tuple[list[Step], list[Step]]:
        segments = [values[first:last] for first, last in bounds]
        turns = range(self.size - 1)
        out = [Step(segments[(self.index - turn) % self.size]) for turn in turns]
        into = [Step(segments[(self.index - 1 - turn) % self.size]) for turn in turns]
        return out, into

    # -- moving bytes -----------------------------------------------------------------------------

    def _stream(self, out: Sequence[Step], into: Sequence[Step]) -> None:
        """Send and receive all steps at once; what goes out in step k + 1 is what came in in step k."""
        came = [0] * len(into)  # bytes of each step that are in place and may go on
        receiving = self._receive(into, came)
        inward = next(receiving, None)  # runs until it would block
        turn = sent = 0
        while turn < len(out) or inward is not None:
            progress = False
            while turn < len(out):
                limit = len(out[turn].memory) if turn == 0 else min(len(out[turn].memory), came[turn - 1])
                if sent < limit:
                    count = self._send(out[turn].memory[sent:limit])
                    sent += count
                    progress = progress or count > 0
                    if count == 0:
                        break
                if sent < len(out[turn].memory):
                    if sent >= limit:
                        break  # wait for more to come in
                    continue
                turn, sent = turn + 1, 0
            if inward is not None:
                inward = next(receiving, None)
                progress = progress or inward is None or inward
            if not progress:
                writing = turn < len(out) and sent < (
                    len(out[turn].memory) if turn == 0 else min(len(out[turn].memory), came[turn - 1])
                )
                self._waiter.wait(reading=inward is not None, writing=writing)

    def _receive(self, into: Sequence[Step], came: list[int]) -> Iterator[bool]:
        """Take in all steps; yields whether anything came whenever there is no more for now."""
        connection = self._mesh.socket_of(self._left) if self.size > 1 else None
        assert connection is not None or not into
        progress = False
        for number, step in enumerate(into):
            total, position = len(step.memory), 0
            while position < total:
                if step.reduction is None:
                    target, want = step.memory, total
                else:
                    want = min(total, position + BLOCK_BYTES)
                    target, want = bytes_of(self._scratch), want - position
                begin = position if step.reduction is None else 0
                while begin < want:
                    try:
                        count = connection.recv_into(target[begin:want])  # type: ignore[union-attr]
                    except BlockingIOError:
                        yield progress
                        progress = False
                        continue
                    except OSError as error:
                        raise PeerError(self._mesh.describe(self._left, f"was lost: {error}")) from error
                    if count == 0:
                        raise PeerError(self._mesh.describe(self._left, "closed its connection"))
                    progress = True
                    begin += count
                    if step.reduction is None:
                        position = came[number] = begin
                if step.reduction is not None:
                    size = step.segment.element_size()
                    block = step.segment[position // size : (position + want) // size]
                    step.reduction.combine(self._scratch[:want].view(block.dtype), block, block)
                    position += want
                    came[number] = position
                    # Let the sender have a look: what was added may go on while more comes in.
                    yield True

    def _send(self, data: memoryview) -> int:
        try:
            return self._mesh.socket_of(self._right).send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerError(self._mesh.describe(self._right, f"was lost: {error}")) from error

    def _direct(self, values: Tensor, reduction: Reduction) -> None:
        """Everyone's values to everyone, in one hop."""
        mine = bytes_of(values)
        landing = self._landing.get(values.nbytes)
        if landing is None:
            landing = self._landing[values.nbytes] = torch.empty(self.size * values.nbytes, dtype=torch.uint8)
        others = [(self.index + offset) % self.size for offset in range(1, self.size)]
        for peer in others:
            self._transfer(peer, mine, sending=True)
        arrived = landing.view(self.size, values.nbytes)
        for peer in reversed(others):
            self._transfer(peer, bytes_of(arrived[peer]), sending=False)
        terms = [
            values if peer == self.index else arrived[peer].view(values.dtype) for peer in range(self.size)
        ]
        total = terms[0].clone() if self.index else values
        if self.index == 0:
            for term in terms[1:]:
                reduction.combine(values, term, values)
        else:
            for term in terms[1:]:
                reduction.combine(total, term, total)
            values.copy_(total)

    def _transfer(self, peer: int, data: memoryview, *, sending: bool) -> None:
        """Send or receive a small message whole; it fits the sockets' buffers, so nobody waits for ever."""
        connection = self._mesh.socket_of(peer)
        connection.settimeout(self._mesh.timeout_s)
        try:
            if sending:
                connection.sendall(data)
                return
            position = 0
            while position < len(data):
                count = connection.recv_into(data[position:])
                if count == 0:
                    raise PeerError(self._mesh.describe(peer, "closed its connection"))
                position += count
        except TimeoutError as error:
            raise PeerError(
                self._mesh.describe(peer, f"let nothing through for {self._mesh.timeout_s:g} s")
            ) from error
        except OSError as error:
            raise PeerError(self._mesh.describe(peer, f"was lost: {error}")) from error
        finally:
            connection.setblocking(False)

    def close(self) -> None:
        self._mesh.close()
