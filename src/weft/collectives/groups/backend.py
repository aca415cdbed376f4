"""The torch backend "weft": what torch.distributed calls, turned into jobs for a hierarchy.

The names of some methods changed in torch 2.13, so both spellings are there.
"""

from __future__ import annotations

from weft.collectives.groups.copies import Copies
from weft.collectives.groups.reductions import Reductions
from weft.collectives.groups.traffic import Traffic


class WeftGroup(Reductions, Copies, Traffic):
    """One group of ranks."""
