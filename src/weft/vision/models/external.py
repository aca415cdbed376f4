"""Models of torchvision, timm and transformers as classifiers, where those packages are installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor, nn

from weft.errors import ModelError
from weft.vision.config.schema import ModelConfig
from weft.vision.models.layers import PixelScale


class ExternalClassifier(nn.Module):
    """A network of another package behind our scaling of pixels."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.scale, self.net = PixelScale(), net

    def forward(self, pixels: Tensor) -> Tensor:
        out: Any = self.net(self.scale(pixels))
        logits: Tensor = out if isinstance(out, Tensor) else out.logits
        return logits


def external(config: ModelConfig, classes: int, *, masks: bool) -> nn.Module:
    """Build `torchvision:NAME`, `timm:NAME` or `transformers:CONFIGURATION FILE`."""
    assert config.name is not None
    package, _, name = config.name.partition(":")
    try:
        if package == "timm":
            net = import_module("timm").create_model(name, num_classes=classes)
        elif package == "torchvision":
            net = import_module("torchvision").models.get_model(name, num_classes=classes)
        else:
            kind = import_module("transformers")
            settings = kind.AutoConfig.from_pretrained(name, num_labels=classes, local_files_only=True)
            net = kind.AutoModelForImageClassification.from_config(settings)
    except ImportError as error:
        raise ModelError(
            f"{package} must be installed for {config.name}: {error}; choose one of our models"
        ) from error
    except (RuntimeError, ValueError, OSError, KeyError) as error:
        raise ModelError(f"{config.name} must be a model that {package} knows: {error}") from error
    return ExternalClassifier(net)
