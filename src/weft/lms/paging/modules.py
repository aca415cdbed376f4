"""Which module's forward is running: for messages and explanations, and only while a step is recorded.

It is read off the calls that are under way. A hook on all modules would be compiled into each of them, with its name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

_module: Any = torch.nn.Module
_CALL = _module._wrapped_call_impl.__code__
_names: dict[int, str] = {}
_looking: list[bool] = []


def name_modules(model: torch.nn.Module) -> None:
    """Know modules by their paths in a model from now on."""
    _names.update({id(module): name for name, module in model.named_modules() if name})


def current_module() -> str:
    """The innermost module's path if it is known, else its class."""
    frame: FrameType | None = sys._getframe() if _looking else None
    while frame is not None and frame.f_code is not _CALL:
        frame = frame.f_back
    if frame is None:
        return ""
    module = frame.f_locals["self"]
    return _names.get(id(module), type(module).__name__)


@contextmanager
def named_modules() -> Iterator[None]:
    """Look at the modules that run."""
    _looking.append(True)
    try:
        yield
    finally:
        _looking.pop()
