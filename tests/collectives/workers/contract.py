"""Cases that are run under "weft" and under "gloo" in the same processes, and compared.

A case is a function of a group that returns tensors (in lists, tuples or dicts if it likes). It is run twice under
"weft", and the second time must give the same bits. Where Gloo refuses what we can do, a case says what it expects.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

Group = dist.ProcessGroup
Case = Callable[..., Any]  # of a group; a lambda may bind more

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
COMPLEX = (torch.complex64, torch.complex128)
EVERY_TYPE = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)


@cache
def _groups(timeout_s: float) -> tuple[Group, Group]:
    """Ours and Gloo's, for all scripts of a process: Gloo's cannot be made again over the same store."""
    dist.init_process_group("weft", timeout=timedelta(seconds=timeout_s))
    assert dist.group.WORLD is not None
    return dist.group.WORLD, dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))


class Contract:
    """The cases of one script; with others after it in the same processes, the groups stay as they are."""

    others_follow = False

    def __init__(self, timeout_s: float = 30) -> None:
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore", "`torch.distributed", FutureWarning)  # old names must work too
        self.weft, self.gloo = _groups(timeout_s)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        assert self.weft.name() == "weft"
        self.count = 0
        self.failures: list[str] = []
        self._everything = hashlib.sha256()

    def values(
        self, *shape: int, dtype: torch.dtype = torch.float32, rank: int | None = None
    ) -> torch.Tensor:
        """Values that differ between ranks and are known to all."""
        random = torch.Generator().manual_seed(1 + (self.rank if rank is None else rank))
        if dtype is torch.bool:
            return torch.rand(shape, generator=random) > 0.5
        if dtype in INTEGERS:
            return torch.randint(0, 5, shape, dtype=dtype, generator=random)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(shape, dtype=wide, generator=random).to(dtype)

    def everyone(self, *shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        return [self.values(*shape, dtype=dtype, rank=rank) for rank in range(self.size)]

    def check(
        self, name: str, case: Case, expected: Any = None, *, same: bool = False, within: float | None = None
    ) -> None:
        """Run a case; `expected` stands in for Gloo's result, `same`: all ranks must have the same bits.

        `within` is how far numbers may differ, where the usual is too strict.
        """
        self.count += 1
        bits = b""
        try:
            if expected is None:
                expected = case(self.gloo)
            result, again = case(self.weft), case(self.weft)
            bits = _bits(result)
            assert bits == _bits(again), "two runs gave different bits"
            self._everything.update(bits)
            _compare(result, expected, within)
        except Exception:
            self.failures.append(f"{name}: {traceback.format_exc(limit=-4)}")
            if getattr(self.weft, "_broken", None):
                self.end()  # nothing works from here on
        if same:
            others: list[Any] = [None] * self.size
            dist.all_gather_object(others, bits, group=self.gloo)
            if len(set(others)) > 1:
                self.failures.append(f"{name}: ranks have different bits")

    def refuses(self, name: str, case: Case, words: str) -> None:
        """The case must raise at once, with these words, and leave the group as it was."""
        self.count += 1
        try:
            case(self.weft)
        except Exception as error:
            if words not in str(error):
                self.failures.append(f"{name}: must say {words!r}, said {error}")
        else:
            self.failures.append(f"{name}: must be refused")

    def end(self) -> None:
        """Say how it went."""
        for failure in self.failures:
            print(f"FAILED {failure}", flush=True)
        print(f"{self.count} cases, {len(self.failures)} failed, {self._everything.hexdigest()}", flush=True)
        if self.failures:
            sys.exit(1)
        dist.barrier(group=self.gloo)
        if not self.others_follow:
            dist.destroy_process_group()


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        for part in result:
            yield from _leaves(part)
    else:
        yield result


def _compare(result: Any, expected: Any, within: float | None) -> None:
    got, wanted = list(_leaves(result)), list(_leaves(expected))
    assert len(got) == len(wanted), f"{len(got)} results, expected {len(wanted)}"
    for ours, theirs in zip(got, wanted, strict=True):
        if isinstance(theirs, torch.Tensor):
            # Sums near zero keep the rounding of their terms, which is coarse in 16 bits, and depends on their order.
            limit = within or {torch.float16: 2e-2, torch.bfloat16: 2e-1}.get(theirs.dtype)
            torch.testing.assert_close(ours, theirs, rtol=limit and limit / 10, atol=limit)
        else:
            assert ours == theirs, f"{ours!r}, expected {theirs!r}"


def _bits(result: Any) -> bytes:
    bits = hashlib.sha256()
    for leaf in _leaves(result):
        if isinstance(leaf, torch.Tensor):
            bits.update(leaf.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        else:
            bits.update(pickle.dumps(leaf))
    return bits.digest()
