"""Rules for recipes of norms, pools and attention, whose nodes keep only some settings, or the output itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from weft.lms.activations.graph import AutogradGraph, RecipeTarget, Rule
from weft.lms.activations.saved import Recipe, made

aten = torch.ops.aten
EPSILONS = (
    1e-5,
    1e-6,
    1e-12,
    1e-8,
    None,
)  # nodes of norms do not keep theirs; the usual ones are tried in turn


def _layer_norm(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    shape = list(node._saved_normalized_shape)

    def op(
        value: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
    ) -> torch.Tensor:
        return F.layer_norm(value, shape, weight, bias, eps)

    first, *others = (partial(op, eps=eps) for eps in EPSILONS if eps is not None)
    bias = graph.saved(node, "bias") or graph.edge(node, 2, None, target.dtype)
    recipe = made(first, graph.saved(node, "input"), graph.saved(node, "weight"), bias, optional=2)
    return None if recipe is None else Recipe(recipe.op, recipe.inputs, tuple(others))


def _rms_norm(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    shape = list(node._saved_normalized_shape)

    def op(value: torch.Tensor, weight: torch.Tensor | None, eps: float | None) -> torch.Tensor:
        return F.rms_norm(value, shape, weight, eps)

    first, *others = (partial(op, eps=eps) for eps in EPSILONS)
    recipe = made(first, graph.saved(node, "input"), graph.saved(node, "weight"), optional=1)
    return None if recipe is None else Recipe(recipe.op, recipe.inputs, tuple(others))


def _batch_norm(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    cudnn = node.name() == "CudnnBatchNormBackward0"
    eps = node._saved_epsilon if cudnn else node._saved_eps
    if not node._saved_training:
        return None  # in eval mode nobody trains through it for long

    def op(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        # No running statistics: they were updated once, and must not be again.
        return torch.batch_norm(value, weight, bias, None, None, True, 0.0, eps, cudnn)

    bias = graph.edge(node, 2, None, torch.float32)
    return made(op, graph.saved(node, "input"), graph.saved(node, "weight"), bias, optional=2)


def _group_norm(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    groups, eps = node._saved_group, node._saved_eps

    def op(value: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        return F.group_norm(value, groups, weight, bias, eps)

    bias = graph.edge(node, 2, None, target.dtype)
    return made(op, graph.saved(node, "input"), graph.saved(node, "weight"), bias, optional=2)


def _max_pool(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    settings = [getattr(node, f"_saved_{name}") for name in names]
    pool = (
        aten.max_pool2d_with_indices if node.name().startswith("MaxPool2D") else aten.max_pool3d_with_indices
    )
    return made(lambda value: pool(value, *settings)[0], graph.saved(node, "self"))


def _upsample(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    size = list(node._saved_output_size)
    shape = tuple(node._saved_self_sym_sizes)
    return made(lambda value: F.interpolate(value, size=size), graph.edge(node, 0, shape, target.dtype))


def _attention(node: Any, graph: AutogradGraph, target: RecipeTarget) -> Recipe | None:
    """The rule of attention, whose own node saves the output: of its inputs the output can be made again."""
    if node._saved_dropout_p != 0:
        return None  # its random numbers are gone
    causal, scale, name = node._saved_is_causal, node._saved_scale, node.name()
    sources = [graph.saved(node, part) for part in ("query", "key", "value")]
    mask_name = {"ForCpu": "attn_mask", "Cudnn": "attn_bias", "Efficient": "attn_bias"}
    has = next((mask for part, mask in mask_name.items() if part in name), None)
    mask = graph.saved(node, has) if has is not None else None

    def op(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        result: tuple[torch.Tensor, ...]
        if "ForCpu" in name:
            result = aten._scaled_dot_product_flash_attention_for_cpu(
                query, key, value, 0.0, causal, attn_mask=mask, scale=scale
            )
        elif "Cudnn" in name:
            result = aten._scaled_dot_product_cudnn_attention(
                query, key, value, mask, True, 0.0, causal, False, scale=scale
            )
        elif "Efficient" in name:
            result = aten._scaled_dot_product_efficient_attention(
                query, key, value, mask, True, 0.0, causal, scale=scale
            )
        else:
            result = aten._scaled_dot_product_flash_attention(
                query, key, value, 0.0, causal, False, scale=scale
            )
        return result[0]

    return made(op, *sources, mask, optional=1)


NORM_RULES: dict[str, Rule] = {
    "NativeLayerNormBackward0": _layer_norm,
    "FusedRmsNormBackward0": _rms_norm,
    "RmsNormBackward0": _rms_norm,
    "NativeBatchNormBackward0": _batch_norm,
    "CudnnBatchNormBackward0": _batch_norm,
    "NativeGroupNormBackward0": _group_norm,
    "MaxPool2DWithIndicesBackward0": _max_pool,
    "MaxPool3DWithIndicesBackward0": _max_pool,
    "UpsampleNearest2DBackward0": _upsample,
    "UpsampleNearest3DBackward0": _upsample,
    "ScaledDotProductFlashAttentionBackward0": _attention,
    "ScaledDotProductFlashAttentionForCpuBackward0": _attention,
    "ScaledDotProductCudnnAttentionBackward0": _attention,
    "ScaledDotProductEfficientAttentionBackward0": _attention,
}
