"""`DistributedOptimizer`: an optimizer that reduces gradients over all ranks before it steps.

The wrapped optimizer keeps its class, its state and its options: the wrapper is a subclass, made on the fly, that
shares everything the optimizer has.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.negotiation.messages import ReduceKind
from weft.compat.horovod.torch.adasum_optimizer import AdasumOptimizer
from weft.compat.horovod.torch.compression import Compression, Compressor
from weft.compat.horovod.torch.ops import Adasum, Average
from weft.compat.horovod.torch.reducing_optimizer import ReducingOptimizer, check_passes


def DistributedOptimizer(  # noqa: N802 (a function there, too)
    optimizer: torch.optim.Optimizer,
    named_parameters: Any = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer that reduces gradients over all ranks of a set before it steps.

    It has the class, the state and the options of the one it is given, and shares them with it.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError(
            f"gradient_predivide_factor must come with op=Average, got op={ReduceKind(op).name}; leave it out"
        )
    check_passes(backward_passes_per_step)
    if num_groups:
        if groups is None:
            warnings.warn("num_groups is deprecated; use groups", DeprecationWarning, stacklevel=2)
            groups = num_groups
        if num_groups < 0:
            raise ValueError(f"num_groups must not be negative, got {num_groups}")
    mixin: type[Any] = ReducingOptimizer
    if op == Adasum:
        if process_set.process_set_id != global_process_set.process_set_id:
            raise NotImplementedError("Adasum must have all ranks, got a process set; use op=hvd.Average")
        if world.place.size > 1:
            mixin = AdasumOptimizer
        else:
            op = Average
    kind = type(optimizer)
    made: Any = object.__new__(type(kind.__name__, (mixin, kind), {"__module__": kind.__module__}))
    made.__dict__.update(optimizer.__dict__)
    made.__dict__.pop("step", None)  # a scheduler's, around the step of the original
    if mixin is AdasumOptimizer:
        made._begin(optimizer, named_parameters, compression, backward_passes_per_step)
        return made
    made._begin(
        optimizer,
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        groups,
        sparse_as_dense,
        process_set,
    )
    return made
