"""Names of the modules whose forward pass runs, for messages and explanations, while a step is recorded.

The name is read off the Python frames of the calls under way: a hook on all modules would be compiled into each of
them, with its name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from weft.lms.device.torch_private import MODULE_CALL_CODE


class ModuleNames:
    """The paths of modules in their models, and the path of the module that runs."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}  # by the module's id
        self._watching = False

    def add(self, model: torch.nn.Module) -> None:
        """Know the modules of a model by their paths in it."""
        self._names.update({id(module): name for name, module in model.named_modules() if name})

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around a step for which `current` is asked: elsewhere it gives no name, and takes no time."""
        before, self._watching = self._watching, True
        try:
            yield
        finally:
            self._watching = before

    def current(self) -> str:
        """The path of the innermost module that runs, if it is known, else its class."""
        frame: FrameType | None = sys._getframe() if self._watching else None
        while frame is not None and frame.f_code is not MODULE_CALL_CODE:
            frame = frame.f_back
        if frame is None:
            return ""
        module = frame.f_locals["self"]
        return self._names.get(id(module), type(module).__name__)
