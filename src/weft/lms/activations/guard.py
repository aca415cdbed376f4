"""Room for each operation of a step of which nothing is known, asked for before it runs; a second try if that failed.

What an operation gives is known from the shapes of what it takes, and what else it uses is guessed. To ask takes longer
than to launch a small operation, so only steps that are recorded for the first time are guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils._pytree import tree_leaves, tree_map

from weft.errors import BudgetError

EVERYTHING = 1 << 60
# These bring their inputs into another layout, or keep sums in a wider type, in memory of their own.
THIRSTY = ("convolution", "attention", "index", "scatter", "embedding_dense_backward")
PLAIN = (torch.Tensor, torch.nn.Parameter)


class Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation of a step, forward and backward."""

    supports_higher_order_operators = True

    def __init__(
        self,
        room: Callable[[int], None],
        slack: int,
        changed: Callable[..., None],
        off: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._room = room
        self._changed = changed  # told of operations in place
        self._off = off  # whether to look away
        self._slack = slack  # bytes for what no shape tells
        self._known: dict[Any, int] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # compiled blocks must run as they will later

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload) or func.is_view or self._off():
            return func(*args, **kwargs)
        self._room(self._slack + self._wants(func, args, kwargs))
        if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor):
            self._changed(func, args, kwargs)
        try:
            return func(*args, **kwargs)
        except torch.OutOfMemoryError:
            if func._schema.is_mutable:
                raise  # it may have been half done
        # Outside of the handler: the exception held the frames, and they the memory.
        self._room(EVERYTHING)
        try:
            return func(*args, **kwargs)
        except torch.OutOfMemoryError as error:
            raise BudgetError(
                f"limit must hold the working set of {func}, which runs out of memory with all else moved away, got "
                f"{error}; give a larger limit, or this operation less to do at once"
            ) from None

    def _wants(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        leaves = list(_leaves((*args, *kwargs.values())))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if any(type(tensor) not in PLAIN for tensor in tensors):
            return 0
        key = (func, *(_described(leaf) for leaf in leaves))
        if key not in self._known:
            self._known[key] = bytes_wanted(func, args, kwargs)
        return self._known[key]


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """What an operation is given, out of its lists; as `tree_leaves`, which takes several times as long."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value


def _described(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.shape, leaf.stride()
    return (
        leaf if leaf is None or isinstance(leaf, (int, float, str, torch.dtype, torch.device)) else type(leaf)
    )


def bytes_wanted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Bytes that an operation makes, as well as shapes tell."""
    taken = sum(tensor.nbytes for tensor in _tensors((args, kwargs)))
    more = taken if any(word in str(func) for word in THIRSTY) else 0
    turned = "convolution" in str(func) and any(map(_is_turned, _tensors((args, kwargs))))
    if func._schema.is_mutable:
        return more
    try:
        with torch._C._DisableTorchDispatch():
            shapes, named = tree_map(_shape_alone, (args, kwargs))
            given = func(*shapes, **named)
    except Exception:  # whatever an operation without bytes says
        return taken + more
    old = {tensor.untyped_storage()._cdata for tensor in _tensors((shapes, named))}
    new = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in _tensors(given)}
    made = sum(size for key, size in new.items() if key not in old)
    return more + (2 * made if turned else made)


def _is_turned(tensor: torch.Tensor) -> bool:
    """Whether a convolution would rather have it in another layout; what it gives is brought back from that, too."""
    if tensor.dim() == 5:
        return not tensor.is_contiguous(memory_format=torch.channels_last_3d)
    return tensor.dim() == 4 and not tensor.is_contiguous(memory_format=torch.channels_last)


def _shape_alone(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device="meta")
    return torch.device("meta") if isinstance(leaf, torch.device) else leaf


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


class Guarding:
    """Puts a guard in, unless somebody else watches operations, too; takes it out wherever it is by then."""

    def __init__(self, guard: Guard, ours: int) -> None:
        self._guard = guard
        self._ours = ours  # modes that are there because of us

    def __enter__(self) -> bool:
        self._in = torch._C._len_torch_dispatch_stack() <= self._ours
        if self._in:
            self._guard.__enter__()  # type: ignore[no-untyped-call]
        return self._in

    def __exit__(self, *_: object) -> None:
        stack = _get_current_dispatch_mode_stack()
        if not self._in or self._guard not in stack:
            return
        above = stack[stack.index(self._guard) + 1 :]
        for _mode in above:
            _pop_mode()
        self._guard.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        for mode in above:
            _push_mode(mode)
