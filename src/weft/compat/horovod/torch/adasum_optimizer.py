"""The part of a `DistributedOptimizer` with Adasum: the changes of a local step are combined, not the gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft.compat.horovod.torch import ops
from weft.compat.horovod.torch.compression import Compressor
from weft.compat.horovod.torch.groups import parameter_names, unnamed
from weft.compat.horovod.torch.ops import Adasum
from weft.compat.horovod.torch.reducing_optimizer import check_passes


class AdasumOptimizer:
    """Added to the class of the optimizer that it is given; `step` steps locally, then combines the changes."""

    param_groups: list[dict[str, Any]]

    def _begin(
        self,
        original: torch.optim.Optimizer,
        named_parameters: Any,
        compression: type[Compressor],
        backward_passes_per_step: int,
    ) -> None:
        self._original, self._compression = original, compression
        self._parameter_names = parameter_names(self.param_groups, named_parameters)
        self.backward_passes_per_step = backward_passes_per_step

    def set_backward_passes_per_step(self, passes: int) -> None:
        check_passes(passes)
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Do nothing: `step` does all."""

    def skip_synchronize(self) -> Any:
        """Refuse: a step without its reduction is not Adasum's."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step locally, and combine the changes of all ranks."""
        moving = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        start = [p.detach().clone() for p in moving]
        result = super().step(closure) if closure is not None else super().step()  # type: ignore[misc]
        with torch.no_grad():
            started = []
            for p, before in zip(moving, start, strict=True):
                change, ctx = self._compression.compress(p.detach() - before)
                handle = ops.allreduce_async(change.contiguous(), name=self._name(p), op=Adasum)
                started.append((p, before, ctx, handle))
            for p, before, ctx, handle in started:
                p.copy_(before + self._compression.decompress(ops.synchronize(handle), ctx))
        self._original._opt_called = True  # type: ignore[attr-defined]
        return result

    def _name(self, p: Tensor) -> str:
        return f"adasum.{self._parameter_names.setdefault(p, unnamed(len(self._parameter_names)))}"

    def step_locally(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step as the wrapped optimizer does."""
        return super().step(closure) if closure is not None else super().step()  # type: ignore[misc]
