"""Reductions of the values of all ranks: torch's reduce operators, on flat CPU tensors.

Every mode reduces in the order of its peers, so that the result is the same bit by bit on every rank and in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

_COMBINE: dict[str, Callable[..., Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PREMUL_SUM": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


@dataclass(frozen=True)
class Reduction:
    """One operator, ready to be applied."""

    name: str
    factor: float | Tensor | None = None  # of PREMUL_SUM

    def combine(self, left: Tensor, right: Tensor, out: Tensor) -> None:
        """Put left (op) right into `out`, which may be either of them."""
        if out.dtype is torch.bool and self.name in ("SUM", "AVG", "PREMUL_SUM", "MAX", "BOR"):
            torch.logical_or(left, right, out=out)  # torch has no sum of truth values; gloo's is this one
        elif out.dtype is torch.bool and self.name in ("PRODUCT", "MIN", "BAND"):
            torch.logical_and(left, right, out=out)
        else:
            _COMBINE[self.name](left, right, out=out)

    def check(self, tensor: Tensor) -> None:
        """Refuse what has no meaning, before anyone waits for the others."""
        if self.name in ("SUM", "AVG", "PRODUCT"):
            return
        exact = not tensor.is_floating_point() and not tensor.is_complex()
        dtype = str(tensor.dtype).removeprefix("torch.")
        if self.name in ("BAND", "BOR", "BXOR") and not exact:
            raise ValueError(f"{self.name} must have integers, got {dtype}")
        if self.name in ("MIN", "MAX") and tensor.is_complex():
            raise ValueError(f"{self.name} must have numbers with an order, got {dtype}")
        if self.name == "PREMUL_SUM" and exact:
            raise ValueError(f"{self.name} must have floating-point numbers, got {dtype}")

    def before(self, values: Tensor) -> None:
        """Applied once to each rank's own values, in place."""
        if self.factor is not None:
            values.mul_(self.factor)

    def after(self, values: Tensor, world: int) -> None:
        """Applied once to the reduced values, in place; the same arithmetic on every rank."""
        if self.name == "AVG":
            if values.is_floating_point() or values.is_complex():
                values.div_(world)
            else:
                values.div_(world, rounding_mode="trunc")


# By the numbers of torch's operators: to ask one for its name, or for its hash, takes longer than a small reduction.
_REDUCTIONS = {getattr(ReduceOp, name).value: Reduction(name) for name in _COMBINE}


def reduction_of(op: ReduceOp | ReduceOp.RedOpType) -> Reduction:
    """Ours for torch's."""
    kind: Any = getattr(op, "op", op)  # both are given
    found = _REDUCTIONS.get(kind.value)
    if found is None:
        raise ValueError(
            f"the reduce operator must be one of {', '.join(_COMBINE)}, got {op}; use one of them"
        )
    if found.name != "PREMUL_SUM":
        return found
    # The factor has no other way out of the operator.
    state: tuple[object, float | Tensor] = op.__getstate__()  # type: ignore[assignment]
    return Reduction(found.name, state[1])
