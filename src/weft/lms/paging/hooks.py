"""Hooks around a module's forward pass, on compiled modules as well, which a copy of the model does not inherit.

torch compiles a module with all that is inside of it: a hook in there would be compiled too, or would break the
compiled code into pieces. So hooks go around the outermost compiled module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import ref

from torch import nn

from weft.errors import UsageError
from weft.lms.device import torch_private

Hook = Callable[..., None]


class BoundHook:
    """Base of hooks that belong to one model: a copy of the model has none, and they cannot be written to a file."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return no_hook

    def __reduce_ex__(self, _: Any) -> Any:
        raise UsageError(
            "a model under a budget must be saved as model.state_dict(), got the model itself; save that"
        )


def no_hook(*_: object) -> None:
    """The hook that stands in a copy of a model where the model has one of ours."""


def outer_modules(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a model, without those inside of a compiled one."""
    inside: set[int] = set()
    for module in model.modules():
        if id(module) in inside:
            continue
        if is_compiled(module):
            inside.update(id(part) for part in module.modules())
        yield module


def is_compiled(module: nn.Module) -> bool:
    """Return whether a module is compiled, by any of the ways there are, below what we put around it."""
    forward: Any = module.forward
    while hasattr(forward, "original"):  # put around it by us
        forward = forward.original
    return torch_private.is_compiled(module, forward)


def around_forward(module: nn.Module, before: Hook, after: Hook = no_hook) -> None:
    """Call `before` ahead of all else in a module's forward pass, and `after` behind it, however it ends."""
    call: Any = module._compiled_call_impl or module.forward
    if hasattr(
        call, "wrapped"
    ):  # the wrapped model itself: a step begins there, and these hooks come after that
        call.wrapped.original = HookedCall(before, call.wrapped.original, after)
    elif module._compiled_call_impl is not None:  # with all hooks of the module inside
        replace_call(module, HookedCall(before, call, after))
    else:
        module.register_forward_pre_hook(before, prepend=True)
        if after is not no_hook:
            module.register_forward_hook(after, always_call=True)


def replace_call(module: nn.Module, call: Callable[..., Any]) -> None:
    """Have a compiled module called through `call`, and refuse to compile it again, which would undo that."""
    module._compiled_call_impl = call
    module.compile = _RefusedCompile(module)  # type: ignore[method-assign]


class _RefusedCompile(BoundHook):
    """The `compile` of a module that is compiled already."""

    def __init__(self, module: nn.Module) -> None:
        self._module = ref(module)

    def __call__(self, *_: Any, **__: Any) -> None:
        raise UsageError(
            "a module must be compiled once, before lms.wrap, got another compile(); call it first as you want it"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return partial(nn.Module.compile, memo[id(self._module())])


class HookedCall(BoundHook):
    """A call with a hook before and a hook after it."""

    def __init__(self, before: Hook, original: Callable[..., Any], after: Hook) -> None:
        self._before, self.original, self._after = before, original, after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            self._before()
            return self.original(*args, **kwargs)
        finally:
            self._after()
