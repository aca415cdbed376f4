"""IBM DDL's Python API, for scripts that were written for it.

import weft.compat.ddl as ddl

ddl.init("-mode b:4x8x1x1")        # or DDL_OPTIONS; neither is needed under `weft run`
gradients = ddl.allreduce_n(gradients, average=True)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from weft import context
from weft.collectives.ddl_options import DdlOptions, parse_ddl_options
from weft.collectives.settings import CollectiveSettings, settings_from_env
from weft.context import local_rank, num_hosts, rank, size
from weft.errors import UsageError

__all__ = ["allreduce_n", "bcast", "grads_reduce", "init", "local_rank", "num_hosts", "rank", "size"]

A = TypeVar("A")  # a NumPy array or a torch tensor


def init(options: str | None = None) -> None:
    """Join the others. `options` wins over DDL_OPTIONS; without either, the mode is the launcher's or explored."""
    import torch.distributed as dist

    if dist.is_initialized():
        raise UsageError(
            "ddl.init() must be called once, got a process that is already initialized; drop this call"
        )
    text = options if options is not None else os.environ.get("DDL_OPTIONS", "")
    chosen = parse_ddl_options(text)
    if chosen.mode is not None:
        chosen.mode.check(context.size())
    context.init_with(settings_for(chosen, os.environ), "weft")


def settings_for(options: DdlOptions, environ: Mapping[str, str]) -> CollectiveSettings:
    """The backend's settings under DDL's options. What a launcher chose, as by `weft run --mode`, is left alone."""
    settings = settings_from_env(environ)
    if options.mode is not None and "WEFT_MODE" not in environ:
        settings = replace(settings, mode=options.mode)
    if options.dump_iter and "WEFT_REPORT" not in environ:
        settings = replace(settings, watching=replace(settings.watching, report=options.dump_iter))
    return settings


def bcast(values: A) -> A:
    """The values of rank 0, on every rank."""
    from weft.collectives.arrays import broadcast

    return broadcast(values, 0)


def allreduce_n(grads: Sequence[A | None], average: bool = True) -> list[A | None]:
    """Reduce all gradients at once; None stays None, and must be so on every rank."""
    from weft.collectives import arrays

    given = [index for index, grad in enumerate(grads) if grad is not None]
    reduced = arrays.allreduce_n([grads[index] for index in given], "avg" if average else "sum")
    result: list[A | None] = [None] * len(grads)
    for index, grad in zip(given, reduced, strict=True):
        result[index] = grad
    return result


def grads_reduce(
    grads_and_vars: Iterable[tuple[A | None, Any]], average: bool = True
) -> list[tuple[A | None, Any]]:
    """Reduce the gradients of pairs (gradient, variable), as optimizers hold them."""
    pairs = list(grads_and_vars)
    reduced = allreduce_n([grad for grad, _ in pairs], average)
    return list(zip(reduced, (variable for _, variable in pairs), strict=True))
