"""The expected result of an all_reduce, worked out the plain way, and how far rounding may take it from there. Pure.

Of n values x, added in any order in a type with unit roundoff u, the sum is wrong by at most about n u sum|x|. So that
sum of magnitudes is what errors are measured against. A light wire rounds more, and has its own allowance:

    bf16, fp16    (H + 1) u sum|x|, with u of that type and H hosts: each host rounds its sum, and each hop again
    int8          1.5 (H + 1) / 127 of the largest sum|x| within a block: half a step, and up to one of feedback
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from weft.collectives.modes.wires.light import LIGHT_BYTES
from weft.collectives.modes.wires.wire import BLOCK
from weft.collectives.reduction import Reduction

SUMS = ("SUM", "AVG", "PREMUL_SUM")
HALO = BLOCK  # neighbours on whose values the allowance of an element depends
_WIRES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Lightness:
    """The wire between hosts that values may have taken."""

    wire: str = "fp32"
    hosts: int = 1

    def of(self, values: Tensor, reduction: Reduction) -> Lightness:
        """Return the wire for these values: none where they are too small for it, or of another type."""
        light = (
            self.hosts > 1
            and values.dtype is torch.float32
            and values.nbytes > LIGHT_BYTES
            and reduction.name in SUMS
        )
        return self if light else Lightness()


@dataclass(frozen=True, kw_only=True)
class VerifyFinding:
    """The comparison of a result's elements with what they must be."""

    wrong: int = 0
    index: int = -1  # of the first that is wrong
    got: float = 0.0
    expected: float = 0.0
    allowed: float = 0.0
    worst: float = 0.0  # the largest error of all, relative to the sum of magnitudes

    def and_then(self, other: VerifyFinding, offset: int) -> VerifyFinding:
        """Return this finding joined with that of a later piece of the same tensor."""
        first = self if self.wrong or not other.wrong else other
        return VerifyFinding(
            wrong=self.wrong + other.wrong,
            index=first.index + (offset if first is other else 0),
            got=first.got,
            expected=first.expected,
            allowed=first.allowed,
            worst=max(self.worst, other.worst),
        )


def compare(
    result: Tensor,
    inputs: Sequence[Tensor],
    reduction: Reduction,
    *,
    world: int,
    lightness: Lightness | None = None,
    inner: slice = slice(None),
) -> VerifyFinding:
    """Compare a result with what the inputs of all ranks come to, all flat; elements beyond `inner` are not judged."""
    lightness = lightness or Lightness()
    judged = torch.zeros(result.numel(), dtype=torch.bool)
    judged[inner] = True
    if not (result.is_floating_point() or result.is_complex()) or reduction.name in ("MIN", "MAX"):
        return _exactly(result, _plain(inputs, reduction, world), judged)
    wide = torch.complex128 if result.is_complex() else torch.float64
    terms = [values.to(wide) * _factor(reduction) for values in inputs]
    total, scale = terms[0].clone(), terms[0].abs()
    for term in terms[1:]:
        if reduction.name == "PRODUCT":
            total, scale = total * term, scale * term.abs()
        else:
            total, scale = total + term, scale + term.abs()
    top = _reach(terms, scale, reduction)
    if reduction.name == "AVG":
        total, scale = total / world, scale / world
    if lightness.wire == "int8":  # a block rounds small values as coarsely as the large ones beside them
        scale = _largest_around(scale)
    allowed = _allowed(scale, result.dtype, len(inputs), lightness)
    limit = torch.finfo(result.dtype).max
    limit = min(limit, 65504.0 * lightness.hosts) if lightness.wire == "fp16" else limit
    # What may have gone beyond the type's largest value on the way is taken as it comes.
    safe = torch.isfinite(top) & (top <= limit)
    if lightness.wire == "fp32":
        safe |= ~torch.isfinite(scale)  # an input that is no number must show
    judged &= safe
    return _finding(result.to(wide), total, allowed, judged, scale)


def _plain(inputs: Sequence[Tensor], reduction: Reduction, world: int) -> Tensor:
    total = inputs[0].clone()
    for values in inputs[1:]:
        reduction.combine(total, values, total)
    reduction.after(total, world)
    return total


def _factor(reduction: Reduction) -> float | Tensor:
    factor = reduction.factor
    if factor is None:
        return 1.0
    return factor.cpu().double() if isinstance(factor, Tensor) else factor


def _reach(terms: Sequence[Tensor], scale: Tensor, reduction: Reduction) -> Tensor:
    """The largest magnitude that can come up on the way, whatever the order."""
    if reduction.name != "PRODUCT":
        return scale
    reach = torch.ones_like(scale)
    for term in terms:
        reach *= term.abs().clamp_min(1.0)
    small = torch.ones_like(scale)
    for term in terms:
        small *= term.abs().clamp_max(1.0)
    # A product that may have vanished on the way tells nothing either.
    return torch.where((small < 1e-30) & (small > 0), torch.inf, reach)


def _allowed(scale: Tensor, dtype: torch.dtype, terms: int, lightness: Lightness) -> Tensor:
    about = torch.finfo(dtype)
    roundings = terms + 2  # the additions, a factor before and a division after
    if dtype in (torch.float64, torch.complex128):
        roundings *= 2  # the reference rounds, too
    allowed = scale * (roundings * about.eps / 2) + roundings * about.smallest_normal * about.eps
    hosts = lightness.hosts
    if lightness.wire in _WIRES:
        short = torch.finfo(_WIRES[lightness.wire])
        allowed += scale * ((hosts + 1) * short.eps / 2)
        allowed += (hosts + 1) * hosts * short.smallest_normal * short.eps
    elif lightness.wire == "int8":
        allowed += scale * (1.5 * (hosts + 1) / 127)
    return allowed


def _largest_around(scale: Tensor) -> Tensor:
    """Return, for each element the largest of those that may share its block."""
    return torch.nn.functional.max_pool1d(scale.view(1, 1, -1), 2 * HALO - 1, 1, HALO - 1).view(-1)


def _exactly(result: Tensor, expected: Tensor, judged: Tensor) -> VerifyFinding:
    wrong = judged & (result != expected)
    if result.is_floating_point():
        wrong &= ~torch.isnan(expected)  # of which modes differ in what they pass on
    zero = torch.zeros(result.numel(), dtype=torch.float64)
    return _finding(result.double(), expected.double(), zero, wrong, zero)


def _finding(
    result: Tensor, expected: Tensor, allowed: Tensor, judged: Tensor, scale: Tensor
) -> VerifyFinding:
    error = (result - expected).abs()
    close = (error <= allowed) & torch.isfinite(error)
    # Neither side is a number: as it must be, where an input is none.
    close |= ~torch.isfinite(result) & ~torch.isfinite(expected)
    wrong = judged & ~close
    relative = torch.where(judged & torch.isfinite(error) & (scale > 0), error / scale, 0.0)
    worst = float(relative.max()) if relative.numel() else 0.0
    count = int(wrong.sum())
    if not count:
        return VerifyFinding(worst=worst)
    index = int(wrong.nonzero()[0])
    return VerifyFinding(
        wrong=count,
        index=index,
        got=_shown(result[index]),
        expected=_shown(expected[index]),
        allowed=float(allowed[index]),
        worst=worst,
    )


def _shown(value: Tensor) -> float:
    return float(value.abs() if value.is_complex() else value)
