"""Optimizers with their groups of parameters: rates fall towards the input, norms and biases do not decay."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from weft.vision.config.schema import OptimizerConfig, VisionConfig


def build_optimizer(config: VisionConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of a resolved configuration; every group keeps its highest rate as `full_lr`."""
    settings = config.optimizer
    assert settings.lr is not None
    assert settings.weight_decay is not None
    groups = parameter_groups(settings, model)
    fused = next(model.parameters()).is_cuda
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=True, fused=fused)
    return torch.optim.AdamW(groups, lr=settings.lr, betas=(settings.momentum, 0.999), fused=fused)


def parameter_groups(settings: OptimizerConfig, model: nn.Module) -> list[dict[str, Any]]:
    """Return the groups: by rate, and by whether they decay."""
    rates = _rates(settings, model)
    assert settings.lr is not None
    assert settings.weight_decay is not None
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        lone = parameter.ndim <= 1
        rate = rates.get(id(parameter), 1.0) * settings.lr
        decay = 0.0 if lone else settings.weight_decay
        if settings.bias_scale != 1 and "norm" in name and name.endswith("bias"):
            rate *= settings.bias_scale
            # The pull towards zero stays that of the other parameters, however fast these move.
            decay = settings.weight_decay / settings.bias_scale
        key = (rate, decay)
        group = groups.setdefault(key, {"params": [], "lr": rate, "full_lr": rate, "weight_decay": decay})
        group["params"].append(parameter)
    return list(groups.values())


def _rates(settings: OptimizerConfig, model: nn.Module) -> dict[int, float]:
    """Return the factor of the rate, by parameter, for those of the backbone and of a head whose logits are scaled."""
    backbone = getattr(model, "backbone", None)
    if backbone is None:
        return {}
    found: dict[int, float] = {}
    scale = settings.backbone_scale if settings.backbone_scale is not None else 1.0
    if scale != 1 or settings.layer_decay != 1:
        stages = backbone.stages()
        found = {
            id(parameter): scale * settings.layer_decay ** (len(stages) - 1 - place)
            for place, stage in enumerate(stages)
            for parameter in stage.parameters()
        }
    logit_scale = getattr(model, "logit_scale", 1.0)
    if settings.name != "sgd" and logit_scale != 1:
        # Adam's steps are as long however small the gradient is: logits of a ninth would move at a ninth of the rate.
        found |= {id(parameter): 1 / logit_scale for parameter in model.head.parameters()}  # type: ignore[union-attr]
    return found


def freeze(config: VisionConfig, model: nn.Module) -> None:
    """Stop what the configuration wants unchanged from learning."""
    how, backbone = config.network.freeze, getattr(model, "backbone", None)
    if backbone is None or how == "nothing":
        return
    stages = backbone.stages()
    for stage in stages if how in ("backbone", "all") else stages[: len(stages) // 2]:
        stage.requires_grad_(False)
    if how == "all":
        for name, parameter in model.named_parameters():
            if not name.startswith("head."):
                parameter.requires_grad = False


def still_norms(config: VisionConfig, model: nn.Module) -> None:
    """Keep the statistics of norms that do not learn, or of the whole backbone where asked; called after `train()`."""
    backbone = getattr(model, "backbone", None)
    if backbone is None:
        return
    for part in backbone.modules():
        if isinstance(part, nn.BatchNorm2d):
            learns = any(parameter.requires_grad for parameter in part.parameters())
            if config.network.freeze_norms or not learns:
                part.eval()
