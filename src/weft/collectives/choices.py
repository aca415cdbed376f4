"""A user's choices about reductions, from text: modes, a wire, backends to replace. Pure, and without torch.

p               explore in every dimension
shm,ring        shm inside a host, ring from there on out
b:4x8x1x1       DDL's form: a letter, and the dimensions it was written for
br:4x8          a letter for each dimension, innermost first
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from weft.collectives.modes.table import EXPLORE, MODES
from weft.errors import TopologyError, UsageError
from weft.text import plural

MODE_NAMES = (*MODES, EXPLORE)

# DDL's letters. Its own fall-back holds here too: what cannot serve a dimension gives way to `ring`.
DDL_LETTERS = {
    "b": "nccl",  # NCCL's lower level, which torch does not show; its upper one does the same work
    "n": "nccl",
    "r": "ring",
    "m": "mpi",
    "c": "shm",  # "RCS", of which DDL's documents give only the name; ours within a host
    "p": "explore",
}

LEVELS = ("accelerator", "host", "rack", "aisle")  # innermost first

WIRES = ("fp32", "bf16", "fp16", "int8")

REPLACEABLE = ("gloo",)  # backends of torch in whose place ours can serve


@dataclass(frozen=True)
class ModeChoice:
    """A mode for each dimension, innermost first; the last one serves all that are further out."""

    modes: tuple[str, ...]
    dimensions: tuple[int, ...] | None = None  # None: as the machines have them

    def mode_of(self, dimension: int) -> str:
        return self.modes[min(dimension, len(self.modes) - 1)]

    def check(self, world: int) -> None:
        """Refuse dimensions that do not hold all workers, each once."""
        if self.dimensions is None or prod(self.dimensions) == world:
            return
        sizes = zip(self.dimensions, LEVELS, strict=False)
        factors = " x ".join(plural(size, level) for size, level in sizes)
        raise TopologyError(
            f"the dimensions of a mode must multiply to the world size, got {factors} = {prod(self.dimensions)} "
            f"but there are {world} workers; change the dimensions or leave them out"
        )

    def __str__(self) -> str:
        dimensions = ":" + "x".join(map(str, self.dimensions)) if self.dimensions else ""
        return ",".join(self.modes) + dimensions


def parse_mode(text: str) -> ModeChoice:
    """Read what `--mode`, `WEFT_MODE` and DDL's `-mode` may hold."""
    names, colon, sizes = text.strip().partition(":")
    modes = _modes(names.strip(), text)
    dimensions = _dimensions(sizes.strip(), text) if colon else None
    if len(modes) > (levels := len(dimensions) if dimensions else len(LEVELS)):
        raise UsageError(
            f"a mode must have at most one name for each dimension, got {len(modes)} for {levels} in {text!r}"
        )
    return ModeChoice(modes, dimensions)


def _modes(names: str, text: str) -> tuple[str, ...]:
    given = [name.strip() for name in names.split(",")]
    if names and set(names) <= DDL_LETTERS.keys():
        given = list(names)  # DDL's letters stand side by side
    unknown = [name for name in given if name not in MODE_NAMES and name not in DDL_LETTERS]
    if unknown:
        raise UsageError(
            f"a mode must be one of {', '.join(MODE_NAMES)} or DDL's letters {' '.join(DDL_LETTERS)}, "
            f"got {unknown[0]!r} in {text!r}; write shm,ring or b:4x8x1x1"
        )
    return tuple(DDL_LETTERS.get(name, name) for name in given)


def _dimensions(sizes: str, text: str) -> tuple[int, ...]:
    given = sizes.split("x")
    if not all(size.isascii() and size.isdigit() and int(size) > 0 for size in given):
        raise UsageError(
            f"the dimensions of a mode must be numbers from 1 on, joined by x, got {sizes!r} in {text!r}; "
            "write b:4x8x1x1"
        )
    if len(given) > len(LEVELS):
        raise UsageError(
            f"a mode must have at most {len(LEVELS)} dimensions ({', '.join(f'{level}s' for level in LEVELS)}), "
            f"got {len(given)} in {text!r}"
        )
    return tuple(map(int, given))


def parse_replace(text: str) -> frozenset[str]:
    """Read what `--replace` and `WEFT_REPLACE` may hold: names of torch's backends, joined by commas; none is none."""
    names = [name.strip().lower() for name in text.split(",")] if text.strip() else []
    if unknown := [name for name in names if name not in REPLACEABLE]:
        raise UsageError(
            f"a backend to replace must be one of {', '.join(REPLACEABLE)}, got {unknown[0]!r}; "
            "write --replace gloo"
        )
    return frozenset(names)


def parse_wire(text: str) -> str:
    """Read what `--wire` and `WEFT_WIRE` may hold."""
    if text not in WIRES:
        raise UsageError(f"a wire must be one of {', '.join(WIRES)}, got {text!r}")
    return text
