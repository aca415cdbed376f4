"""Autograd's graph while it is being made: which node saved which tensor, and which handle is whose output.

The graph is asked when a tensor is saved: how could its storage be made again? The node that made the tensor has a
name, and a rule for that name (`recipes.py`) tells the operation and asks this module for the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch

from weft.lms.activations.saved import Handle, Kept, LeafInput, Recipe, RecipeInput
from weft.lms.device.torch_private import next_sequence_number

Packed = Handle | Kept  # what autograd gets in place of a tensor that it saves
_LEAF = "torch::autograd::AccumulateGrad"
_CONCATENATION = "CatBackward0"
_CHANGED_VIEW = "torch::autograd::CopySlices"  # a view was changed in place; the node does not say how


@dataclass(frozen=True)
class RecipeTarget:
    """The shape, if it matters, and the type that the result of a recipe must have."""

    shape: Sequence[int] | None
    dtype: torch.dtype


class AutogradGraph:
    """The nodes of one step, by their sequence numbers; it holds none of them."""

    def __init__(self, rules: Mapping[str, Rule], max_nesting: int) -> None:
        self._rules, self._max_nesting = rules, max_nesting
        self._ours: set[int] = set()  # nodes whose tensors came through our hooks
        self._outputs: dict[tuple[int, int], ref[Handle]] = {}  # by node and number of the output
        self._concatenations: dict[tuple[Any, ...], ref[Handle]] = {}  # by dimension and inputs
        # While a rule reads a node's saved tensors, unpacking appends handles here and gives no bytes.
        self.caught: list[Packed] | None = None
        self._nesting = 0
        self._built: dict[int, Recipe | None] = {}
        self._changes: list[InPlaceChange] = []  # all that were ever seen
        self._seen: dict[
            tuple[int, int], int
        ] = {}  # in this step, by storage and version: number of the change
        self._sees_changes = False

    def clear(self, sees_changes: bool = False) -> None:
        """Begin a step; `sees_changes` tells whether `changed` will be called for all that happens in place."""
        self._ours.clear()
        self._outputs.clear()
        self._concatenations.clear()
        self._seen.clear()
        self._sees_changes = sees_changes

    def changed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note an operation that is about to change its first argument in place, which raises that one's version."""
        if args[0].is_inference():
            return  # it counts no changes, and autograd saves nothing of it
        change = in_place_change(func, args, kwargs)
        key = (args[0].untyped_storage()._cdata, args[0]._version + 1)
        self._seen.pop(key, None)
        if change is not None:
            if change not in self._changes:
                self._changes.append(change)
            self._seen[key] = self._changes.index(change)

    def note(self, tensor: torch.Tensor, handle: Packed, by_node: bool = True) -> None:
        """Note a tensor that is being saved. The saving node was made last: it has the number before the next one.

        A checkpoint saves its arguments, not `by_node`: the last node may be one inside the checkpoint before.
        """
        if by_node:
            self._ours.add(next_sequence_number() - 1)
        node: Any = tensor.grad_fn
        if node is not None and isinstance(handle, Handle):
            self._outputs[node._sequence_nr(), tensor.output_nr] = ref(handle)
            if type(node).__name__ == _CONCATENATION:
                self._concatenations[node._saved_dim, *_inputs(node)] = ref(handle)

    def recipe(self, tensor: torch.Tensor) -> Recipe | None:
        """Return a recipe for the whole storage of a tensor that is being saved; None if no rule knows one."""
        base = tensor._base if tensor._is_view() else tensor
        if base is None or base.grad_fn is None or base.nbytes != base.untyped_storage().nbytes():
            return None
        try:
            if base.grad_fn.name() == _CHANGED_VIEW:
                return self._changed_again(base)
            return self._build(base.grad_fn, RecipeTarget(tuple(base.shape), base.dtype))
        finally:
            self._built.clear()  # recipes hold handles, and handles hold memory

    def _changed_again(self, base: torch.Tensor) -> Recipe | None:
        """The recipe of a storage that was changed in place: its content before the change, and the change."""
        before = self.edge(base.grad_fn, 0, tuple(base.shape), base.dtype)
        if before is None or not self._changes:
            return None
        ways = [change.apply for change in self._changes]
        if not self._sees_changes:
            return Recipe(ways[0], (before,), tuple(ways[1:]))
        way = self._seen.get((base.untyped_storage()._cdata, base._version))
        return None if way is None else Recipe(ways[way], (before,), first=way)

    def _build(self, node: Any, target: RecipeTarget) -> Recipe | None:
        rule = self._rules.get(node.name())
        if rule is None or self._nesting >= self._max_nesting:
            return None
        number = node._sequence_nr()
        if number not in self._built:
            self._nesting += 1
            try:
                self._built[number] = rule(node, self, target)
            finally:
                self._nesting -= 1
        return self._built[number]

    # What rules ask for.

    def saved(self, node: Any, name: str) -> RecipeInput:
        """Return what a node saved under a name, as the handle that we gave for it; None if it saved nothing."""
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
        return LeafInput(value, value._version) if isinstance(value, torch.Tensor) else None

    def edge(self, node: Any, place: int, shape: Sequence[int] | None, dtype: torch.dtype) -> RecipeInput:
        """Return the input of a node at a place: a leaf, a handle on what made it, or a recipe for that."""
        edges = node.next_functions
        before, number = edges[place] if place < len(edges) else (None, 0)
        if before is None:
            return None
        if before.name() == _LEAF:
            return LeafInput(before.variable, before.variable._version)
        known = self._outputs.get((before._sequence_nr(), number))
        handle = None if known is None else known()
        if handle is not None:
            return handle
        return self._build(before, RecipeTarget(shape, dtype)) if number == 0 else None

    def earlier_concatenation(self, node: Any) -> tuple[RecipeInput, int]:
        """Return a saved concatenation of a node's first inputs, and how many they are; (None, 0) if there is none.

        Layers that concatenate all outputs before them, as in a DenseNet, repeat most of it each time.
        """
        inputs = _inputs(node)
        for count in range(len(inputs) - 1, 1, -1):
            known = self._concatenations.get((node._saved_dim, *inputs[:count]))
            handle = None if known is None else known()
            if handle is not None:
                return handle, count
        return None, 0


