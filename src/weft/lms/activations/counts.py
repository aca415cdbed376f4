"""What an engine has done so far: behind `lms.stats()`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """What was done, since the start."""

    swaps_out: int = 0
    bytes_out: int = 0
    swaps_in: int = 0
    bytes_in: int = 0
    late: int = 0  # copies back that had not been started before they were wanted
    rebuilt: int = 0
    bytes_rebuilt: int = 0
    evicted: int = 0  # moved because memory ran short, not because a plan said so
    saved_bytes: int = 0  # that autograd saved, each storage once
