"""Looking into autograd's graph while it is being made: which node saved what, and which handle is whose output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch

import weft.lms.activations.norm_recipes  # noqa: F401  # adds its rules
from weft.lms.activations.recipes import DEPTH, RULES, Input, Leaf, Recipe, Wanted
from weft.lms.activations.saved import Handle, Kept

Saved = Handle | Kept
_LEAF = "torch::autograd::AccumulateGrad"
_JOINED = "CatBackward0"
_CHANGED = "torch::autograd::CopySlices"  # a view was changed in place; the node does not say how


class Graph:
    """Remembers the step's nodes by their sequence numbers; holds none of them."""

    def __init__(self) -> None:
        self._ours: set[int] = set()  # nodes whose tensors came through our hooks
        self._outputs: dict[tuple[int, int], ref[Handle]] = {}
        self._joined: dict[tuple[Any, ...], ref[Handle]] = {}  # by what was joined, and how
        self.caught: list[Saved] | None = (
            None  # while we look ourselves: who unpacks wants handles, not tensors
        )
        self._depth = 0
        self._built: dict[int, Recipe | None] = {}
        self._changes: list[Change] = []  # all that were ever seen
        self._seen: dict[tuple[int, int], int] = {}  # of this step: storage and version, change
        self._sees = False

    def clear(self, sees_changes: bool = False) -> None:
        """A step begins; `changed` will be told of all that happens in place, or of nothing."""
        self._ours.clear()
        self._outputs.clear()
        self._joined.clear()
        self._seen.clear()
        self._sees = sees_changes

    def changed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation is about to change its first argument in place, which makes that one version older."""
        change = change_of(func, args, kwargs)
        key = (args[0].untyped_storage()._cdata, args[0]._version + 1)
        self._seen.pop(key, None)
        if change is not None:
            if change not in self._changes:
                self._changes.append(change)
            self._seen[key] = self._changes.index(change)

    def note(self, tensor: torch.Tensor, handle: Saved) -> None:
        """At each save. The node that saves is the one made last: numbers are given just before inputs are saved."""
        self._ours.add(torch._C._autograd._get_sequence_nr() - 1)
        node: Any = tensor.grad_fn
        if node is not None and isinstance(handle, Handle):
            self._outputs[node._sequence_nr(), tensor.output_nr] = ref(handle)
            if type(node).__name__ == _JOINED:
                self._joined[node._saved_dim, *_edges(node)] = ref(handle)

    def recipe(self, tensor: torch.Tensor) -> Recipe | None:
        """How to make the whole storage of a tensor that is being saved; None if we know no way."""
        base = tensor._base if tensor._is_view() else tensor
        if base is None or base.grad_fn is None or base.nbytes != base.untyped_storage().nbytes():
            return None
        try:
            if base.grad_fn.name() == _CHANGED:
                return self._rebuilt_change(base)
            return self._build(base.grad_fn, Wanted(tuple(base.shape), base.dtype))
        finally:
            self._built.clear()  # recipes hold handles, and handles hold memory

    def _rebuilt_change(self, base: torch.Tensor) -> Recipe | None:
        """What was there before, changed again."""
        before = self.edge(base.grad_fn, 0, tuple(base.shape), base.dtype)
        if before is None or not self._changes:
            return None
        ways = [change.apply for change in self._changes]
        if not self._sees:
            return Recipe(ways[0], (before,), tuple(ways[1:]))
        way = self._seen.get((base.untyped_storage()._cdata, base._version))
        return None if way is None else Recipe(ways[way], (before,), first=way)

    def _build(self, node: Any, want: Wanted) -> Recipe | None:
        found = RULES.get(node.name())
        if found is None or self._depth >= DEPTH:
            return None
        number = node._sequence_nr()
        if number not in self._built:
            self._depth += 1
            try:
                self._built[number] = found(node, self, want)
            finally:
                self._depth -= 1
        return self._built[number]

    def joined_before(self, node: Any) -> tuple[Input, int]:
        """Layers that join all that went before have joined most of it already: that, and how many parts it has."""
        edges = _edges(node)
        for count in range(len(edges) - 1, 1, -1):
            known = self._joined.get((node._saved_dim, *edges[:count]))
            handle = None if known is None else known()
            if handle is not None:
                return handle, count
        return None, 0

    def saved(self, node: Any, name: str) -> Input:
        # A node that others' hooks serve, such as one inside a checkpoint, would start its recompute if asked.
        if node._sequence_nr() not in self._ours:
            return None
        self.caught = []
        try:
            value = getattr(node, f"_saved_{name}", None)
            caught = self.caught
        finally:
            self.caught = None
        if caught:
            return caught[0]
        return Leaf(value, value._version) if isinstance(value, torch.Tensor) else None

    def edge(self, node: Any, place: int, shape: Sequence[int] | None, dtype: torch.dtype) -> Input:
        edges = node.next_functions
        before, number = edges[place] if place < len(edges) else (None, 0)
        if before is None:
            return None
        if before.name() == _LEAF:
            return Leaf(before.variable, before.variable._version)
        known = self._outputs.get((before._sequence_nr(), number))
        handle = None if known is None else known()
        if handle is not None:
            return handle
        return self._build(before, Wanted(shape, dtype)) if number == 0 else None


def _edges(node: Any) -> tuple[tuple[int, int], ...]:
    """What a node was given, by the numbers of the nodes that made it and of their outputs."""
    return tuple(
        (-1 if maker is None else maker._sequence_nr(), number) for maker, number in node.next_functions
    )


@dataclass(frozen=True)
class Change:
    """What was done in place to a whole storage, as an operation that makes something new."""

    op: Any
    settings: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]

    def apply(self, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.op(value, *self.settings, **dict(self.named))
        return result


def change_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Change | None:
    """None if it is not known how to do it again: not to all of a storage, or with other tensors."""
    tensor, settings, named = args[0], args[1:], tuple(sorted(kwargs.items()))
    simple = all(isinstance(value, (int, float, str, type(None))) for value in (*settings, *kwargs.values()))
    name = func._schema.name.partition("::")[2]
    plain = getattr(getattr(torch.ops.aten, name[:-1], None), func._overloadname, None)
    whole = tensor.nbytes == tensor.untyped_storage().nbytes()
    known = name.endswith("_") and plain is not None
    return Change(plain, settings, named) if simple and whole and known else None


def fits_key(key: tuple[str, int], tensor: torch.Tensor, size: int) -> bool:
    """Whether a site is the one that was planned; a guess does not know its bytes."""
    op, expected = key
    return op == made_by(tensor) and expected in (size, -1)


def made_by(tensor: torch.Tensor) -> str:
    """The operation that made a tensor, by its node's name."""
    base: Any = tensor._base if tensor._is_view() else tensor
    node = base.grad_fn
    return "input" if node is None else str(node.name()).removesuffix("Backward0")
