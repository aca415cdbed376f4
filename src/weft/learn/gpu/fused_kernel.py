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
) -> None:
    """found[program] = the gradient by the columns, the sum of the slopes, the sum of the losses, of its rows."""
    if FOURS:  # rows begin and end at multiples of four numbers, so that four are loaded at once
        columns = columns // 4 * 4  # as they are; the compiler now sees it
        row_stride = row_stride // 4 * 4
    me = tl.program_id(0)
    across = tl.arange(0, WIDTH)
    inside = across < columns
    w = tl.load(coef + across, mask=inside, other=0.0)
    bias = tl.load(coef + columns)
    gradient = tl.zeros([WIDTH], tl.float64)
    slopes = tl.zeros([1], tl.float64)
    losses = tl.zeros([1], tl.float64)
    for tile in range(me, tl.cdiv(rows, HEIGHT), programs):
        row = tile * HEIGHT + tl.arange(0, HEIGHT).to(tl.int64)
        real = row < rows
        # Places beyond two thousand million do not fit 32 bits, whichever way the table lies.
        place = row[:, None] * row_stride + across[None, :].to(tl.int64) * column_stride
        x = tl.load(table + place, mask=real[:, None] & inside[None, :], other=0.0)
        goal = tl.load(y + row, mask=real, other=0.0)
        heavy = tl.load(weights + row, mask=real, other=0.0)
        margin = tl.sum(x * w[None, :], axis=1) + bias
        if LOSS == 0:
            z = -goal * margin
            small = tl.exp(-tl.abs(z))
            loss = heavy * (tl.maximum(z, 0.0) + tl.log(1.0 + small))
            share = tl.where(z >= 0, 1.0 / (1.0 + small), small / (1.0 + small))
            slope = -goal * heavy * share
        elif LOSS == 1:
            short = tl.maximum(1.0 - goal * margin, 0.0)
            loss = heavy * short * short
            slope = -2.0 * goal * heavy * short
        else:
            off = margin - goal
            loss = heavy * off * off * 0.5
            slope = heavy * off
        gradient += tl.sum(x * slope[:, None], axis=0).to(tl.float64)
        slopes += tl.sum(slope, axis=0).to(tl.float64)
        losses += tl.sum(loss, axis=0).to(tl.float64)
    home = found + me * (columns + 2)
    tl.store(home + across, gradient, mask=inside)
    one = tl.arange(0, 1)
    tl.store(home + columns + one, slopes)
    tl.store(home + columns + 1 + one, losses)
