"""Scale factors: floating-point numbers are multiplied, integers in float64 and then truncated towards zero."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from weft.collectives.torch_private import divide_each, multiply_each


@dataclass(frozen=True)
class ScaleFactor:
    """A factor and a divisor: 49 times 1/49 is not 1, and would be 0 as an integer."""

    factor: float = 1.0
    divisor: int = 1

    @property
    def is_one(self) -> bool:
        return self.factor == 1.0 and self.divisor == 1

    def apply_(self, values: Tensor) -> None:
        """Scale values in place."""
        if not self.is_one:
            self.apply_into(values, values)

    def apply_to(self, parts: list[Tensor]) -> None:
        """Scale tensors of one type in place."""
        if self.is_one:
            return
        if not parts[0].is_floating_point():
            for part in parts:
                self.apply_(part)
        elif self.factor == 1.0:
            divide_each(parts, self.divisor)
        else:
            multiply_each(parts, self.factor / self.divisor)

    def apply_into(self, out: Tensor, values: Tensor) -> None:
        """Put scaled values into `out`, which has the same type."""
        if self.is_one:
            out.copy_(values)
        elif not values.is_floating_point():
            scaled = values.to(torch.float64).mul_(self.factor).div_(self.divisor)
            out.copy_(scaled.trunc_())
        elif self.factor == 1.0:
            torch.div(values, self.divisor, out=out)
        else:
            torch.mul(values, self.factor / self.divisor, out=out)
