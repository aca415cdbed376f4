"""The program of each worker of `weft bench`: every backend in turn on the same tensors, again and again.

    weft run -n 2 -m weft.collectives.bench.worker '{"sizes": [4096]}'

An iteration calls ours and each rival once, so that a busy moment of the machine hits them alike. All ranks meet before
each call, and the call has taken as long as on its slowest rank. Before and after that, every result is checked.
"""

from __future__ import annotations

import gc
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from weft.collectives.bench.plan import OURS, BenchPlan, variant_of
from weft.collectives.bench.report import Row, data_line
from weft.collectives.choices import parse_mode
from weft.collectives.register import autoload
from weft.collectives.settings import CollectiveSettings, facts_from_env, settings_from_env

Call = Callable[[], object]

# torch 2.13 has new names for these, and warns of the old ones.
_all_gather: Callable[..., object] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter: Callable[..., object] = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


@dataclass(frozen=True)
class BenchTask:
    """One operation on tensors of one size: `given` and `got` are the same where it works in place."""

    operation: str
    given: Tensor
    got: Tensor
    rank: int
    world: int

    @classmethod
    def make(cls, operation: str, count: int, dtype: str, device: str) -> BenchTask:
        rank, world = dist.get_rank(), dist.get_world_size()
        one = count // world
        given, got = {
            "all_reduce": (count, None),
            "broadcast": (count, None),
            "all_gather": (one, count),
            "reduce_scatter": (count, one),
            "all_to_all": (count, count),
        }[operation]
        tensor = torch.zeros(given, dtype=getattr(torch, dtype), device=device)
        return cls(
            operation, tensor, tensor if got is None else tensor.new_zeros(got), rank=rank, world=world
        )

    def fill(self) -> None:
        """Give every rank values of its own: small whole numbers, which every type holds exactly."""
        _repeat(_digits() + self.rank % 4, self.given)

    def wrong(self, tolerance: float) -> int:
        """Return how many elements are not what they must be."""
        expected = torch.empty_like(self.got)
        self._expect(expected)
        if torch.equal(self.got, expected):
            return 0
        if not expected.is_floating_point():
            return int((self.got != expected).sum())
        # Of the largest value: a wire of blocks rounds small values as coarsely as the large ones beside them.
        allowed = tolerance * float(expected.abs().max())
        close = torch.isclose(self.got, expected, rtol=0.0, atol=allowed)
        return int(close.logical_not_().sum())

    def _expect(self, expected: Tensor) -> None:
        ranks = range(self.world)
        one = self.given.numel() // self.world
        total = self.world * _digits() + sum(rank % 4 for rank in ranks)
        match self.operation:
            case "all_reduce":
                _repeat(total, expected)
            case "reduce_scatter":
                _repeat(total.roll(-self.rank * one), expected)
            case "broadcast":
                _repeat(_digits(), expected)
            case "all_gather":
                for rank, part in zip(ranks, expected.chunk(self.world), strict=True):
                    _repeat(_digits() + rank % 4, part)
            case "all_to_all":
                for rank, part in zip(ranks, expected.chunk(self.world), strict=True):
                    _repeat((_digits() + rank % 4).roll(-self.rank * one), part)


def _digits() -> Tensor:
    return torch.arange(8)


def _repeat(values: Tensor, into: Tensor) -> None:
    """Fill with these eight values, over and over."""
    whole = into.numel() // 8 * 8
    values = values.to(into)
    into[:whole].view(-1, 8).copy_(values)
    into[whole:].copy_(values[: into.numel() - whole])


# -- backends ---------------------------------------------------------------------------------------


class TorchGroup:
    """Any backend of torch.distributed, ours among them."""

    def __init__(self, name: str) -> None:
        backend = name.partition(":")[0]
        self.settings = _settings_for(name) if backend == OURS else None
        self.group = dist.new_group(backend=backend, pg_options=self.settings)

    def prepare(self, task: BenchTask) -> Call:
        given, got, group = task.given, task.got, self.group
        calls: dict[str, Call] = {
            "all_reduce": lambda: dist.all_reduce(got, group=group),
            "broadcast": lambda: dist.broadcast(got, 0, group=group),
            "all_gather": lambda: _all_gather(got, given, group=group),
            "reduce_scatter": lambda: _reduce_scatter(got, given, group=group),
            "all_to_all": lambda: dist.all_to_all_single(got, given, group=group),
        }
        return calls[task.operation]


