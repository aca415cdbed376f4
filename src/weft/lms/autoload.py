"""A budget for a whole script, with no line of it changed: `weft run --lms 20GB train.py`, or `enable(limit="20GB")`.

A step ends with the optimizer's step. torch calls `autoload` itself when it is imported (the entry point
`torch.backends`); nothing is loaded, and no device is touched, before autograd saves its first tensor on one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from weft.lms.limit import parse_limit

VARIABLE = "WEFT_LMS"
_enabled: list[Any] = []


def enable(
    limit: str | int | float = "auto", host: str | int | float | None = None, *, transfer: Any = None
) -> None:
    """Put every step of this process under a budget."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    from weft.lms.api import session_for

    disable()
    session = session_for(limit, host, transfer)
    session.begin()
    _enabled.extend(
        (
            session,
            register_optimizer_step_pre_hook(lambda *_: session.end()),
            register_optimizer_step_post_hook(lambda *_: session.begin()),
        )
    )


def disable() -> None:
    """Take the budget off again; harmless if there is none."""
    if _enabled:
        session, *handles = _enabled
        _enabled.clear()
        for handle in handles:
            handle.remove()
        session.end()


def check_limit(text: str) -> str:
    """What `--lms` may hold; UsageError if it is no size."""
    parse_limit(text)
    return text


def enable_from_env(environ: Mapping[str, str]) -> None:
    """What `weft run --lms` asks for, from the first tensor that autograd saves on a device; without one, nothing."""
    asked = environ.get(VARIABLE)
    if not asked:
        return
    import torch

    from weft.lms.activations.saved import Kept

    def first(tensor: torch.Tensor) -> Any:
        if not tensor.is_cuda:
            return Kept(tensor)
        torch._C._autograd._pop_saved_tensors_default_hooks()
        with torch.cuda.device(tensor.device):
            enable(asked, environ.get(f"{VARIABLE}_HOST") or None)
        return _enabled[0].save_first(tensor)

    torch._C._autograd._push_saved_tensors_default_hooks(first, lambda kept: kept.value())


def autoload() -> None:
    """At the import of torch."""
    if VARIABLE in os.environ:
        enable_from_env(os.environ)
