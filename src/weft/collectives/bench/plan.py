"""The plan of `weft bench`, as data: operations, sizes, rivals, and how often. Pure, and without torch.

A size is the larger of what a rank gives and what it gets, as nccl-tests counts it:

    all_reduce, broadcast                        the tensor
    all_gather                                   everyone's parts together, on each rank
    reduce_scatter, all_to_all                   what one rank puts in

algbw = size / time. busbw = algbw x a factor that makes operations and world sizes comparable: the bytes that must pass
the busiest link of each rank, over the size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from weft.collectives.choices import parse_mode, parse_wire
from weft.errors import UsageError
from weft.text import format_size, parse_size

BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda world: 2 * (world - 1) / world,
    "all_gather": lambda world: (world - 1) / world,
    "reduce_scatter": lambda world: (world - 1) / world,
    "broadcast": lambda world: 1.0,
    "all_to_all": lambda world: (world - 1) / world,
}
ELEMENT_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "int32": 4, "int64": 8,
}  # fmt: skip
MOST_SIZES = 1000  # of one range: each is measured for some time
OURS = "weft"
RIVALS = ("gloo", "mpi", "nccl", "copies")
# weft:mode=shm+ring is a second group of ours, made with WEFT_MODE=shm,ring: a comma parts rivals already.
VARIANTS: Mapping[str, Callable[[str], object]] = {"mode": parse_mode, "wire": parse_wire}


def parse_sizes(text: str) -> tuple[int, ...]:
    """`4KiB,1MiB` in the order given."""
    return tuple(parse_size(part) for part in text.split(",") if part.strip())


def size_range(least: int, most: int, factor: float) -> tuple[int, ...]:
    """`least`, `least` x `factor`, ... up to `most`."""
    if factor <= 1 or not 0 < least <= most:
        raise UsageError(
            f"a range of sizes must grow from --min to --max by --factor above 1, got {least}, {most} and {factor:g}"
        )
    sizes: list[int] = []
    size = least
    while size <= most:
        if len(sizes) == MOST_SIZES:
            raise UsageError(
                f"a range must be of at most {MOST_SIZES} sizes, got more by --factor {factor:g}; use a larger factor"
            )
        sizes.append(size)
        size = max(size + 1, round(size * factor))
    return tuple(sizes)


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """One request to measure."""

    operations: tuple[str, ...] = ("all_reduce",)
    sizes: tuple[int, ...] = (4 << 10, 256 << 10, 4 << 20, 64 << 20)
    dtype: str = "float32"
    against: tuple[str, ...] = ()
    iterations: int = 20
    warmup: int = 3
    calls: int = 1  # between two looks at the clock; more than one hides how unevenly ranks leave a barrier
    device: str = "cpu"

    def __post_init__(self) -> None:
        for operation in self.operations:
            _one_of("--op", operation, tuple(BUS_FACTORS))
        _one_of("--dtype", self.dtype, tuple(ELEMENT_BYTES))
        _one_of("--device", self.device, ("cpu", "cuda"))
        for rival in self.against:
            _check_rival(rival)
        if len(set(self.backends)) < len(self.backends):
            raise UsageError(
                f"--against must name each rival once, got {','.join(self.against)}; drop what is there twice"
            )
        for flag, value, least in (
            ("--iterations", self.iterations, 1),
            ("--warmup", self.warmup, 0),
            ("--calls", self.calls, 1),
        ):
            if value < least:
                raise UsageError(f"{flag} must be at least {least}, got {value}")
        if not self.sizes or min(self.sizes) < ELEMENT_BYTES[self.dtype]:
            raise UsageError(
                f"--sizes must hold at least one {self.dtype} of {ELEMENT_BYTES[self.dtype]} bytes each, "
                f"got {', '.join(format_size(size, trimmed=True) for size in self.sizes) or 'none'}; write 4KiB,1MiB"
            )
        if self.device == "cuda" and {"mpi", "copies"} & set(self.against):
            raise UsageError(
                "--against mpi and copies must be measured in main memory, got --device cuda; drop one"
            )
        if self.device == "cpu" and "nccl" in self.against:
            raise UsageError(
                "--against nccl must be given accelerators, got --device cpu; add --device cuda or drop nccl"
            )

    @property
    def backends(self) -> tuple[str, ...]:
        return (OURS, *self.against)

    def count(self, size: int, operation: str, world: int) -> int:
        """Elements in a tensor of this size; a multiple of the world's size where it is dealt out."""
        elements = size // ELEMENT_BYTES[self.dtype]
        if operation in ("all_reduce", "broadcast"):
            return elements
        return max(1, elements // world) * world

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> BenchPlan:
        data: dict[str, Any] = json.loads(text)
        for name, value in data.items():
            data[name] = tuple(value) if isinstance(value, list) else value
        return cls(**data)


def _one_of(flag: str, got: str, known: tuple[str, ...]) -> None:
    if got not in known:
        raise UsageError(f"{flag} must be one of {', '.join(known)}, got {got!r}")


def variant_of(backend: str) -> tuple[str, str] | None:
    """The setting of a second group of ours: `weft:mode=shm+ring` is ("mode", "shm,ring")."""
    ours, colon, setting = backend.partition(":")
    name, equals, value = setting.partition("=")
    if ours != OURS or not (colon and equals):
        return None
    return name, value.replace("+", ",")


def _check_rival(backend: str) -> None:
    variant = variant_of(backend)
    if variant is not None and variant[0] in VARIANTS:
        VARIANTS[variant[0]](variant[1])
    elif backend not in RIVALS:
        raise UsageError(
            f"--against must name some of {', '.join(RIVALS)}, weft:mode=MODE or weft:wire=WIRE, got {backend!r}"
        )
