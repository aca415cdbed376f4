"""Read a configuration from a file, and fill in what it leaves open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from weft.documents import read_document
from weft.errors import UsageError
from weft.vision.config.names import IBM_SEGMENTS, ModelName, model_named
from weft.vision.config.schema import AugmentConfig, OptimizerConfig, ScheduleConfig, VisionConfig
from weft.vision.records import DatasetVersion

_FEW = 400  # training pictures under which a classifier is a linear head on frozen features


def read_config(path: str | Path) -> VisionConfig:
    """Return the configuration in a YAML, TOML or JSON file; a path of data in it begins at the file's folder."""
    config = read_document(Path(path), VisionConfig)
    beside = Path(path).parent / config.data
    return replace(config, data=str(beside)) if config.data and beside.exists() else config


def describe(config: VisionConfig) -> dict[str, Any]:
    """Return a configuration as plain data, for files and `--json`."""
    plain = msgspec.to_builtins(config)
    assert isinstance(plain, dict)
    return plain


def task_of(config: VisionConfig, version: DatasetVersion) -> str:
    """Return the task: as asked, by the model's name, or what the labels allow."""
    if config.task is not None:
        return config.task
    name = config.network.name
    if name is not None:
        if name.lower() in IBM_SEGMENTS:
            return "segmentation"
        tasks = model_named(name)[0].tasks
        if "classification" not in tasks or name.lower() == "anomaly":
            return "anomaly" if name.lower() == "anomaly" else "detection"
    return "classification" if version.categories or not version.labels else "detection"


def resolve(config: VisionConfig, version: DatasetVersion, device: str = "cpu") -> VisionConfig:
    """Return the configuration with every choice made, for this data set and this kind of device."""
    task = task_of(config, version)
    usual = "detector" if task in ("detection", "segmentation") else "efficientnet-lite0"
    model, _ = model_named(config.network.name or usual)
    if task not in model.tasks:
        raise UsageError(
            f"model must be one for {task}, got {model.name}, which is for {', '.join(model.tasks)}"
        )
    pictures = sum(picture.split in config.train_on for picture in version.pictures)
    detects = task in ("detection", "segmentation")
    gpu = device == "cuda"
    pretrained = model.pretrained if config.network.pretrained is None else config.network.pretrained
    first = (task == "classification" and pretrained) if config.first is None else config.first
    batch = config.batch or (16 if detects else max(8, min(64, pictures // 8)) if pictures < 2000 else 256)
    return replace(
        config,
        task=task,
        name=config.name or version.name,
        model=replace(config.network, name=model.name, pretrained=pretrained),
        augment=_augment(config.augment, model, detects=detects),
        optimizer=_optimizer(config.optimizer, pretrained=pretrained, detects=detects),
        schedule=_schedule(config.schedule, task, pictures, gpu=gpu, first=first),
        size=config.size or model.size,
        batch=min(batch, pictures or batch),
        label_smoothing=0.1
        if config.label_smoothing is None and not detects
        else config.label_smoothing or 0.0,
        ema=0.998 if config.ema is None else config.ema,
        precision=config.precision or ("bfloat16" if gpu else "float32"),
        first=first,
    )


def _augment(given: AugmentConfig, model: ModelName, *, detects: bool) -> AugmentConfig:
    small = model.size == 32
    colour = 0.0 if small else 0.2
    return replace(
        given,
        flip=True if given.flip is None else given.flip,
        crop=(0.0 if detects or small else 0.5) if given.crop is None else given.crop,
        brightness=colour if given.brightness is None else given.brightness,
        contrast=colour if given.contrast is None else given.contrast,
        saturation=colour if given.saturation is None else given.saturation,
    )


def _optimizer(given: OptimizerConfig, *, pretrained: bool, detects: bool) -> OptimizerConfig:
    return replace(
        given,
        name=given.name or "adamw",
        lr=given.lr if given.lr is not None else (1e-3 if detects else 5e-4 if pretrained else 2e-3),
        weight_decay=0.05 if given.weight_decay is None else given.weight_decay,
        backbone_scale=(0.3 if pretrained else 1.0) if given.backbone_scale is None else given.backbone_scale,
        clip=(10.0 if detects else 5.0) if given.clip is None else given.clip,
    )


def _schedule(given: ScheduleConfig, task: str, pictures: int, *, gpu: bool, first: bool) -> ScheduleConfig:
    if task in ("detection", "segmentation"):
        epochs = 120.0 if gpu else 30.0
    else:
        # A linear head on few pictures is as good as fine-tuning, and there in seconds.
        epochs = 0.0 if first and pictures < _FEW and not gpu else 15.0 if first else 60.0
    chosen = epochs if given.epochs is None else given.epochs
    return replace(given, epochs=chosen, evaluate_every=given.evaluate_every or max(1.0, chosen / 20))