Rule = Callable[[Any, AutogradGraph, RecipeTarget], Recipe | None]  # of one kind of node


def _inputs(node: Any) -> tuple[tuple[int, int], ...]:
    """Return the inputs of a node, as numbers of the nodes that made them and of their outputs."""
    return tuple(
        (-1 if maker is None else maker._sequence_nr(), number) for maker, number in node.next_functions
    )


@dataclass(frozen=True)
class InPlaceChange:
    """A change in place of a whole storage, as the operation that makes the same result in new memory."""

    op: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]

    def apply(self, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.op(value, *self.args, **dict(self.kwargs))
        return result


def in_place_change(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> InPlaceChange | None:
    """Return an operation in place as one that can be repeated; None if it has other tensors or a part of a storage."""
    tensor, settings, named = args[0], args[1:], tuple(sorted(kwargs.items()))
    simple = all(isinstance(value, (int, float, str, type(None))) for value in (*settings, *kwargs.values()))
    name = func._schema.name.partition("::")[2]
    plain = getattr(getattr(torch.ops.aten, name[:-1], None), func._overloadname, None)
    whole = tensor.nbytes == tensor.untyped_storage().nbytes()
    known = name.endswith("_") and plain is not None
    return InPlaceChange(plain, settings, named) if simple and whole and known else None


def fits_key(key: tuple[str, int], tensor: torch.Tensor, size: int) -> bool:
    """Return whether a saved tensor is the one planned for its site; the plan of a guessed shape has no bytes (-1)."""
    op, expected = key
    return op == made_by(tensor) and expected in (size, -1)


def made_by(tensor: torch.Tensor) -> str:
    """Return the name of the operation that made a tensor, as its node has it."""
    base: Any = tensor._base if tensor._is_view() else tensor
    node = base.grad_fn
    return "input" if node is None else str(node.name()).removesuffix("Backward0")
