"""Which module's forward is running: for messages and explanations, and only while a step is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules import module as hooks

_stack: list[str] = []
_names: dict[int, str] = {}


def name_modules(model: torch.nn.Module) -> None:
    """Know modules by their paths in a model from now on."""
    _names.update({id(module): name for name, module in model.named_modules() if name})


def current_module() -> str:
    """The innermost module's path if it is known, else its class."""
    return _stack[-1] if _stack else ""


@contextmanager
def named_modules() -> Iterator[None]:
    """Follow the forward of all modules."""

    def enter(module: torch.nn.Module, args: Any) -> None:
        _stack.append(_names.get(id(module), type(module).__name__))

    def leave(module: torch.nn.Module, args: Any, result: Any) -> None:
        if _stack:
            _stack.pop()

    handles = (
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave, always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        _stack.clear()
