"""How to make a saved tensor again from what autograd saved before it.

The output of an operation can be rebuilt from the operation's inputs, and the node that autograd made for it knows
them: some it saved itself, others are outputs of the nodes it points at. A recipe is such an operation on handles,
parameters and other recipes; it holds no node. Whether it gives the same bits is tried at each site when the step is
first recorded, so a rule that is wrong somewhere costs a try, never a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812

from weft.lms.activations.saved import Handle, Kept, Record, check_version
from weft.lms.paging.page import KeptPage, Page, page_of

EPSILONS = (1e-5, 1e-6, 1e-12, 1e-8, None)  # norms do not save theirs; the usual ones are tried
DEPTH = 12  # of recipes within recipes


@dataclass(frozen=True, eq=False)
class Leaf:
    """A parameter, or a constant."""

    tensor: torch.Tensor
    version: int

    def value(self) -> torch.Tensor:
        check_version(self.tensor, self.version)
        page = page_of(self.tensor)
        if page is not None:
            page.desk.want([page], "a recipe")
            return page.alias.detach()
        if self.tensor.numel() and not self.tensor.untyped_storage().nbytes():
            raise RuntimeError(
                "a parameter must stay on the device while what depends on it may be rebuilt, got one whose memory "
                "was freed between the forward and the backward pass; use a limit at which nothing is rebuilt"
            )
        return self.tensor.detach()


@dataclass(frozen=True, eq=False)
class Recipe:
    """An operation, and what it is done to."""

    op: Callable[..., torch.Tensor]
    inputs: tuple[Input, ...]
    variants: tuple[Callable[..., torch.Tensor], ...] = ()  # other ways, where a setting is not known
    first: int = 0  # the number of the first way, where others are known not to be it

    def records(self) -> dict[int, Record]:
        """What may be away and must be there, by site."""
        found: dict[int, Record] = {}
        for value in self.inputs:
            if isinstance(value, Handle):
                if value.record is not None:
                    found[value.site] = value.record
            elif isinstance(value, Recipe):
                found |= value.records()
        return found

    def pages(self) -> list[Page]:
        """Parameters that come and go, and must be there, too."""
        found: list[Page] = []
        for value in self.inputs:
            if isinstance(value, Leaf):
                page = page_of(value.tensor)
                found += [] if page is None else [page]
            elif isinstance(value, KeptPage):
                found.append(value.page)
            elif isinstance(value, Recipe):
                found += value.pages()
        return list(dict.fromkeys(found))

    def sources(self) -> set[int]:
        """The sites that must be there."""
        return set(self.records())

    def likeness(self) -> Hashable:
        """The same for recipes that do the same work to tensors of the same shapes, as far as one can tell."""
        return tuple(_likeness(value) for value in self.inputs)

    def whole(self) -> tuple[Recipe, ...]:
        """This recipe, and its variants as recipes of their own."""
        return (self, *(Recipe(op, self.inputs) for op in self.variants))


Input = Handle | Kept | Leaf | Recipe | None


def _likeness(value: Input) -> Hashable:
    if value is None or isinstance(value, Recipe):
        return None if value is None else value.likeness()
    if isinstance(value, Handle) and value.record is not None:
        return tuple(value.size), value.stride, value.dtype
    assert value.tensor is not None
    return tuple(value.tensor.shape), value.tensor.stride(), value.tensor.dtype


class Finder(Protocol):
    """What rules may ask for."""

    def saved(self, node: Any, name: str) -> Input:
        """What a node saved under this name, as the handle we gave; None if it saved nothing."""
        ...

    def edge(self, node: Any, place: int, shape: Sequence[int] | None, dtype: torch.dtype) -> Input:
        """The output of the node that made an input."""
        ...

    def joined_before(self, node: Any) -> tuple[Input, int]:
        """The first inputs of a node as an earlier one joined them, and how many they are; None if none did."""
        ...


@dataclass(frozen=True)
class Wanted:
    """What the result must look like."""

    shape: Sequence[int] | None
    dtype: torch.dtype


Rule = Callable[[Any, Finder, Wanted], "Recipe | None"]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return add


def made(op: Callable[..., torch.Tensor], *inputs: Input, optional: int = 0) -> Recipe | None:
    """A recipe if all its inputs are known; the last `optional` ones may be missing."""
    required = inputs[: len(inputs) - optional]
    return None if any(value is None for value in required) else Recipe(op, inputs)


def _unary(op: Callable[..., torch.Tensor], *settings: str) -> Rule:
    """An operation whose node saved its input."""

    def build(node: Any, find: Finder, want: Wanted) -> Recipe | None:
        given = {name: getattr(node, f"_saved_{name}") for name in settings}
        return made(partial(op, **given), find.saved(node, "self"))

    return build


def _of_edge(op: Callable[..., torch.Tensor], *settings: str) -> Rule:
    """An operation whose node saved its output at most: its input is what the node before it makes."""

    def build(node: Any, find: Finder, want: Wanted) -> Recipe | None:
        given = {name: getattr(node, f"_saved_{name}") for name in settings}
        return made(partial(op, **given), find.edge(node, 0, want.shape, want.dtype))

    return build


RULES |= {
    "GeluBackward0": _unary(F.gelu, "approximate"),
    "SiluBackward0": _unary(F.silu),
    "LeakyReluBackward0": _unary(F.leaky_relu, "negative_slope"),
    "LeakyReluBackward1": _of_edge(F.leaky_relu, "negative_slope"),  # in place
    "HardswishBackward0": _unary(F.hardswish),
    "HardtanhBackward0": _unary(F.hardtanh, "min_val", "max_val"),
    "EluBackward0": _of_edge(F.elu, "alpha"),
    "EluBackward1": _of_edge(F.elu, "alpha"),
    "MishBackward0": _unary(F.mish),
    "SoftplusBackward0": _unary(F.softplus, "beta", "threshold"),
    "PowBackward0": _unary(torch.pow, "exponent"),
    "ReluBackward0": _of_edge(torch.relu),
    "TanhBackward0": _of_edge(torch.tanh),
    "SigmoidBackward0": _of_edge(torch.sigmoid),
    "ExpBackward0": _of_edge(torch.exp),
    "RsqrtBackward0": _of_edge(torch.rsqrt),
    "CloneBackward0": _of_edge(torch.clone),
}


def _dim(value: int) -> int:
    """Nodes keep negative numbers as unsigned ones."""
    return value - (1 << 64) if value >= 1 << 63 else value


@rule("SoftmaxBackward0", "LogSoftmaxBackward0")
def _softmax(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    op = torch.softmax if node.name() == "SoftmaxBackward0" else torch.log_softmax
    return made(
        partial(op, dim=_dim(node._saved_dim), dtype=want.dtype), find.edge(node, 0, want.shape, want.dtype)
    )


@rule("ToCopyBackward0")
def _cast(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    return made(lambda value: value.to(want.dtype), find.edge(node, 0, want.shape, want.dtype))


@rule("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0")
def _view(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    if want.shape is None:
        return None
    shape = tuple(want.shape)
    return made(
        lambda value: value.view(shape), find.edge(node, 0, tuple(node._saved_self_sym_sizes), want.dtype)
    )


@rule("TBackward0")
def _transposed(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    shape = None if want.shape is None else tuple(want.shape)[::-1]
    return made(lambda value: value.t(), find.edge(node, 0, shape, want.dtype))


@rule("TransposeBackward0")
def _swapped(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    first, second = _dim(node._saved_dim0), _dim(node._saved_dim1)
    shape = None if want.shape is None else list(want.shape)
    if shape is not None:
        shape[first], shape[second] = shape[second], shape[first]
    return made(lambda value: value.transpose(first, second), find.edge(node, 0, shape, want.dtype))


@rule("SliceBackward0")
def _sliced(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    dim, start, end, step = (getattr(node, f"_saved_{name}") for name in ("dim", "start", "end", "step"))
    whole = find.edge(node, 0, tuple(node._saved_self_sym_sizes), want.dtype)
    return made(lambda value: torch.ops.aten.slice(value, _dim(dim), start, end, step), whole)


@rule("NegBackward0")
def _negative(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    return made(torch.neg, find.edge(node, 0, want.shape, want.dtype))


@rule("MulBackward0", "DivBackward0")
def _product(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    op = torch.mul if node.name() == "MulBackward0" else torch.div
    left = find.saved(node, "self") or find.edge(node, 0, want.shape, want.dtype)
    right = find.saved(node, "other") or find.edge(node, 1, want.shape, want.dtype)
    return made(op, left, right)


@rule("AddBackward0", "SubBackward0")
def _sum(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    op = partial(torch.add if node.name() == "AddBackward0" else torch.sub, alpha=node._saved_alpha)
    edges = [find.edge(node, place, want.shape, want.dtype) for place in (0, 1)]
    return made(op, *edges)


@rule("CatBackward0")
def _joined(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    dim = _dim(node._saved_dim)
    before, count = find.joined_before(node)
    rest = [find.edge(node, place, None, want.dtype) for place in range(count, len(node.next_functions))]
    return made(lambda *values: torch.cat(values, dim), *(rest if before is None else [before, *rest]))


@rule("NativeDropoutBackward0")
def _dropout(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    scale = 0.0 if node._saved_p == 1 else 1.0 / (1.0 - node._saved_p)
    # The backward of dropout scales by the mask just as the forward does.
    return made(
        lambda value, mask: torch.ops.aten.native_dropout_backward(value, mask, scale),
        find.edge(node, 0, want.shape, want.dtype),
        find.saved(node, "result1"),
    )


@rule("EmbeddingBackward0")
def _embedding(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    return made(
        lambda indices, weight: F.embedding(indices, weight),
        find.saved(node, "indices"),
        find.edge(node, 0, None, want.dtype),
    )


@rule("AddmmBackward0")
def _linear(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    op = partial(torch.addmm, beta=node._saved_beta, alpha=node._saved_alpha)
    left = find.saved(node, "mat1") or find.edge(node, 1, None, want.dtype)
    right = find.saved(node, "mat2") or find.edge(node, 2, None, want.dtype)
    return made(op, find.edge(node, 0, None, want.dtype), left, right)


@rule("MmBackward0", "BmmBackward0")
def _matmul(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    op = torch.mm if node.name() == "MmBackward0" else torch.bmm
    left = find.saved(node, "self") or find.edge(node, 0, None, want.dtype)
    right = find.saved(node, "mat2") or find.edge(node, 1, None, want.dtype)
    return made(op, left, right)


@rule("ConvolutionBackward0")
def _convolution(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    stride, padding, dilation, transposed, output_padding, groups = (
        getattr(node, f"_saved_{name}") for name in names
    )

    def op(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        result: torch.Tensor = torch.ops.aten.convolution(
            value, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
        return result

    bias = find.edge(node, 2, None, want.dtype)
    if bias is None and node._saved_bias_sym_sizes_opt not in (None, [0], (0,)):
        return None
    return made(op, find.saved(node, "input"), find.saved(node, "weight"), bias, optional=1)
