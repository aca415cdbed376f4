"""The arithmetic of a sum in blocks of int8, whatever carries the bytes: `Int8Wire` and the DDP hook share it.

Values are cut into one part for each peer, in whole blocks. A peer gets everyone's encoded terms of its own part, adds
them up in the order of the peers, and sends the encoded sum to all: so every peer ends with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from weft.collectives.modes.mode import even_bounds
from weft.collectives.modes.wires.wire import BLOCK, BlockInt8


def block_parts(values: Tensor, peers: int) -> list[Tensor]:
    """Cut flat values into a part for each peer; only the last part with values may end within a block."""
    bounds = even_bounds(-(-values.numel() // BLOCK), peers)
    return [values[first * BLOCK : last * BLOCK] for first, last in bounds]


def sum_of_terms(codec: BlockInt8, terms: Iterable[Tensor], like: Tensor) -> Tensor:
    """Add up terms in their order: encoded ones, or float32 values that were never rounded."""
    total, decoded = torch.zeros_like(like), torch.empty_like(like)
    for term in terms:
        if term.dtype is torch.uint8:
            decode_into(codec, term, decoded)
            total.add_(decoded)
        else:
            total.add_(term)
    return total


def decode_into(codec: BlockInt8, encoded: Tensor, out: Tensor) -> None:
    """Decode bytes from anywhere in memory; the scales are read as floats, which must lie at multiples of 4 bytes."""
    misaligned = encoded.data_ptr() % 4 or encoded.storage_offset() % 4  # torch checks the offset, too
    codec.decode(encoded.clone() if misaligned else encoded, out)
