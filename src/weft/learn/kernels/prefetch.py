"""Asks the processor to fetch what a kernel will need soon, so that it need not wait for it then."""

from __future__ import annotations

from importlib import import_module
from typing import Any

ir: Any
_cgutils: Any  # it has no types
types: Any
intrinsic: Any
try:
    ir, _cgutils, types = map(import_module, ("llvmlite.ir", "numba.core.cgutils", "numba.core.types"))
    intrinsic = import_module("numba.extending").intrinsic
except ModuleNotFoundError:  # kernels refuse to run then

    def intrinsic(function: Any) -> Any:
        return function


def _prefetch(context: Any, array: Any, index: Any) -> Any:
    signature = types.void(array, index)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.gep(values.data, [builder.sext(args[1], ir.IntType(64))])
        kind = ir.FunctionType(
            ir.VoidType(), [_cgutils.voidptr_t, ir.IntType(32), ir.IntType(32), ir.IntType(32)]
        )
        function = _cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(ir.IntType(32), number) for number in (0, 3, 1))
        builder.call(function, [builder.bitcast(place, _cgutils.voidptr_t), read, keep, data])
        return context.get_dummy_value()

    return signature, generate


# prefetch(array, index): fetch the cache line of array[index], of one dimension. Nothing is read.
prefetch: Any = intrinsic(_prefetch)
