"""The table of modes: a new mode is one file with its class, and one line in `MODES`. Pure, and without torch.

The class has the methods of `Mode` and a class method `connect(peers)`, which every peer of a dimension calls at the
same time. A mode with `needs_agreement` has a class method `prepare(store, rank, size, facts)` besides: all ranks of a
group call it first, and all get either something for `connect` (as `peers.prepared`) or the same reason why not.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

EXPLORE = "explore"  # times the modes with `explored`, and uses the best for each size
INSIDE = 0  # the dimension within a host; those further out are between hosts, racks and aisles


@dataclass(frozen=True, kw_only=True)
class ModeEntry:
    """One mode: where its class is, which dimensions it serves, and what it needs."""

    path: str  # module:Class
    inside: bool = False  # serves the ranks of one host, in main memory
    between: bool = False  # serves peers on different hosts, in main memory
    explored: bool = False  # mode `explore` times it where it serves
    light_wires: bool = False  # its sums can travel as bf16, fp16 or int8
    needs_agreement: bool = False  # ranks find out together whether it can serve them

    def serves(self, dimension: int) -> bool:
        return self.inside if dimension == INSIDE else self.between

    def load(self) -> Any:
        """Import the class of this mode."""
        module, _, name = self.path.partition(":")
        return getattr(import_module(module), name)


_HERE = "weft.collectives.modes"
MODES = {
    "shm": ModeEntry(path=f"{_HERE}.shared_memory.shm:SharedMemory", inside=True, explored=True),
    "nccl": ModeEntry(path=f"{_HERE}.nccl:Nccl"),  # serves accelerators alone
    "gloo": ModeEntry(path=f"{_HERE}.gloo:Gloo", inside=True, between=True, explored=True),
    "mpi": ModeEntry(path=f"{_HERE}.messages.mpi:Mpi", inside=True, between=True, needs_agreement=True),
    "ring": ModeEntry(path=f"{_HERE}.tcp.ring:Ring", between=True, explored=True, light_wires=True),
}
DEFAULT_INSIDE, DEFAULT_BETWEEN = "shm", "ring"  # serve where the chosen mode cannot, as in DDL


def candidates(chosen: str, dimension: int) -> tuple[str, ...]:
    """The modes to connect in a dimension for the name that was chosen; the first one is preferred."""
    default = DEFAULT_INSIDE if dimension == INSIDE else DEFAULT_BETWEEN
    if chosen == EXPLORE:
        others = [name for name, mode in MODES.items() if mode.explored and mode.serves(dimension)]
        return tuple(dict.fromkeys((default, *others)))
    return (chosen,) if chosen in MODES and MODES[chosen].serves(dimension) else (default,)
