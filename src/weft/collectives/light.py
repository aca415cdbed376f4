"""A mode whose large float32 sums travel in a lighter form: bf16, fp16 or int8.

It is meant for the slow dimension, between hosts; whatever is small, is of another type, or is not a sum goes through
unchanged. All peers get the same bits, as with any mode.

What a host sends for a slice of S bytes of float32, against 2 (H - 1) / H S of a plain ring:

    bf16, fp16     converted once, reduced by the ring in that type                         1/2    for any H
    int8           each part to its owner, the sums of the owners to all, both encoded      0.254  for any H

To gather everyone's encoded slice and add it all up would cost 0.254 H / 2 for int8: 0.254 for two hosts, 0.51 for
four, 1.02 for eight. The price of the way by the owners is a second rounding, of the sums; each has its own feedback.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise

import torch
from torch import Tensor

from weft.collectives.choices import WIRES
from weft.collectives.exchange import exchange
from weft.collectives.mesh import Mesh
from weft.collectives.mode import Background, Bounds, Pending, even_bounds
from weft.collectives.reduction import Reduction
from weft.collectives.wire import BLOCK, BlockInt8, Feedback, Memories
from weft.errors import MismatchError

LIGHT_BYTES = 1 << 15  # up to here the way counts, not the bytes

_SUMS = ("SUM", "AVG", "PREMUL_SUM")
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def light(mode: Background, mesh: Mesh, wire: str) -> Background:
    """The mode with this wire, once all peers have said that they want the same."""
    number = WIRES.index(wire)
    extremes = torch.tensor([number, -number], dtype=torch.int32)
    mode.all_reduce(extremes, Reduction("MAX"))
    highest, lowest = extremes[0].item(), -extremes[1].item()
    if highest != lowest:
        raise MismatchError(
            f"all ranks must use the same wire, got {WIRES[int(lowest)]} on one and {WIRES[int(highest)]} on another; "
            "give --wire to weft run, or the same wire= to weft.init() everywhere"
        )
    if wire == "fp32":
        return mode
    return Int8Wire(mode, mesh) if wire == "int8" else CastWire(mode, _DTYPES[wire])


def worthwhile(values: Tensor, reduction: Reduction) -> bool:
    """Whether these values take the light wire; all peers answer alike, since they reduce the same slice."""
    return values.dtype is torch.float32 and values.nbytes > LIGHT_BYTES and reduction.name in _SUMS


class LightWire:
    """A mode around another one; what is not reduced goes straight through."""

    def __init__(self, mode: Background) -> None:
        self.index, self.size = mode.index, mode.size
        self._mode = mode

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        self._mode.reduce_scatter(values, bounds, reduction)

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        self._mode.all_gather(values, bounds)

    def broadcast(self, values: Tensor, root: int) -> None:
        self._mode.broadcast(values, root)

    def barrier(self) -> None:
        self._mode.barrier()

    def close(self) -> None:
        self._mode.close()


class CastWire(LightWire):
    """Sums in bf16 or fp16."""

    def __init__(self, mode: Background, dtype: torch.dtype) -> None:
        super().__init__(mode)
        self._dtype = dtype

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        if not worthwhile(values, reduction):
            self._mode.all_reduce(values, reduction)
            return
        short = self._shortened(values)
        self._mode.all_reduce(short, reduction)
        self._restore(short, values)

    def start_all_reduce(self, values: Tensor, reduction: Reduction) -> Pending:
        if not worthwhile(values, reduction):
            return self._mode.start_all_reduce(values, reduction)
        short = self._shortened(values)
        return _Shortened(self, self._mode.start_all_reduce(short, reduction), short, values)

    # fp16 ends at 65504: the values are made smaller first, so that a sum goes no further than its terms.

    def _shortened(self, values: Tensor) -> Tensor:
        return (values / self.size if self._dtype is torch.float16 else values).to(self._dtype)

    def _restore(self, short: Tensor, values: Tensor) -> None:
        values.copy_(short)
        if self._dtype is torch.float16:
            values.mul_(self.size)


class _Shortened:
    """A reduction under way, whose values are still to be made long again."""

    def __init__(self, wire: CastWire, pending: Pending, short: Tensor, values: Tensor) -> None:
        self._wire, self._pending = wire, pending
        self._short, self._values = short, values

    def wait(self) -> None:
        self._pending.wait()
        self._wire._restore(self._short, self._values)


class Int8Wire(LightWire):
    """Sums in blocks of int8, with feedback of what was lost for tensors whose memory lives on from call to call."""

    def __init__(self, mode: Background, mesh: Mesh) -> None:
        super().__init__(mode)
        self._mesh = mesh
        self._codec = BlockInt8()
        self._memories = Memories(Feedback(self._codec))
        self._thread: ThreadPoolExecutor | None = None

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        if not worthwhile(values, reduction):
            self._mode.all_reduce(values, reduction)
            return
        bounds = [
            (first * BLOCK, min(last * BLOCK, values.numel()))
            for first, last in even_bounds(-(-values.numel() // BLOCK), self.size)
        ]
        parts = [values[first : max(first, last)] for first, last in bounds]
        total = self._sum_of(values, parts)
        self._spread(parts, self._memories.encode(values, "sum", total))

    def start_all_reduce(self, values: Tensor, reduction: Reduction) -> Pending:
        # All on one thread, also what is too small for the light wire: they share connections.
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="weft-int8")
        return _Submitted(self._thread.submit(self.all_reduce, values, reduction))

    def close(self) -> None:
        super().close()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _sum_of(self, values: Tensor, parts: list[Tensor]) -> Tensor:
        """The sum of our part, in the peers' order; our own term has not been rounded."""
        others = [peer for peer in range(self.size) if peer != self.index]
        mine = parts[self.index]
        size = self._codec.encoded_bytes(mine.numel())
        out = {peer: self._memories.encode(values, peer, parts[peer]) for peer in others}
        into = {peer: torch.empty(size, dtype=torch.uint8) for peer in others}
        exchange(self._mesh, out, into)
        total, term = torch.zeros_like(mine), torch.empty_like(mine)
        for peer in range(self.size):
            if peer == self.index:
                total.add_(mine)
            else:
                self._codec.decode(into[peer], term)
                total.add_(term)
        return total

    def _spread(self, parts: list[Tensor], encoded: Tensor) -> None:
        """Everyone's sum to everyone; ours too is taken from its encoded form, since the others have no better."""
        sizes = [self._codec.encoded_bytes(part.numel()) for part in parts]
        ends = [sum(sizes[:count]) for count in range(len(sizes) + 1)]
        gathered = torch.empty(ends[-1], dtype=torch.uint8)
        bounds = list(pairwise(ends))
        gathered[slice(*bounds[self.index])] = encoded
        self._mode.all_gather(gathered, bounds)
        for part, (first, last) in zip(parts, bounds, strict=True):
            # A copy where its place is not that of a float: the scales are read as such.
            self._codec.decode(gathered[first:last].clone() if first % 4 else gathered[first:last], part)


class _Submitted:
    """A reduction another thread works on."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def wait(self) -> None:
        self._future.result()
