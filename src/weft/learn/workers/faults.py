"""The error of one worker of a joint fit, as it travels to the others, and the error that the others raise."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from weft.errors import DataError, PeerError, ShareError, UsageError, WeftError

# Errors that rows, files or parameters of the user cause; any other is not the user's fault.
OF_INPUT = (UsageError, ValueError, TypeError, LookupError, OSError)


@dataclass(frozen=True)
class Fault:
    """The error of one worker, as a message."""

    said: str  # the error in one line
    of_input: bool  # whether the user's input caused it


def fault_of(error: Exception) -> Fault:
    """Return the message for an error."""
    lines = str(error).strip().splitlines() or [""]
    plain = isinstance(error, UsageError | ValueError | TypeError) and lines[0]
    said = lines[0] if plain else f"{type(error).__name__}: {lines[0]}"
    return Fault(said, isinstance(error, OF_INPUT))


def error_of(faults: Mapping[int, Fault]) -> WeftError:
    """Return the error that workers without a fault raise; faults are by rank."""
    told = "; ".join(f"rank {rank}: {fault.said}" for rank, fault in faults.items())
    if all(fault.of_input for fault in faults.values()):
        return ShareError(
            f"every worker must have rows that can be fitted, got on {told}; put that right, and fit again"
        )
    return PeerError(f"every worker must come to the end of a fit, got on {told}")


def check_alike(what: str, values: Sequence[Hashable], where: str = "") -> None:
    """Raise where workers' values, in the order of ranks, are not all the same."""
    ranks: dict[Hashable, list[int]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(value, []).append(rank)
    if len(ranks) > 1:
        got = ", ".join(f"{value} on {_named(group)}" for value, group in ranks.items())
        raise DataError(
            f"workers that fit together must bring {what}, got {got}{where}; give all of them the same"
        )


def _named(ranks: Sequence[int]) -> str:
    *most, last = map(str, ranks)
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"
