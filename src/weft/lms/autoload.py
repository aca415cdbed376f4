"""A budget for a whole script, without a change to it: `weft run --lms 20GB train.py`, or `enable(limit="20GB")`.

A step ends with the optimizer's step. torch calls `autoload` itself when it is imported (the entry point
`torch.backends`); nothing is loaded, and no device is touched, before autograd saves its first tensor on one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from weft.lms.limit import parse_limit

VARIABLE = "WEFT_LMS"


def enable(
    limit: str | int | float = "auto", host: str | int | float | None = None, *, transfer: Any = None
) -> None:
    """Put every step of this process under a budget."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    from weft.lms.api import SESSIONS, session_for

    disable()
    session = session_for(limit, host, transfer)
    session.begin()
    SESSIONS.whole_process = session
    SESSIONS.process_hooks = [
        register_optimizer_step_pre_hook(lambda *_: session.end()),
        register_optimizer_step_post_hook(lambda *_: session.begin()),
    ]


def disable() -> None:
    """Take the budget of the process off again; harmless if there is none."""
    from weft.lms.api import SESSIONS

    for handle in SESSIONS.process_hooks:
        handle.remove()
    SESSIONS.process_hooks = []
    if SESSIONS.whole_process is not None:
        session, SESSIONS.whole_process = SESSIONS.whole_process, None
        session.end()


def check_limit(text: str) -> str:
    """Return the text of `--lms`; UsageError if it is no size."""
    parse_limit(text)
    return text


def enable_from_env(environ: Mapping[str, str]) -> None:
    """Do what `weft run --lms` asks for, once autograd saves its first tensor on a device."""
    asked = environ.get(VARIABLE)
    if not asked:
        return
    import torch

    from weft.lms.activations.saved import Kept
    from weft.lms.api import SESSIONS
    from weft.lms.device.torch_private import pop_saved_tensors_hooks, push_saved_tensors_hooks

    def first(tensor: torch.Tensor) -> Any:
        if not tensor.is_cuda:
            return Kept(tensor)
        pop_saved_tensors_hooks()
        with torch.cuda.device(tensor.device):
            enable(asked, environ.get(f"{VARIABLE}_HOST") or None)
        assert SESSIONS.whole_process is not None
        return SESSIONS.whole_process.save_first(tensor)

    push_saved_tensors_hooks(first, lambda kept: kept.value())


def autoload() -> None:
    """Enable large model support if the environment asks for it; torch calls this when it is imported."""
    if VARIABLE in os.environ:
        enable_from_env(os.environ)
