"""One read of a dense table for margins, losses and gradients: a Triton kernel.

Each program takes tiles of rows in turn, keeps a tile in registers while it is multiplied from both sides, and adds up,
in float64 after a run of tiles. What the programs found is added in a fixed order, so that a pass gives the same sums
every time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

WIDEST = 2048  # columns of a tile
TILE = 8192  # bytes of a tile, which one warp holds: more warps would have to wait for each other
STAGES = 3  # tiles on their way, for each one that is worked on
PROGRAMS = 8  # warps on a multiprocessor: what its shared memory holds tiles for
RUN = 64  # tiles that are added up in the table's own type before they are added in float64
LOSSES = {"logistic": 0, "squared_hinge": 1, "squared": 2}


def can_fuse(table: Any, loss: Any) -> bool:
    """Whether the kernel can do this pass."""
    dense = table.values.layout == torch.strided
    return bool(
        dense
        and table.device.type == "cuda"
        and loss.name in LOSSES
        and table.columns <= WIDEST
        and _kernel()
    )


def fused_pass(
    part: Tensor, coef: Tensor, y: Tensor, weights: Tensor, loss: str, programs: int = 0
) -> Tensor:
    """(columns + 2,) of float64: the gradient by the columns, the sum of the slopes, and that of the losses.

    `coef` has the bias at its end.
    """
    rows, columns = part.shape
    width = 1 << max(4, (columns - 1).bit_length())
    height = max(1, TILE // (width * part.element_size()))
    warps = max(1, width * part.element_size() // TILE)
    if not programs:
        processors = torch.cuda.get_device_properties(part.device).multi_processor_count
        programs = max(1, PROGRAMS // warps) * processors
    programs = max(1, min(programs, -(-rows // height)))
    found = torch.empty((programs, columns + 2), dtype=torch.float64, device=part.device)
    _kernel()[(programs,)](
        part,
        coef,
        y,
        weights,
        found,
        rows,
        columns,
        part.stride(0),
        part.stride(1),
        programs,
        LOSS=LOSSES[loss],
        HEIGHT=height,
        WIDTH=width,
        FOURS=_in_fours(part),
        RUN=RUN,
        STAGES=STAGES,
        num_warps=warps,
    )
    return found.sum(0)


def _in_fours(part: Tensor) -> bool:
    """Whether four neighbours of a row can be loaded at once."""
    aligned = part.data_ptr() % 16 == 0 and part.stride(1) == 1
    return aligned and part.shape[1] % 4 == 0 and part.stride(0) % 4 == 0


def _kernel() -> Any:
    """Made once; None where there is no Triton."""
    try:
        from weft.learn.gpu.fused_kernel import loss_and_gradient
    except ImportError:
        return None
    return loss_and_gradient
