"""The Triton kernel of `fused`; imported where there is Triton. Its compiler understands no other annotations."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def loss_and_gradient(  # type: ignore[no-untyped-def]
    table,
    coef,
    y,
    weights,
    found,
    rows,
    columns,
    row_stride,
    column_stride,
    programs,
    LOSS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FOURS: tl.constexpr,
    RUN: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    """found[program] = the gradient by the columns, the sum of the slopes, the sum of the losses, of its rows."""
    if FOURS:  # rows begin and end at multiples of four numbers, so that four are loaded at once
        columns = columns // 4 * 4  # as they are; the compiler now sees it
        row_stride = row_stride // 4 * 4
    me = tl.program_id(0)
    down = tl.arange(0, HEIGHT)
    across = tl.arange(0, WIDTH)
    inside = across < columns
    w = tl.load(coef + across, mask=inside, other=0.0)
    bias = tl.load(coef + columns)
    # Where the numbers of a tile are, seen from its first row; beyond two thousand million, 32 bits do not hold that.
    places = down[:, None].to(tl.int64) * row_stride + across[None, :].to(tl.int64) * column_stride
    gradient = tl.zeros([WIDTH], tl.float64)
    slopes = tl.zeros([HEIGHT], tl.float64)
    losses = tl.zeros([HEIGHT], tl.float64)
    tiles = tl.cdiv(rows, HEIGHT)
    tall = tl.full([], HEIGHT, tl.int64)
    for first in range(me, tiles, programs * RUN):
        # Nothing is added across threads but a row's own margin, until a run of tiles is over.
        sums = tl.zeros([HEIGHT, WIDTH], table.dtype.element_ty)
        for tile in tl.range(first, min(tiles, first + programs * RUN), programs, num_stages=STAGES):
            begin = tile * tall
            real = begin + down < rows
            x = tl.load(table + begin * row_stride + places, mask=real[:, None] & inside[None, :], other=0.0)
            goal = tl.load(y + begin + down, mask=real, other=0.0)
            heavy = tl.load(weights + begin + down, mask=real, other=0.0)
            margin = tl.sum(x * w[None, :], axis=1) + bias
            if LOSS == 0:
                z = -goal * margin
                small = tl.exp(-tl.abs(z))
                loss = heavy * (tl.maximum(z, 0.0) + tl.log(1.0 + small))
                slope = -goal * heavy * tl.where(z >= 0, 1.0, small) / (1.0 + small)
            elif LOSS == 1:
                short = tl.maximum(1.0 - goal * margin, 0.0)
                loss = heavy * short * short
                slope = -2.0 * goal * heavy * short
            else:
                off = margin - goal
                loss = heavy * off * off * 0.5
                slope = heavy * off
            sums += x * slope[:, None]
            slopes += slope.to(tl.float64)
            losses += loss.to(tl.float64)
        gradient += tl.sum(sums.to(tl.float64), axis=0)
    home = found + me * (columns + 2)
    tl.store(home + across, gradient, mask=inside)
    one = tl.arange(0, 1)
    tl.store(home + columns + one, tl.sum(slopes, axis=0) + tl.zeros([1], tl.float64))
    tl.store(home + columns + 1 + one, tl.sum(losses, axis=0) + tl.zeros([1], tl.float64))
