"""The torch backend "weft": what torch.distributed calls, turned into jobs for a hierarchy.

The names of some methods changed in torch 2.13, so both spellings are there.
"""

from __future__ import annotations

from weft.collectives.copies import Copies
from weft.collectives.reductions import Reductions
from weft.collectives.traffic import Traffic


class WeftGroup(Reductions, Copies, Traffic):
    """One group of ranks."""