def _settings_for(name: str) -> CollectiveSettings:
    """The environment's settings, with the one that a variant such as `weft:mode=shm+ring` changes."""
    settings = settings_from_env(os.environ)
    match variant_of(name):
        case ("mode", mode):
            return replace(settings, mode=parse_mode(mode))
        case ("wire", wire):
            return replace(settings, wire=wire)
        case _:
            return settings


class MpiRival:
    """mpi4py on the same memory."""

    def __init__(self, name: str) -> None:
        try:
            from mpi4py import MPI
        except ImportError:
            _refuse("--against mpi must find mpi4py on every host, got none; pip install 'weft[mpi]'")
        self._mpi = MPI
        self._world = MPI.COMM_WORLD
        if (self._world.rank, self._world.size) != (dist.get_rank(), dist.get_world_size()):
            _refuse(
                f"--against mpi must find its ranks numbered as torch's, got {self._world.rank} of {self._world.size} "
                f"for {dist.get_rank()} of {dist.get_world_size()}; use --engine mpi"
            )

    def prepare(self, task: BenchTask) -> Call:
        given, got = self._buffer(task.given), self._buffer(task.got)
        calls: dict[str, Call] = {
            "all_reduce": lambda: self._world.Allreduce(self._mpi.IN_PLACE, got),
            "broadcast": lambda: self._world.Bcast(got, 0),
            "all_gather": lambda: self._world.Allgather(given, got),
            "reduce_scatter": lambda: self._world.Reduce_scatter_block(given, got),
            "all_to_all": lambda: self._world.Alltoall(given, got),
        }
        return calls[task.operation]

    def _buffer(self, tensor: Tensor) -> list[Any]:
        names = {
            "float32": "FLOAT", "float64": "DOUBLE", "int8": "INT8_T", "uint8": "UINT8_T",
            "int32": "INT32_T", "int64": "INT64_T",
        }  # fmt: skip
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in names:
            _refuse(
                f"--against mpi must be given one of {', '.join(names)}, got --dtype {dtype}; MPI has none"
            )
        memory = self._mpi.memory.fromaddress(tensor.data_ptr(), tensor.nbytes)
        return [memory, getattr(self._mpi, names[dtype])]


class PlainCopies:
    """No collective at all: the plain copies that an all-reduce through shared memory cannot do without.

    Of S bytes a rank puts what others reduce where they can read it, (n-1)/n S; then its own reduced part, S/n; and it
    takes the other parts, (n-1)/n S.
    """

    def __init__(self, name: str) -> None:
        self._scratch = torch.empty(0, dtype=torch.uint8)

    def prepare(self, task: BenchTask) -> Call:
        if task.operation != "all_reduce":
            _refuse(f"--against copies must be all_reduce's, got --op {task.operation}; drop one")
        values = task.got.view(torch.uint8)
        if self._scratch.numel() < values.numel():
            self._scratch = torch.zeros_like(values)
        scratch, own = self._scratch[: values.numel()], values.numel() // task.world

        def copies() -> None:
            scratch[own:].copy_(values[own:])
            scratch[:own].copy_(values[:own])
            values[own:].copy_(scratch[own:])

        return copies


def _open(name: str) -> TorchGroup | MpiRival | PlainCopies:
    kinds: dict[str, type[MpiRival | PlainCopies]] = {"mpi": MpiRival, "copies": PlainCopies}
    return kinds.get(name, TorchGroup)(name)


# -- measuring --------------------------------------------------------------------------------------


