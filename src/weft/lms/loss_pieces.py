"""Cross entropy over a large vocabulary, computed a few rows at a time, where its working set would break the budget.

Natively the loss takes three more tensors of the size of the logits: their log-softmax, the gradient of that, and the
gradient of the logits. Rows do not depend on each other, so here the first two exist for a few rows only, and are made
again for those in the backward pass, by the same operations: gradients are those of the whole, and the loss is the same
sum, added up in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from weft.lms.device.torch_private import once_differentiable

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}  # as operators number them
_aten: Any = torch.ops.aten


@dataclass(frozen=True)
class LossSettings:
    """The settings of a loss that is computed in pieces."""

    ignored: int  # the class number of rows that do not count
    reduction: str
    smoothing: float
    rows: int  # at a time
    dtype: torch.dtype  # in which it is computed


class CrossEntropyInPieces(torch.autograd.Function):
    """Cross entropy of rows of logits with class numbers, a few rows at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor | None,
        settings: LossSettings,
    ) -> torch.Tensor:
        losses: list[torch.Tensor] = []
        smooth: list[torch.Tensor] = []
        weights: list[torch.Tensor] = []
        way = REDUCTIONS["none" if settings.reduction == "none" else "sum"]
        for first, last in _pieces(len(logits), settings.rows):
            shares = logits[first:last].to(settings.dtype).log_softmax(1)
            told = target[first:last]
            loss, total = _aten.nll_loss_forward(shares, told, weight, way, settings.ignored)
            losses.append(loss)
            weights.append(total)
            if settings.smoothing:
                spread = -(shares if weight is None else shares * weight).sum(1)
                spread = spread.masked_fill(told == settings.ignored, 0.0)
                smooth.append(spread if settings.reduction == "none" else spread.sum())
        ctx.save_for_backward(logits, target, weight)
        ctx.settings = settings
        ctx.total = ctx.spread_total = None
        if settings.reduction == "none":
            return _smoothed(torch.cat(losses), smooth and torch.cat(smooth), settings, logits)
        if settings.reduction == "mean":
            ctx.total = ctx.spread_total = torch.stack(weights).sum()
            if weight is not None and smooth:  # torch adds these up by themselves, and rounds them otherwise
                ctx.spread_total = weight.gather(0, target[target != settings.ignored]).sum()

        def whole(parts: list[torch.Tensor], total: torch.Tensor | None) -> torch.Tensor:
            return torch.stack(parts).sum() if total is None else torch.stack(parts).sum() / total

        spread_over_all = smooth and whole(smooth, ctx.spread_total)
        return _smoothed(whole(losses, ctx.total), spread_over_all, settings, logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        logits, target, weight = ctx.saved_tensors
        settings: LossSettings = ctx.settings
        result = torch.empty_like(logits)
        by_target = grad * (1 - settings.smoothing) if settings.smoothing else grad
        by_all = grad * (settings.smoothing / logits.shape[1])
        if ctx.total is not None:
            by_target, by_all = by_target / ctx.total, by_all / ctx.spread_total
        way = REDUCTIONS["none" if settings.reduction == "none" else "sum"]
        for first, last in _pieces(len(logits), settings.rows):
            shares = logits[first:last].to(settings.dtype).log_softmax(1)
            told = target[first:last]
            _, total = _aten.nll_loss_forward(shares, told, weight, way, settings.ignored)
            given = by_target[first:last] if settings.reduction == "none" else by_target
            back = _aten.nll_loss_backward(given, shares, told, weight, way, settings.ignored, total)
            if settings.smoothing:
                each = by_all[first:last] if settings.reduction == "none" else by_all.expand(last - first)
                spread = -each.masked_fill(told == settings.ignored, 0.0)[:, None]
                back += spread if weight is None else spread * weight
            result[first:last] = _aten._log_softmax_backward_data(back, shares, 1, settings.dtype)
        return result, None, None, None


def _smoothed(loss: torch.Tensor, smooth: Any, settings: LossSettings, logits: torch.Tensor) -> torch.Tensor:
    """Return a loss with a part of it spread over all classes."""
    if not settings.smoothing:
        return loss
    spread: torch.Tensor = smooth * (settings.smoothing / logits.shape[1])
    return (1 - settings.smoothing) * loss + spread


def _pieces(count: int, rows: int) -> Iterator[tuple[int, int]]:
    for first in range(0, count, rows):
        yield first, min(first + rows, count)


def rows_at_once(logits: torch.Tensor, size: int, limit: int, share: float, piece_shift: int) -> int | None:
    """Return how many rows of logits to take at once under `limit` bytes; None where the loss is computed whole.

    `size` is that of one element while the loss is computed.
    """
    whole = logits.numel() * size
    if 4 * whole <= share * limit or len(logits) < 2:
        return None
    return max(1, (limit >> piece_shift) * len(logits) // whole)


def in_pieces(
    original: Callable[..., torch.Tensor], rows: Callable[[torch.Tensor, int], int | None]
) -> Callable[..., torch.Tensor]:
    """Return `torch.nn.functional.cross_entropy` as a function that takes large losses in pieces.

    `rows` gives the rows to take at once for logits and the size of an element, or None.
    """

    def cross_entropy(
        input: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> torch.Tensor:
        plain = (
            type(input) is torch.Tensor
            and type(target) is torch.Tensor
            and input.dim() == 2
            and target.dim() == 1
            and not target.is_floating_point()
            and size_average is None
            and reduce is None
            and reduction in REDUCTIONS
            and 0.0 <= label_smoothing <= 1.0
            and input.requires_grad
            and not torch.compiler.is_compiling()
        )
        if plain:
            casts = torch.is_autocast_enabled(input.device.type)
            dtype = torch.float32 if casts else input.dtype
            count = rows(input, dtype.itemsize)
            if count is not None:
                settings = LossSettings(ignore_index, reduction, label_smoothing, count, dtype)
                with torch.autocast(input.device.type, enabled=False):
                    given = None if weight is None else weight.to(dtype)
                    result: torch.Tensor = CrossEntropyInPieces.apply(input, target, given, settings)  # type: ignore[no-untyped-call]
                    return result
        return original(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)

    return cross_entropy
