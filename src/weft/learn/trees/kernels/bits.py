"""Sets of bin codes as 256 bits: what few rows have is listed in order, with nothing to sort and little to clear."""

from __future__ import annotations

from typing import Any

from weft.learn.kernels.prefetch import intrinsic, ir, types


def _lowest_bit(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


# lowest_bit(bits): the place of the lowest bit that is set, of a uint64 that is not 0.
lowest_bit: Any = intrinsic(_lowest_bit)
