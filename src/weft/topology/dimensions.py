"""The levels of the machine hierarchy: accelerators in a host, hosts in a rack, racks in an aisle, aisles.

What is not declared is inferred from the host list. Declared sizes must multiply to the world size,
because each rank sits at exactly one point of the grid they span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from weft.errors import TopologyError
from weft.text import plural


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """The size of each level, innermost first; prints as `4x8x1x1`."""

    accelerators: int | None  # workers in a host; None where hosts differ
    hosts_per_rack: int
    racks: int  # per aisle
    aisles: int
    per_host: tuple[int, ...]  # workers of each host, in the order of the host list

    @property
    def world(self) -> int:
        """Return how many workers there are in all."""
        return sum(self.per_host)

    @property
    def has_racks(self) -> bool:
        return self.racks * self.aisles > 1

    def place_of(self, host: int) -> tuple[int, int]:
        """The rack and the aisle of a host, from its index."""
        # Accelerators may be declared finer than a host; then a host counts for several.
        finer = max(1, self.hosts_per_rack * self.racks * self.aisles // len(self.per_host))
        return place_of(host * finer, self.hosts_per_rack, self.racks)

    def __str__(self) -> str:
        inner = self.accelerators or f"({'+'.join(map(str, self.per_host))})"
        return f"{inner}x{self.hosts_per_rack}x{self.racks}x{self.aisles}"


def place_of(host: int, hosts_per_rack: int, racks: int) -> tuple[int, int]:
    """The rack, counted within its aisle, and the aisle of a host: racks are filled in the order of the hosts."""
    aisle, rack = divmod(host // hosts_per_rack, racks)
    return rack, aisle


def infer_dimensions(
    counts: Sequence[int],
    *,
    accelerators: int | None = None,
    hosts_per_rack: int | None = None,
    racks: int | None = None,
    aisles: int | None = None,
    allow_uneven: bool = False,
    names: Sequence[str] = (),
) -> Dimensions:
    """The dimensions of hosts with these worker counts; `names` are the hosts', for messages.

    The innermost of hosts, racks and aisles that is not declared takes up all hosts; the others are 1. Where uneven is
    allowed, the last rack may have fewer hosts than the others.
    """
    declared = {
        "--accelerators": accelerators,
        "--hosts-per-rack": hosts_per_rack,
        "--racks": racks,
        "--aisles": aisles,
    }
    flags = [flag for flag, value in declared.items() if value is not None]
    _check_positive(counts, declared)
    sizes = {"host": hosts_per_rack, "rack": racks, "aisle": aisles}
    grid = _grid(len(counts), sizes, allow_uneven)
    last_is_short = allow_uneven and 0 < prod(grid.values()) - len(counts) < grid["host"]
    if len(set(counts)) == 1:
        accelerators = accelerators or counts[0]
        workers = {"host": len(counts), "worker": counts[0]}
        if not (last_is_short and accelerators == counts[0]):
            _check_product({"accelerator": accelerators, **grid}, workers, flags)
        _check_inside_host(accelerators, counts[0])
    else:
        _check_uneven(counts, names, accelerators, allow_uneven)
        if not last_is_short:
            _check_product(grid, {"host": len(counts)}, flags)
    return Dimensions(
        accelerators=accelerators,
        hosts_per_rack=grid["host"],
        racks=grid["rack"],
        aisles=grid["aisle"],
        per_host=tuple(counts),
    )


def _grid(hosts: int, declared: dict[str, int | None], short: bool) -> dict[str, int]:
    """All three sizes. Where they cannot fit, the product is left wrong for the check to show."""
    known = prod(size or 1 for size in declared.values())
    rest = max(1, -(-hosts // known) if short else hosts // known)
    grid = {}
    for name, size in declared.items():
        grid[name] = size or rest
        rest = rest if size else 1
    return grid


def _check_positive(counts: Sequence[int], declared: dict[str, int | None]) -> None:
    if not counts:
        raise TopologyError("dimensions must have at least one host, got none; name hosts with -H")
    if min(counts) < 1:
        raise TopologyError(
            f"each host must have at least 1 worker, got {_listed(counts)}; leave empty hosts out"
        )
    for flag, value in declared.items():
        if value is not None and value < 1:
            raise TopologyError(f"{flag} must be at least 1, got {value}; leave it out to have it inferred")


def _check_uneven(
    counts: Sequence[int], names: Sequence[str], accelerators: int | None, allow_uneven: bool
) -> None:
    if not allow_uneven:
        got = [f"{name}={count}" for name, count in zip(names, counts, strict=True)] if names else counts
        raise TopologyError(
            f"hosts must have equal worker counts to form a hierarchy, got {_listed(got)}; "
            "mend the host list or use --allow-uneven"
        )
    if accelerators is not None:
        raise TopologyError(
            f"--accelerators must hold for every host, got {accelerators} for hosts with {_listed(counts)}; "
            "leave it out"
        )


def _check_product(grid: dict[str, int], world: dict[str, int], flags: Sequence[str]) -> None:
    if prod(grid.values()) == prod(world.values()):
        return
    goal = "the world size" if "worker" in world else "the number of hosts"
    raise TopologyError(
        f"dimensions must multiply to {goal}, got {_arithmetic(grid)} but {_arithmetic(world)}; "
        f"change {' or '.join(flags)} or the host list"
    )


def _check_inside_host(accelerators: int, workers: int) -> None:
    # A declared level may be finer than a host, but the innermost must not reach across hosts.
    if workers % accelerators:
        raise TopologyError(
            f"--accelerators must divide the workers of a host, got {accelerators} for {workers} workers; "
            f"use --accelerators {workers}"
        )


def _arithmetic(sizes: dict[str, int]) -> str:
    factors = " x ".join(plural(size, name) for name, size in sizes.items())
    return f"{factors} = {prod(sizes.values())}" if len(sizes) > 1 else f"there are {factors}"


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))
