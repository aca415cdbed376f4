"""Lighter forms of float32 values for a slow wire: 16 bits each, or 8 with a scale for every block.

A codec works on flat float32 tensors on the CPU. What it loses is lost for good, unless a `Feedback` remembers it and
adds it to the same tensor next time: then small gradients are late, not gone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

BLOCK = 256  # values that share a scale: 4 bytes for 256, 1.6 % on top
_TOP = 127
_TINY = torch.finfo(torch.float32).tiny  # a scale below has no inverse


class Cast:
    """Values as bf16 or fp16: half the bytes. Any other type than float32 stays as it is."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def encode(self, values: Tensor) -> Tensor:
        return values.to(self.dtype) if values.dtype is torch.float32 else values

    def decode(self, encoded: Tensor, out: Tensor) -> None:
        out.copy_(encoded)


class BlockInt8:
    """Values as 8-bit integers times a scale per block: 0.254 of the bytes.

    A block with an infinity or a NaN in it comes back with no finite value but zero, so that nobody takes it for sound.
    """

    def encoded_bytes(self, count: int) -> int:
        return count + 4 * _blocks(count)

    def steps(self, values: Tensor) -> Tensor:
        """Return, for each block, the distance between neighbouring values it can express."""
        return _tops(values) / _TOP

    def encode(self, values: Tensor) -> Tensor:
        """The scales, then the integers, as bytes."""
        if values.dtype is not torch.float32:
            return values
        count, blocks = values.numel(), _blocks(values.numel())
        encoded = torch.empty(self.encoded_bytes(count), dtype=torch.uint8)
        scales, integers = _split(encoded, blocks)
        torch.div(_tops(values), _TOP, out=scales)
        scales[scales < _TINY] = 0.0
        factors = torch.where(scales == 0.0, 0.0, scales.reciprocal())
        scaled = _rows(values) * factors.unsqueeze(1)
        integers.copy_(scaled.round_().clamp_(-_TOP, _TOP).view(-1)[:count])
        return encoded

    def decode(self, encoded: Tensor, out: Tensor) -> None:
        if encoded.dtype is not torch.uint8:
            out.copy_(encoded)
            return
        count = out.numel()
        scales, integers = _split(encoded, _blocks(count))
        whole = count // BLOCK * BLOCK
        out.copy_(integers)
        out[:whole].view(-1, BLOCK).mul_(scales[: count // BLOCK].unsqueeze(1))
        if whole < count:
            out[whole:].mul_(scales[-1])


def _blocks(count: int) -> int:
    return -(-count // BLOCK)


def _rows(values: Tensor) -> Tensor:
    """One row a block; the last is filled up with zeros."""
    missing = -values.numel() % BLOCK
    return (torch.nn.functional.pad(values, (0, missing)) if missing else values).view(-1, BLOCK)


def _tops(values: Tensor) -> Tensor:
    """The largest magnitude in each block."""
    return _rows(values).abs().amax(1)  # 16 times as fast as vector_norm, which is not vectorized for this


def _split(encoded: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
    return encoded[: 4 * blocks].view(torch.float32), encoded[4 * blocks :].view(torch.int8)


class Feedback:
    """The rounding error that encoding left of each tensor, to be added to it next time.

    The caller says which tensor it is. No more than one step of the block at hand is added at a time, and the rest is
    kept: so a tensor whose gradients have become small is not flooded with what is left of large ones, a block of zeros
    stays one, and memory reused for something else disturbs it no more than rounding does.
    """

    def __init__(self, codec: BlockInt8) -> None:
        self._codec = codec
        self._lost: dict[Hashable, Tensor] = {}

    def encode(self, key: Hashable, values: Tensor) -> Tensor:
        """Encode the values with what was lost of them before; they stay as they are."""
        lost = self._lost.get(key)
        if lost is None or lost.numel() != values.numel():
            lost = torch.zeros_like(values)
            added = values
        else:
            steps = self._codec.steps(values).unsqueeze(1)
            now = torch.clamp(_rows(lost), -steps, steps).view(-1)[: values.numel()]
            lost.sub_(now)
            added = values + now
        encoded = self._codec.encode(added)
        came = torch.empty_like(values)
        self._codec.decode(encoded, came)
        lost.add_(added).sub_(came).nan_to_num_(0.0, 0.0, 0.0)
        self._lost[key] = lost
        return encoded

    def forget(self, key: Hashable) -> None:
        self._lost.pop(key, None)

    @property
    def count(self) -> int:
        """Return how many tensors are remembered."""
        return len(self._lost)


_Home = tuple[StorageWeakRef, int]


class TensorHomes:
    """The memory that tensors of one group belong to, also while a copy of theirs is worked on elsewhere."""

    def __init__(self) -> None:
        self._copies: dict[int, _Home] = {}  # by the storage that holds a copy for a while

    @contextmanager
    def stands_for(self, copy: Tensor, original: Tensor) -> Iterator[None]:
        """Let the memory of `copy`, from its first element on, count as that of `original` in this context."""
        key = copy.untyped_storage().data_ptr()
        self._copies[key] = self.home_of(original)
        try:
            yield
        finally:
            del self._copies[key]

    def home_of(self, tensor: Tensor) -> _Home:
        """The storage a tensor belongs to, and its first element in there."""
        if found := self._copies.get(tensor.untyped_storage().data_ptr()):
            return found[0], found[1] + int(tensor.storage_offset())
        storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        return storage, int(tensor.storage_offset())


class Memories:
    """The identities of tensors, by the memory they live in.

    Memory that has not been freed between two calls holds the same tensor: a bucket of DDP, a gradient that is kept. A
    tensor made anew for each call is a new one each time, and has no history.
    """

    def __init__(self, feedback: Feedback, homes: TensorHomes | None = None) -> None:
        self._feedback = feedback
        self._homes = homes or TensorHomes()
        self._known: dict[tuple[StorageWeakRef, int, int], set[Hashable]] = {}

    def encode(self, whole: Tensor, part: Hashable, values: Tensor) -> Tensor:
        """Encode `values`, which belong to a part of the tensor `whole`."""
        memory = (*self._homes.home_of(whole), whole.numel())
        if memory not in self._known:
            self._sweep()
            self._known[memory] = set()
        self._known[memory].add(part)
        return self._feedback.encode((memory, part), values)

    def _sweep(self) -> None:
        for memory in [*self._known]:
            if not memory[0].expired():  # type: ignore[no-untyped-call]
                continue
            for part in self._known.pop(memory):
                self._feedback.forget((memory, part))
