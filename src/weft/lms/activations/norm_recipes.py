"""Rules for norms, pools and attention: a node keeps some of their settings only, or has saved the output itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from weft.lms.activations.recipes import EPSILONS, Finder, Recipe, Wanted, made, rule

aten = torch.ops.aten


@rule("NativeLayerNormBackward0")
def _layer_norm(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    shape = list(node._saved_normalized_shape)

    def op(
        value: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
    ) -> torch.Tensor:
        return F.layer_norm(value, shape, weight, bias, eps)

    first, *others = (partial(op, eps=eps) for eps in EPSILONS if eps is not None)
    bias = find.saved(node, "bias") or find.edge(node, 2, None, want.dtype)
    recipe = made(first, find.saved(node, "input"), find.saved(node, "weight"), bias, optional=2)
    return None if recipe is None else Recipe(recipe.op, recipe.inputs, tuple(others))


@rule("FusedRmsNormBackward0", "RmsNormBackward0")
def _rms_norm(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    shape = list(node._saved_normalized_shape)

    def op(value: torch.Tensor, weight: torch.Tensor | None, eps: float | None) -> torch.Tensor:
        return F.rms_norm(value, shape, weight, eps)

    first, *others = (partial(op, eps=eps) for eps in EPSILONS)
    recipe = made(first, find.saved(node, "input"), find.saved(node, "weight"), optional=1)
    return None if recipe is None else Recipe(recipe.op, recipe.inputs, tuple(others))


@rule("NativeBatchNormBackward0", "CudnnBatchNormBackward0")
def _batch_norm(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    cudnn = node.name() == "CudnnBatchNormBackward0"
    eps = node._saved_epsilon if cudnn else node._saved_eps
    if not node._saved_training:
        return None  # cheap to keep: in eval mode nobody trains through it for long

    def op(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        # No running statistics: they were updated once, and must not be again.
        return torch.batch_norm(value, weight, bias, None, None, True, 0.0, eps, cudnn)

    bias = find.edge(node, 2, None, torch.float32)
    return made(op, find.saved(node, "input"), find.saved(node, "weight"), bias, optional=2)


@rule("NativeGroupNormBackward0")
def _group_norm(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    groups, eps = node._saved_group, node._saved_eps

    def op(value: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        return F.group_norm(value, groups, weight, bias, eps)

    bias = find.edge(node, 2, None, want.dtype)
    return made(op, find.saved(node, "input"), find.saved(node, "weight"), bias, optional=2)


@rule("MaxPool2DWithIndicesBackward0", "MaxPool3DWithIndicesBackward0")
def _max_pool(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    settings = [getattr(node, f"_saved_{name}") for name in names]
    pool = (
        aten.max_pool2d_with_indices if node.name().startswith("MaxPool2D") else aten.max_pool3d_with_indices
    )
    return made(lambda value: pool(value, *settings)[0], find.saved(node, "self"))


@rule("UpsampleNearest2DBackward0", "UpsampleNearest3DBackward0")
def _upsample(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    size = list(node._saved_output_size)
    shape = tuple(node._saved_self_sym_sizes)
    return made(lambda value: F.interpolate(value, size=size), find.edge(node, 0, shape, want.dtype))


@rule(
    "ScaledDotProductFlashAttentionBackward0",
    "ScaledDotProductFlashAttentionForCpuBackward0",
    "ScaledDotProductCudnnAttentionBackward0",
    "ScaledDotProductEfficientAttentionBackward0",
)
def _attention(node: Any, find: Finder, want: Wanted) -> Recipe | None:
    """Its own node saves the output, so it is there whenever the output is wanted; the inputs are what counts."""
    if node._saved_dropout_p != 0:
        return None  # its random numbers are gone
    causal, scale, name = node._saved_is_causal, node._saved_scale, node.name()
    sources = [find.saved(node, part) for part in ("query", "key", "value")]
    mask_name = {"ForCpu": "attn_mask", "Cudnn": "attn_bias", "Efficient": "attn_bias"}
    has = next((mask for part, mask in mask_name.items() if part in name), None)
    mask = find.saved(node, has) if has is not None else None

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