class Bench:
    """The backends of one plan, ready to be timed."""

    def __init__(self, plan: BenchPlan) -> None:
        self.plan = plan
        self.backends = {name: _open(name) for name in plan.backends}
        ours = self.backends[OURS]
        assert isinstance(ours, TorchGroup)
        self._ours = ours
        self._token = torch.zeros(1)

    def rows(self) -> Iterator[Row]:
        for operation in self.plan.operations:
            for size in self.plan.sizes:
                yield from self._measure(operation, size)

    def _measure(self, operation: str, size: int) -> Iterator[Row]:
        plan = self.plan
        count = plan.count(size, operation, dist.get_world_size())
        task = BenchTask.make(operation, count, plan.dtype, plan.device)
        calls = {name: backend.prepare(task) for name, backend in self.backends.items()}
        wrong = [self._check(name, call, task) for name, call in calls.items()]
        times: dict[str, list[float]] = {name: [] for name in calls}
        gc.collect()
        gc.disable()
        for number in range(-plan.warmup, plan.iterations):
            for name in shuffled(plan.backends, number):
                took = self._time(calls[name], task)
                if number >= 0:
                    times[name].append(took)
        gc.enable()
        again = [self._check(name, call, task) for name, call in calls.items()]
        slowest = torch.tensor(list(times.values()), dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        mistakes = torch.tensor([before + after for before, after in zip(wrong, again, strict=True)])
        dist.all_reduce(mistakes)
        for index, name in enumerate(calls):
            yield Row(
                operation=operation,
                size=max(task.given.nbytes, task.got.nbytes),
                count=task.given.numel() if operation == "all_gather" else task.got.numel(),
                dtype=plan.dtype,
                backend=name,
                world=task.world,
                times_s=tuple(round(value, 9) for value in slowest[index].tolist()),
                wrong=int(mistakes[index]),
            )

    def _time(self, call: Call, task: BenchTask) -> float:
        task.fill()
        self._together()
        began = time.perf_counter()
        for _ in range(self.plan.calls):
            call()
        if task.got.is_cuda:
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / self.plan.calls

    def _together(self) -> None:
        """Meet, before every backend in the same way: by ours, which ranks of a host leave closer together than Gloo's.

        One element is enough: nobody has the sum before everybody has come.
        """
        if self.plan.device == "cuda":
            torch.cuda.synchronize()
        dist.all_reduce(self._token, group=self._ours.group)

    def _check(self, name: str, call: Call, task: BenchTask) -> int:
        task.fill()
        self._together()
        call()
        self._together()
        if name == "copies":
            return 0
        backend = self.backends[name]
        settings = backend.settings if isinstance(backend, TorchGroup) else None
        return task.wrong(_tolerance(task, light=settings is not None and settings.wire != "fp32"))


def shuffled(backends: Sequence[str], number: int) -> list[str]:
    """The order of one iteration, the same on every rank.

    Whoever follows Gloo finds cold caches and sleeping cores: a call of ours was measured to take 1.4 times as long
    as the same call after itself. So nobody always follows the same.
    """
    return random.Random(number).sample(backends, len(backends))


def _tolerance(task: BenchTask, *, light: bool) -> float:
    """A share of the largest value. Sums of so few digits are exact in any order; a lighter wire rounds them."""
    if not task.got.is_floating_point():
        return 0.0
    return 2.0**-5 if light else task.world * torch.finfo(task.got.dtype).eps


def _refuse(message: str) -> NoReturn:
    """Tell the launcher why nothing can be measured; it says so once, whichever rank was first."""
    print(data_line("refused", message), flush=True)
    sys.exit(2)


def _about(plan: BenchPlan) -> dict[str, Any]:
    return {
        "world": dist.get_world_size(),
        "hosts": facts_from_env(os.environ).host_count or 1,
        "device": torch.cuda.get_device_name() if plan.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "iterations": plan.iterations,
        "calls": plan.calls,
    }


def main() -> None:
    plan = BenchPlan.from_text(sys.argv[1] if len(sys.argv) > 1 else "{}")
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        _refuse("weft bench must have at least 2 workers, got 1; use -n 2, or -H a,b")
    if plan.device == "cuda":
        if not torch.cuda.is_available():
            _refuse("--device cuda must find an accelerator on every host, got none; use --device cpu")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    autoload()
    dist.init_process_group("gloo")  # for what is said besides; each backend gets a group of its own
    bench = Bench(plan)
    first = dist.get_rank() == 0
    if first:
        print(data_line("about", _about(plan)), flush=True)
    for row in bench.rows():
        if first:
            print(data_line("row", row.to_json()), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
