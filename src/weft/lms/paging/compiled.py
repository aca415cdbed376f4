"""Modules that torch compiles as one: what happens around their forward pass must happen outside of the compiled code.

A hook inside of it would be compiled, too, or break it into pieces.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import ref

from torch import nn

from weft.errors import UsageError
from weft.lms.paging.bound import Bound, nothing

Hook = Callable[..., None]


def units(model: nn.Module) -> Iterator[nn.Module]:
    """Modules, and of those that are compiled none that are inside."""
    inside: set[int] = set()
    for module in model.modules():
        if id(module) in inside:
            continue
        if is_compiled(module):
            inside.update(id(part) for part in module.modules())
        yield module


def is_compiled(module: nn.Module) -> bool:
    """Whether by `torch.compile(module)`, by `module.compile()`, or by way of its `forward`."""
    compiler: Any = sys.modules.get("torch._dynamo.eval_frame")  # to load it takes seconds
    if compiler is None:
        return False
    forward: Any = module.forward
    while hasattr(forward, "original"):  # ours
        forward = forward.original
    disabled = getattr(forward, "_torchdynamo_disable", False)
    return (
        isinstance(module, compiler.OptimizedModule)
        or module._compiled_call_impl is not None
        or (hasattr(forward, "_torchdynamo_orig_callable") and not disabled)
    )


def around_forward(module: nn.Module, before: Hook, after: Hook = nothing) -> None:
    """Call these before everything else of a module's forward pass, and after it, however it ends."""
    call: Any = module._compiled_call_impl or module.forward
    if hasattr(call, "wrapped"):  # by us: a step begins there, and what comes here must come later
        call.wrapped.original = Around(before, call.wrapped.original, after)
    elif module._compiled_call_impl is not None:  # with all hooks inside
        put_around(module, Around(before, call, after))
    else:
        module.register_forward_pre_hook(before, prepend=True)
        if after is not nothing:
            module.register_forward_hook(after, always_call=True)


def put_around(module: nn.Module, call: Callable[..., Any]) -> None:
    """Have a compiled module called by way of this; to compile it again would lose that."""
    module._compiled_call_impl = call
    module.compile = _Compiled(module)  # type: ignore[method-assign]


class _Compiled(Bound):
    """The `compile` of a module that is compiled."""

    def __init__(self, module: nn.Module) -> None:
        self._module = ref(module)

    def __call__(self, *_: Any, **__: Any) -> None:
        raise UsageError(
            "a module must be compiled once, before lms.wrap, got another compile(); call it first as you want it"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return partial(nn.Module.compile, memo[id(self._module())])


class Around(Bound):
    """A call, and what happens before and after it; a copy of the module has neither."""

    def __init__(self, before: Hook, original: Callable[..., Any], after: Hook) -> None:
        self._before, self.original, self._after = before, original, after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            self._before()
            return self.original(*args, **kwargs)
        finally:
            self._after()
