"""Batch normalisation over the batches of all ranks, on CPUs and accelerators; batches may have different sizes."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from weft.compat.horovod.engine.world import world
from weft.compat.horovod.torch import ops
from weft.compat.horovod.torch.ops import Sum
from weft.compat.horovod.torch.torch_private import BatchNormBase

_Function: Any = torch.autograd.Function
_numbers = itertools.count()


class SyncBatchNorm(BatchNormBase):
    """`torch.nn.BatchNorm` whose mean and variance are those of all ranks' batches together."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._number = next(_numbers)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a batch; without training, or alone, as torch does."""
        self._check_input_dim(input)
        by_batch = self.training or not self.track_running_stats
        if not by_batch or not world.initialized or world.place.size == 1:
            return super().forward(input)
        if self.momentum is None and self.num_batches_tracked is not None:
            factor = 1.0 / float(self.num_batches_tracked + 1)
        else:
            factor = self.momentum or 0.0
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        tracked = (self.running_mean, self.running_var) if self.training else (None, None)
        name = f"sync_batch_norm.{self._number}"
        normalised: Tensor = _SyncBatchNormFunction.apply(
            input, self.weight, self.bias, *tracked, self.eps, factor, name
        )
        return normalised


class _SyncBatchNormFunction(_Function):  # type: ignore[misc]
    """The formulas of batch normalisation, with sums over all ranks. Channels are the second dimension."""

    @staticmethod
    def forward(
        ctx: Any,
        batch: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        eps: float,
        momentum: float,
        name: str,
    ) -> Tensor:
        axes = [0, *range(2, batch.dim())]
        values = batch.to(torch.promote_types(batch.dtype, torch.float32))
        channels = batch.shape[1]
        # One message: the sum, the sum of squares, and the number of elements of each channel.
        sums = torch.cat(
            [
                values.sum(axes),
                (values * values).sum(axes),
                values.new_tensor([float(batch.numel() // channels)]),
            ]
        ).double()
        sums = ops.allreduce_(sums, name=f"{name}.forward", op=Sum)
        count = float(sums[-1])
        mean = (sums[:channels] / count).to(values.dtype)
        var = (sums[channels : 2 * channels] / count - (sums[:channels] / count) ** 2).clamp_(min=0.0)
        var = var.to(values.dtype)
        if running_mean is not None and running_var is not None:
            unbiased = var * (count / max(count - 1, 1.0))
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
            running_var.mul_(1 - momentum).add_(unbiased.to(running_var.dtype), alpha=momentum)
        shape = (1, channels, *([1] * (batch.dim() - 2)))
        scale = (var + eps).rsqrt()
        normal = (values - mean.view(shape)) * scale.view(shape)
        ctx.save_for_backward(normal, scale, weight)
        ctx.count, ctx.shape, ctx.axes, ctx.name, ctx.biased = count, shape, axes, name, bias is not None
        out = normal
        if weight is not None:
            out = out * weight.view(shape).to(out.dtype)
        if bias is not None:
            out = out + bias.view(shape).to(out.dtype)
        return out.to(batch.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normal, scale, weight = ctx.saved_tensors
        shape, axes = ctx.shape, ctx.axes
        wide = grad.to(normal.dtype)
        sum_grad, sum_grad_normal = wide.sum(axes), (wide * normal).sum(axes)
        together = torch.cat([sum_grad, sum_grad_normal])
        together = ops.allreduce_(together, name=f"{ctx.name}.backward", op=Sum) / ctx.count
        mean_grad, mean_grad_normal = together.chunk(2)
        through = wide - mean_grad.view(shape) - normal * mean_grad_normal.view(shape)
        through = through * scale.view(shape)
        if weight is not None:
            through = through * weight.view(shape).to(through.dtype)
        to_weight = sum_grad_normal.to(weight.dtype) if weight is not None else None
        to_bias = sum_grad.to(grad.dtype) if ctx.biased else None
        return through.to(grad.dtype), to_weight, to_bias, *([None] * 5)
