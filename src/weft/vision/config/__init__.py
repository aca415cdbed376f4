"""The configuration of a training, as one typed and printable object: `read_config("flowers.yaml")`."""

from weft.vision.config.names import MODELS, ModelName, model_named
from weft.vision.config.reading import describe, read_config, resolve
from weft.vision.config.schema import (
    AugmentConfig,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    VisionConfig,
)

__all__ = [
    "MODELS",
    "AugmentConfig",
    "ModelConfig",
    "ModelName",
    "OptimizerConfig",
    "ScheduleConfig",
    "VisionConfig",
    "describe",
    "model_named",
    "read_config",
    "resolve",
]
