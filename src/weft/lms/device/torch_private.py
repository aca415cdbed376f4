"""The private names of PyTorch that large model support relies on, in one place, each with the reason it is needed.

They hold for torch 2.11 to 2.13, which is what `pyproject.toml` allows. Whoever raises that bound reads this file, and
runs `tests/lms` with the new version. Plain aliases cost nothing where they are called: most calls are made on the
thread that launches work, where microseconds count.

Besides these, private attributes of tensors, modules and autograd nodes are read where they are used, because an alias
would say less: `Tensor._base`, `_is_view()`, `_version`, `UntypedStorage._cdata` (the address of a storage's C++
object), `Node._sequence_nr()`, `Node._saved_*` (what an operation saved), and `Module._compiled_call_impl`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch import nn
from torch._compile import _disable_dynamo
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parallel import DistributedDataParallel
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils._pytree import tree_leaves, tree_map

__all__ = [
    "CHECKPOINT_FILE",
    "FUNCTIONALIZE",
    "MODULE_CALL_CODE",
    "NO_BACKWARD",
    "FakeTensor",
    "OpOverload",
    "TorchDispatchMode",
    "WeakStorageRef",
    "around_backward",
    "backward_id",
    "cpu_attention",
    "current_device_index",
    "current_stream_id",
    "dispatch_modes",
    "empty_host_cache",
    "exclude_dispatch_keys",
    "is_compiled",
    "keep_device_busy",
    "local_part",
    "memory_stats",
    "next_sequence_number",
    "no_dispatch",
    "number_of_dispatch_modes",
    "once_differentiable",
    "outside_of_compiler",
    "pop_dispatch_mode",
    "pop_saved_tensors_hooks",
    "push_dispatch_mode",
    "push_saved_tensors_hooks",
    "replace_cross_entropy",
    "replicates_now",
    "reset_peak_memory",
    "set_stream",
    "storage_from_weak",
    "storage_use_count",
    "tensor_use_count",
    "top_saved_tensors_hooks",
    "tree_leaves",
    "tree_map",
    "without_torch_dispatch",
    "without_torch_function",
]

cpu_attention: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # fused on meta tensors too
_c: Any = torch._C
_cuda: Any = torch.cuda

# Autograd.
# Hooks for saved tensors without `torch.autograd.graph.saved_tensors_hooks`, which can only be left in the order in
# which it was entered: a step is begun in one call and ended in another.
push_saved_tensors_hooks: Callable[[Any, Any], None] = _c._autograd._push_saved_tensors_default_hooks
pop_saved_tensors_hooks: Callable[[], None] = _c._autograd._pop_saved_tensors_default_hooks
# The innermost hooks, or None: whether anybody sees what a forward pass saves. Takes `ignore_is_tracing`.
top_saved_tensors_hooks: Callable[[bool], Any] = _c._autograd._top_saved_tensors_default_hooks
# The sequence number of the node made next: the node that is saving its inputs was given the one before.
next_sequence_number: Callable[[], int] = _c._autograd._get_sequence_nr
# The id of the backward pass that runs on this thread, or NO_BACKWARD.
backward_id: Callable[[], int] = _c._current_graph_task_id
NO_BACKWARD = -1
# The file whose functions save the arguments of a checkpoint: in torch 2.13 no node does that.
CHECKPOINT_FILE: str = torch.utils.checkpoint.__file__


def around_backward(wrapper: Callable[..., Any]) -> Callable[[], None]:
    """Have `wrapper(run, *args, **kwargs)` called for every backward pass, until the function that this returns is.

    A backward pass takes over the dispatch modes of the thread that starts it: later is too late to take one out.
    """
    autograd: Any = torch.autograd
    original = autograd._engine_run_backward

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    def restore() -> None:
        if autograd._engine_run_backward is wrapped:
            autograd._engine_run_backward = original

    autograd._engine_run_backward = wrapped
    return restore


def replace_cross_entropy(made: Callable[[Any], Any]) -> Callable[[], None]:
    """Put `made(original)` in the place of `torch.nn.functional.cross_entropy`, until the function that this returns is
    called: modules and models look it up there when they run, and an operation cannot be taken apart below autograd.
    """
    functional: Any = nn.functional
    original = functional.cross_entropy
    ours = made(original)

    def restore() -> None:
        if functional.cross_entropy is ours:
            functional.cross_entropy = original

    functional.cross_entropy = ours
    return restore


# Dispatch: modes that see every operation.
# `_pytree` handles the arguments of operators; `optree`, the public choice, is another dependency.
OpOverload: Any = torch._ops.OpOverload  # the type of an operator, such as aten.add.Tensor, inside a mode
number_of_dispatch_modes: Callable[[], int] = _c._len_torch_dispatch_stack
dispatch_modes: Callable[[], list[Any]] = _get_current_dispatch_mode_stack
push_dispatch_mode: Callable[[Any], None] = _push_mode  # to take a mode out from under others
pop_dispatch_mode: Callable[[], Any] = _pop_mode
without_torch_dispatch: Any = _c._DisableTorchDispatch  # shapes are computed without asking any mode
without_torch_function: Any = (
    _c.DisableTorchFunctionSubclass
)  # tensors are looked at without asking their class
exclude_dispatch_keys: Any = _c._ExcludeDispatchKeyGuard
FUNCTIONALIZE = _c.DispatchKeySet(
    _c.DispatchKey.Functionalize
)  # the compiler's key, which knows its own tensors only

# Storages and tensors.
WeakStorageRef: Any = (
    StorageWeakRef  # a weak reference that keeps the C++ object, and so its address, reserved
)
# The storage behind a weak reference, by its `cdata`; None if it is dead.
storage_from_weak: Callable[[int], Any] = torch.UntypedStorage._new_with_weak_ptr
storage_use_count: Callable[[int], int] = _c._storage_Use_Count  # by a storage's `_cdata`


def tensor_use_count(tensor: Any) -> int:
    """The number of C++ references to a tensor: autograd keeps a saved leaf that way, which no storage shows."""
    return int(tensor._use_count())


def local_part(tensor: Any) -> torch.Tensor:
    """The part of a DTensor that is in this process; any other tensor as it is.

    `DTensor.to_local()` is an operation of autograd and makes a view.
    """
    part: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


# CUDA: the public functions wrap these in Python that takes ten times as long.
def memory_stats(device: int) -> dict[str, int]:
    """Bytes allocated on a device, as "current" and "peak"; `torch.cuda.memory_stats` flattens hundreds of figures."""
    found: dict[str, int] = _c._cuda_memoryStats(device)["allocated_bytes"]["all"]
    return found


def reset_peak_memory(device: int) -> None:
    """Let the "peak" of `memory_stats` start again from "current"."""
    _c._cuda_resetPeakMemoryStats(device)


def current_stream_id(device: int) -> tuple[int, int, int]:
    """The current stream as (stream id, device index, device type); `torch.cuda.current_stream` makes an object."""
    found: tuple[int, int, int] = _c._cuda_getCurrentStream(device)
    return found


def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    """Make a stream the current one; `torch.cuda.stream` is a context manager that takes ten times as long."""
    _c._cuda_setStream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def current_device_index() -> int:
    """The current device; -1 while CUDA is not in use, which the public function would start."""
    return int(_c._cuda_getDevice()) if _cuda.is_initialized() else -1


def keep_device_busy(cycles: int) -> None:
    """Let the current stream do nothing for some cycles of the device's clock."""
    _cuda._sleep(cycles)


def empty_host_cache() -> None:
    """Give memory that torch keeps pinned for later back to the system, where this build can."""
    empty = getattr(_c, "_host_emptyCache", None)
    if empty is not None:
        empty()


# Modules and the compiler.
# The code of the function that calls every module: a frame that runs it has the module as `self`.
MODULE_CALL_CODE = nn.Module._wrapped_call_impl.__code__
# A decorator for functions that must not be compiled; it loads the compiler when called, and not before.
outside_of_compiler: Any = _disable_dynamo


def is_compiled(module: nn.Module, forward: Any) -> bool:
    """Return whether `torch.compile(module)`, `module.compile()` or a compiled `forward` made a module compiled."""
    compiler: Any = sys.modules.get("torch._dynamo.eval_frame")  # loading it takes seconds
    if compiler is None:
        return False
    disabled = getattr(forward, "_torchdynamo_disable", False)
    return (
        isinstance(module, compiler.OptimizedModule)
        or module._compiled_call_impl is not None
        or (hasattr(forward, "_torchdynamo_orig_callable") and not disabled)
    )


def replicates_now() -> bool:
    """Return whether the forward pass of a `DistributedDataParallel` runs on this thread."""
    return DistributedDataParallel._active_ddp_module is not None
