"""A guard asks for room before each operation of a step that has no plan, and runs it again if memory ran out.

The bytes of an operation's results are computed from shapes; its working memory is guessed. Asking takes longer than
launching a small operation, so only the first step of a shape, which is recorded, is guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from weft.errors import BudgetError
from weft.lms.activations.tape import PLAIN_TYPES, Tape
from weft.lms.device.torch_private import (
    OpOverload,
    TorchDispatchMode,
    around_backward,
    dispatch_modes,
    number_of_dispatch_modes,
    pop_dispatch_mode,
    push_dispatch_mode,
    tree_leaves,
    tree_map,
    without_torch_dispatch,
)
from weft.lms.device.transfer import host_waits_for

EVERYTHING = 1 << 60  # bytes: asks for all that can move to be moved
# Operations with these words in their names bring their inputs into another layout, or keep sums in a wider type.
NEEDS_WORKSPACE = ("convolution", "attention", "index", "scatter", "embedding_dense_backward")


class OperationGuard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that sees every operation of a step, forward and backward, and makes room for it."""

    supports_higher_order_operators = True

    def __init__(
        self,
        room: Callable[[int], None],
        slack: int,
        changed: Callable[..., None],
        off: Callable[[], bool] = lambda: False,
        tape: Tape | None = None,
        waited: Callable[[], None] = lambda: None,
        known: dict[Any, int] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._room = room  # makes room for so many bytes
        self._waited = waited  # called where the host waits for what the device computes
        self._changed = changed  # called with operations in place, before they run
        self._off = off  # whether operations pass unseen for now
        self._run = _plainly if tape is None else tape.run
        self._slack = slack  # bytes of working memory that no shape tells
        # Bytes by operation and shapes: to ask takes longer than most operations, so all guards share what is known.
        self._known: dict[Any, int] = {} if known is None else known

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # compiled blocks must run as they will later

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper that keeps the compiler out takes as long as a view

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._off():
            return func(*args, **kwargs)
        if not isinstance(func, OpOverload) or func.is_view:
            return self._run(func, args, kwargs)
        if host_waits_for(func, args, kwargs):
            self._waited()
        self._room(self._slack + self._bytes_wanted(func, args, kwargs))
        if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor):
            self._changed(func, args, kwargs)
        try:
            return self._run(func, args, kwargs)
        except torch.OutOfMemoryError:
            if func._schema.is_mutable:
                raise  # half of the change may have been made
        # Outside of the handler: the exception holds the frames, and these hold memory.
        self._room(EVERYTHING)
        try:
            return self._run(func, args, kwargs)
        except torch.OutOfMemoryError as error:
            raise BudgetError(
                f"limit must hold the working set of {func}, which runs out of memory with all else moved away, got "
                f"{error}; give a larger limit, or this operation less to do at once"
            ) from None

    def _bytes_wanted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        leaves = list(_leaves((*args, *kwargs.values())))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if any(type(tensor) not in PLAIN_TYPES for tensor in tensors):
            return 0
        key = (func, *(_described(leaf) for leaf in leaves))
        if key not in self._known:
            self._known[key] = bytes_wanted(func, args, kwargs)
        return self._known[key]


def _plainly(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the arguments of an operation, and the items of its lists; `tree_leaves` takes several times as long."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value


def _described(leaf: Any) -> Any:
    """Return what of an argument decides about the memory of its operation."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.shape, leaf.stride()
    return (
        leaf if leaf is None or isinstance(leaf, (int, float, str, torch.dtype, torch.device)) else type(leaf)
    )


def bytes_wanted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the bytes that an operation takes: its results, computed from shapes, and a guess of working memory."""
    taken = sum(tensor.nbytes for tensor in _tensors((args, kwargs)))
    more = taken if any(word in str(func) for word in NEEDS_WORKSPACE) else 0
    turned = "convolution" in str(func) and any(map(_is_turned, _tensors((args, kwargs))))
    if func._schema.is_mutable:
        return more
    try:
        with without_torch_dispatch():
            shapes, named = tree_map(_shape_alone, (args, kwargs))
            given = func(*shapes, **named)
    except Exception:  # any error of an operation that cannot run on shapes
        return taken + more
    old = {tensor.untyped_storage()._cdata for tensor in _tensors((shapes, named))}
    new = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in _tensors(given)}
    made = sum(size for key, size in new.items() if key not in old)
    return more + (2 * made if turned else made)


def _is_turned(tensor: torch.Tensor) -> bool:
    """Return whether a convolution brings a tensor into another layout; its result is brought back from that, too."""
    if tensor.dim() == 5:
        return not tensor.is_contiguous(memory_format=torch.channels_last_3d)
    return tensor.dim() == 4 and not tensor.is_contiguous(memory_format=torch.channels_last)


def _shape_alone(leaf: Any) -> Any:
    """Return an argument without its bytes."""
    if isinstance(leaf, torch.Tensor):
        return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device="meta")
    return torch.device("meta") if isinstance(leaf, torch.device) else leaf


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


class GuardedStep:
    """A context that puts a guard on the stack of modes, unless the user has modes there, too.

    The guard is taken out from wherever it stands by then, since others may have pushed modes after it.
    """

    def __init__(self, guard: TorchDispatchMode, ours: int) -> None:
        self._guard = guard
        self._ours = ours  # modes on the stack that are ours

    def __enter__(self) -> bool:
        self._in = number_of_dispatch_modes() <= self._ours
        if self._in:
            self._guard.__enter__()  # type: ignore[no-untyped-call]
        return self._in

    def __exit__(self, *_: object) -> None:
        stack = dispatch_modes()
        if not self._in or self._guard not in stack:
            return
        above = stack[stack.index(self._guard) + 1 :]
        for _mode in above:
            pop_dispatch_mode()
        self._guard.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for mode in above:
            push_dispatch_mode(mode)


class TapedForward(GuardedStep):
    """A context that has a tape see forward passes: backward passes run without the mode, which would slow them."""

    def __enter__(self) -> bool:
        if super().__enter__():
            self._restore = around_backward(self._backward)
        return self._in

    def __exit__(self, *_: object) -> None:
        if self._in:
            self._restore()
        super().__exit__()

    def _backward(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        there = self._in and self._guard in dispatch_modes()
        if there:
            super().__exit__()
        try:
            return run(*args, **kwargs)
        finally:
            if there:
                self._guard.__enter__()  # type: ignore[no-untyped-call]
