"""Rules for recipes: how to make the output of an operation again from what autograd saved before it.

The output of an operation can be made again from the operation's inputs, and the node that autograd made for it knows
them: some it saved itself, others are outputs of the nodes it points at. A rule gets the node, the graph to find inputs
in, and the target that the result must look like. Whether a recipe gives the same bits is tried at each site when a
step is first recorded, so a rule that is wrong somewhere costs a try, never a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from weft.lms.activations.graph import AutogradGraph, RecipeTarget, Rule
from weft.lms.activations.norm_recipes import NORM_RULES
from weft.lms.activations.saved import Recipe, made


def _unary(op: Callable[..., torch.Tensor], *settings: str) -> Rule:
    """Return the rule of an operation whose node saved its input."""

    def build(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
        given = {name: getattr(node, f"_saved_{name}") for name in settings}
        return made(partial(op, **given), graph.saved(node, "self"))

    return build


def _of_edge(op: Callable[..., torch.Tensor], *settings: str) -> Rule:
    """Return the rule of an operation whose node saved its output at most: the node before it makes the input."""

    def build(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
        given = {name: getattr(node, f"_saved_{name}") for name in settings}
        return made(partial(op, **given), graph.edge(node, 0, target.shape, target.dtype))

    return build


def _dim(value: int) -> int:
    """Return a dimension that a node kept: negative numbers are kept as unsigned ones."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _softmax(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    op = torch.softmax if node.name() == "SoftmaxBackward0" else torch.log_softmax
    return made(
        partial(op, dim=_dim(node._saved_dim), dtype=target.dtype),
        graph.edge(node, 0, target.shape, target.dtype),
    )


def _cast(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    return made(lambda value: value.to(target.dtype), graph.edge(node, 0, target.shape, target.dtype))


def _view(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    if target.shape is None:
        return None
    shape = tuple(target.shape)
    return made(
        lambda value: value.view(shape), graph.edge(node, 0, tuple(node._saved_self_sym_sizes), target.dtype)
    )


def _transposed(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    shape = None if target.shape is None else tuple(target.shape)[::-1]
    return made(lambda value: value.t(), graph.edge(node, 0, shape, target.dtype))


def _transposed_dims(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    first, second = _dim(node._saved_dim0), _dim(node._saved_dim1)
    shape = None if target.shape is None else list(target.shape)
    if shape is not None:
        shape[first], shape[second] = shape[second], shape[first]
    return made(lambda value: value.transpose(first, second), graph.edge(node, 0, shape, target.dtype))


def _sliced(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    dim, start, end, step = (getattr(node, f"_saved_{name}") for name in ("dim", "start", "end", "step"))
    whole = graph.edge(node, 0, tuple(node._saved_self_sym_sizes), target.dtype)
    return made(lambda value: torch.ops.aten.slice(value, _dim(dim), start, end, step), whole)


def _negative(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    return made(torch.neg, graph.edge(node, 0, target.shape, target.dtype))


def _product(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    op = torch.mul if node.name() == "MulBackward0" else torch.div
    left = graph.saved(node, "self") or graph.edge(node, 0, target.shape, target.dtype)
    right = graph.saved(node, "other") or graph.edge(node, 1, target.shape, target.dtype)
    return made(op, left, right)


def _sum(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    op = partial(torch.add if node.name() == "AddBackward0" else torch.sub, alpha=node._saved_alpha)
    edges = [graph.edge(node, place, target.shape, target.dtype) for place in (0, 1)]
    return made(op, *edges)


def _concatenation(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    dim = _dim(node._saved_dim)
    before, count = graph.earlier_concatenation(node)
    rest = [graph.edge(node, place, None, target.dtype) for place in range(count, len(node.next_functions))]
    return made(lambda *values: torch.cat(values, dim), *(rest if before is None else [before, *rest]))


def _dropout(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    scale = 0.0 if node._saved_p == 1 else 1.0 / (1.0 - node._saved_p)
    # The backward of dropout scales by the mask just as the forward does.
    return made(
        lambda value, mask: torch.ops.aten.native_dropout_backward(value, mask, scale),
        graph.edge(node, 0, target.shape, target.dtype),
        graph.saved(node, "result1"),
    )


def _embedding(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    return made(
        lambda indices, weight: F.embedding(indices, weight),
        graph.saved(node, "indices"),
        graph.edge(node, 0, None, target.dtype),
    )


def _linear(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    op = partial(torch.addmm, beta=node._saved_beta, alpha=node._saved_alpha)
    left = graph.saved(node, "mat1") or graph.edge(node, 1, None, target.dtype)
    right = graph.saved(node, "mat2") or graph.edge(node, 2, None, target.dtype)
    return made(op, graph.edge(node, 0, None, target.dtype), left, right)


def _matmul(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    op = torch.mm if node.name() == "MmBackward0" else torch.bmm
    left = graph.saved(node, "self") or graph.edge(node, 0, None, target.dtype)
    right = graph.saved(node, "mat2") or graph.edge(node, 1, None, target.dtype)
    return made(op, left, right)


def _convolution(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    stride, padding, dilation, transposed, output_padding, groups = (
        getattr(node, f"_saved_{name}") for name in names
    )

    def op(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        result: torch.Tensor = torch.ops.aten.convolution(
            value, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
        return result

    bias = graph.edge(node, 2, None, target.dtype)
    if bias is None and node._saved_bias_sym_sizes_opt not in (None, [0], (0,)):
        return None
    return made(op, graph.saved(node, "input"), graph.saved(node, "weight"), bias, optional=1)


# By the name of the node that an operation made.
RULES: dict[str, Rule] = {
    **NORM_RULES,
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
    "SoftmaxBackward0": _softmax,
    "LogSoftmaxBackward0": _softmax,
    "ToCopyBackward0": _cast,
    "ViewBackward0": _view,
    "UnsafeViewBackward0": _view,
    "ReshapeAliasBackward0": _view,
    "TBackward0": _transposed,
    "TransposeBackward0": _transposed_dims,
    "SliceBackward0": _sliced,
    "NegBackward0": _negative,
    "MulBackward0": _product,
    "DivBackward0": _product,
    "AddBackward0": _sum,
    "SubBackward0": _sum,
    "CatBackward0": _concatenation,
    "NativeDropoutBackward0": _dropout,
    "EmbeddingBackward0": _embedding,
    "AddmmBackward0": _linear,
    "MmBackward0": _matmul,
    "BmmBackward0": _matmul,
    "ConvolutionBackward0": _convolution,
}
