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

from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from weft.collectives.choices import WIRES
from weft.collectives.modes.mode import Background, Bounds, Pending, streams
from weft.collectives.modes.serial_thread import BackgroundCall, SerialThread
from weft.collectives.modes.tcp.exchange import exchange
from weft.collectives.modes.tcp.mesh import Mesh
from weft.collectives.modes.wires.int8_exchange import block_parts, decode_into, sum_of_terms
from weft.collectives.modes.wires.wire import BlockInt8, Cast, Feedback, Memories, TensorHomes
from weft.collectives.reduction import Reduction
from weft.errors import MismatchError

LIGHT_BYTES = 1 << 15  # up to here the way counts, not the bytes

_SUMS = ("SUM", "AVG", "PREMUL_SUM")
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def refuse_wires(one: str, another: str) -> NoReturn:
    raise MismatchError(
        f"all ranks must use the same wire, got {one} on one and {another} on another; "
        "give --wire to weft run, or the same wire= to weft.init() everywhere"
    )


def light(mode: Background, mesh: Mesh | None, wire: str, homes: TensorHomes | None = None) -> Background:
    """The mode with this wire, once all peers have said that they want the same; int8 needs their mesh."""
    number = WIRES.index(wire)
    extremes = torch.tensor([number, -number], dtype=torch.int32)
    mode.all_reduce(extremes, Reduction("MAX"))
    highest, lowest = extremes[0].item(), -extremes[1].item()
    if highest != lowest:
        refuse_wires(WIRES[int(lowest)], WIRES[int(highest)])
    if wire == "fp32":
        return mode
    if wire == "int8":
        assert mesh is not None
        return Int8Wire(mode, mesh, homes)
    return CastWire(mode, _DTYPES[wire])


def worthwhile(values: Tensor, reduction: Reduction) -> bool:
    """Return whether these values take the light wire; all peers answer alike, since they reduce the same slice."""
    return values.dtype is torch.float32 and values.nbytes > LIGHT_BYTES and reduction.name in _SUMS


class LightWire:
    """A mode around another one; what is not reduced goes straight through."""

    name = "ring"

    def __init__(self, mode: Background) -> None:
        self.index, self.size = mode.index, mode.size
        self._mode = mode

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        self._mode.reduce_scatter(values, bounds, reduction)

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        self._mode.all_gather(values, bounds)

    def __getattr__(self, name: str) -> Any:
        if name == "start_all_gather":  # where the mode inside has it
            return getattr(self._mode, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def broadcast(self, values: Tensor, root: int) -> None:
        self._mode.broadcast(values, root)

    def barrier(self) -> None:
        self._mode.barrier()

    def close(self) -> None:
        self._mode.close()


class CastWire(LightWire):
    """Sums in bf16 or fp16."""

    name = "ring 16 bit"

    def __init__(self, mode: Background, dtype: torch.dtype) -> None:
        super().__init__(mode)
        self._codec = Cast(dtype)

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

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        if not worthwhile(values, reduction):
            self._mode.reduce_scatter(values, bounds, reduction)
            return
        short = self._shortened(values)
        self._mode.reduce_scatter(short, bounds, reduction)
        first, last = bounds[self.index]
        self._restore(short[first:last], values[first:last])

    def start_reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> Pending:
        mode = self._mode
        assert streams(mode)
        if not worthwhile(values, reduction):
            return mode.start_reduce_scatter(values, bounds, reduction)
        short = self._shortened(values)
        own = slice(*bounds[self.index])
        pending = mode.start_reduce_scatter(short, bounds, reduction)
        return _Shortened(self, pending, short[own], values[own])

    # fp16 ends at 65504: the values are made smaller first, so that a sum goes no further than its terms.

    def _shortened(self, values: Tensor) -> Tensor:
        return self._codec.encode(values / self.size if self._codec.dtype is torch.float16 else values)

    def _restore(self, short: Tensor, values: Tensor) -> None:
        self._codec.decode(short, values)
        if self._codec.dtype is torch.float16:
            values.mul_(self.size)


class _Shortened:
    """A reduction under way, whose values are still to be made long again."""

    def __init__(self, wire: CastWire, pending: Pending, short: Tensor, values: Tensor) -> None:
        self._wire, self._pending = wire, pending
        self._short, self._values = short, values

    def wait(self) -> None:
        self._pending.wait()
        self._wire._restore(self._short, self._values)


@dataclass(frozen=True)
class _Sum:
    """The encoded sum of our part, and where those of all parts are to go."""

    encoded: Tensor
    parts: list[Tensor]


class Int8Wire(LightWire):
    """Sums in blocks of int8, with feedback of what was lost for tensors whose memory lives on from call to call.

    It works in rounds. In each, everyone sends everyone one message: the terms of the part the other owns of the values
    at hand, and the sum of its own part of the values before. So sums travel with the terms of what comes next.
    """

    name = "ring int8"

    def __init__(self, mode: Background, mesh: Mesh, homes: TensorHomes | None = None) -> None:
        super().__init__(mode)
        self._mesh = mesh
        self._others = [peer for peer in range(self.size) if peer != self.index]
        self._codec = BlockInt8()
        self._memories = Memories(Feedback(self._codec), homes)
        self._unsent: _Sum | None = None
        self._thread = SerialThread("weft-int8")
        self._latest: _Int8Reduction | None = None

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        if worthwhile(values, reduction):
            self._round(values)
        self._round(None)
        if not worthwhile(values, reduction):
            self._mode.all_reduce(values, reduction)

    def start_all_reduce(self, values: Tensor, reduction: Reduction) -> Pending:
        # All on one thread, also what is too small for the light wire: they share connections.
        if worthwhile(values, reduction):
            passage = _Int8Reduction(self, self._thread.submit(self._round, values))
        else:
            passage = _Int8Reduction(self, self._thread.submit(self.all_reduce, values, reduction))
            passage.arrives_with = passage.leaves_with
        if self._latest is not None and self._latest.arrives_with is None:
            self._latest.arrives_with = passage.leaves_with
        self._latest = passage
        return passage

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        # A whole all-reduce in int8 is half of a reduce-scatter in float32.
        if worthwhile(values, reduction):
            self.all_reduce(values, reduction)
        else:
            self._mode.reduce_scatter(values, bounds, reduction)

    def start_reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> Pending:
        return self._thread.submit(self.reduce_scatter, values, bounds, reduction)

    def last_round(self) -> BackgroundCall[None]:
        """Send the sums for which no values follow; all peers know it, since they all wait now."""
        return self._thread.submit(self._round, None)

    def close(self) -> None:
        super().close()
        self._thread.close()

    def _round(self, values: Tensor | None) -> None:
        """The terms of `values` to their owners, and the sums of the values before to everyone."""
        before, parts = self._unsent, block_parts(values, self.size) if values is not None else []
        if values is None and before is None:
            return
        mine = self._size(parts[self.index]) if parts else 0
        out, into = {}, {}
        for peer in self._others:
            mine_of = [self._memories.encode(values, peer, parts[peer])] if values is not None else []
            out[peer] = torch.cat([*mine_of, *([before.encoded] if before else [])])
            size = mine + (self._size(before.parts[peer]) if before else 0)
            into[peer] = torch.empty(size, dtype=torch.uint8)
        exchange(self._mesh, out, into)
        self._unsent = None
        if values is not None:
            own = parts[self.index]  # which was never rounded
            terms = (own if peer == self.index else into[peer][:mine] for peer in range(self.size))
            total = sum_of_terms(self._codec, terms, own)
            self._unsent = _Sum(self._memories.encode(values, "sum", total), parts)
        if before is not None:
            # Ours too is taken from its encoded form: the others have no better.
            sums = {self.index: before.encoded, **{peer: into[peer][mine:] for peer in self._others}}
            for peer, encoded in sums.items():
                decode_into(self._codec, encoded, before.parts[peer])

    def _size(self, part: Tensor) -> int:
        return self._codec.encoded_bytes(part.numel())


class _Int8Reduction:
    """One reduction on its way: its terms leave with one round, its sums arrive with the next."""

    def __init__(self, wire: Int8Wire, leaves_with: BackgroundCall[None]) -> None:
        self._wire = wire
        self.leaves_with = leaves_with
        self.arrives_with: BackgroundCall[None] | None = None  # None: nothing has followed

    def wait(self) -> None:
        if self.arrives_with is None:
            self.arrives_with = self._wire.last_round()
        self.leaves_with.result()
        self.arrives_with.result()
