"""The configuration of a training: models of a document, checked field by field.

A field that is None is chosen by the task and the model; `resolve` fills it in, so that a printed configuration says
everything that a training did.
"""

from __future__ import annotations

from typing import Literal

from weft.documents import Document
from weft.errors import UsageError
from weft.vision.records import Split

Task = Literal["classification", "detection", "segmentation", "anomaly"]
ShardChoice = Literal["auto", "never", "always"]
Precision = Literal["float32", "bfloat16", "float16"]


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise UsageError(f"{name} must be a number from {least:g} to {most:g}, got {value:g}")


class ModelConfig(Document, frozen=True):
    """The network, and where its weights begin."""

    name: str | None = None  # of `weft vision models`; one of IBM's names is taken, too
    pretrained: bool | None = None  # ImageNet's weights, where the model has some
    weights: str | None = None  # a model folder or a .safetensors file to begin from
    freeze: Literal["nothing", "backbone", "half", "all"] = (
        "nothing"  # what does not learn; all: a linear head
    )
    freeze_norms: bool = False  # norms keep the statistics that they came with
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _within("model.dropout", self.dropout, 0, 0.99)


class AugmentConfig(Document, frozen=True):
    """Random changes of training pictures; each value is the most that is done."""

    flip: bool | None = None  # left and right
    alternate_flip: bool = False  # each picture in turns, epoch by epoch, after a random first
    vertical_flip: bool = False
    quarter_turns: bool = False
    rotate: float = 0.0  # degrees
    crop: float | None = None  # the share of the picture's area that may be lost
    aspect: float = 0.0  # 0.33: a crop's sides may change by a third
    zoom: float = 0.0  # 0.5: from 1/1.5 to 1.5 times the size
    translate: float = 0.0  # share of the side, or pixels if 1 or more
    brightness: float | None = None
    contrast: float | None = None
    saturation: float | None = None
    erase: float = 0.0  # side of a square that is greyed out: share of the side, or pixels if 1 or more
    mixup: float = 0.0  # alpha of the beta distribution
    cutmix: float = 0.0  # likewise
    stop_before_end: float = 0.1  # mixup and cutmix rest for this last share of the epochs

    def __post_init__(self) -> None:
        _within("augment.crop", self.crop or 0, 0, 0.99)
        _within("augment.rotate", self.rotate, 0, 180)
        _within("augment.stop_before_end", self.stop_before_end, 0, 1)
        for name in (
            "aspect",
            "zoom",
            "translate",
            "brightness",
            "contrast",
            "saturation",
            "erase",
            "mixup",
            "cutmix",
        ):
            value = getattr(self, name)
            if value is not None:
                _within(f"augment.{name}", value, 0, 4096)


class OptimizerConfig(Document, frozen=True):
    """Steps on the loss."""

    name: Literal["adamw", "sgd"] | None = None
    lr: float | None = None  # for the whole batch, at its highest
    momentum: float = 0.9
    weight_decay: float | None = None
    bias_scale: float = 1.0  # rate of the biases of norms, in times of lr
    backbone_scale: float | None = None  # rate of a pretrained backbone, in times of lr
    layer_decay: float = 1.0  # rate of each stage, in times of the next one towards the output
    clip: float | None = None  # the largest norm of gradients

    def __post_init__(self) -> None:
        _within("optimizer.lr", self.lr if self.lr is not None else 1, 0, 1e4)
        _within("optimizer.momentum", self.momentum, 0, 0.9999)
        _within("optimizer.layer_decay", self.layer_decay, 0.01, 1)


class ScheduleConfig(Document, frozen=True):
    """The rate and the sizes over the epochs."""

    epochs: float | None = None  # 0: only the linear head on frozen features
    shape: Literal["cosine", "linear", "constant", "steps"] = "cosine"
    warmup: float = 0.05  # share of all steps in which the rate rises
    start: float = 0.1  # rate at the first step, in times of lr
    final: float = 0.01  # rate at the last step, in times of lr
    sizes: tuple[float, ...] = ()  # progressive: shares of the size, over equal parts of the training
    early_stop: int = 0  # evaluations without a better score after which training ends; 0: never
    evaluate_every: float | None = None  # epochs
    max_minutes: float | None = None  # the rate falls to its end by then, at the speed that is seen

    def __post_init__(self) -> None:
        _within("schedule.epochs", self.epochs if self.epochs is not None else 1, 0, 1e6)
        _within("schedule.warmup", self.warmup, 0, 1)
        for share in self.sizes:
            _within("schedule.sizes", share, 0.1, 2)
        if self.early_stop < 0:
            raise UsageError(f"schedule.early_stop must be at least 0, got {self.early_stop}")


class VisionConfig(Document, frozen=True):
    """One training, whole."""

    data: str = ""  # a folder, a file, a zip, or NAME@VERSION of the library
    shards: ShardChoice = (
        "auto"  # training pictures reduced once into a few files; auto: of sets too large for memory
    )
    task: Task | None = None  # None: what the labels allow
    name: str = ""  # of the model; none: of the data set
    model: ModelConfig | str = ModelConfig()
    augment: AugmentConfig = AugmentConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    size: int | tuple[int, int] | None = None  # pixels of the model's input: a side, or height and width
    batch: int | None = None  # pictures a step, over all workers
    train_on: tuple[Split, ...] = ("train",)
    choose_on: Split = "validation"  # the best epoch; the test split where there is no such picture
    label_smoothing: float | None = None
    ema: float | None = None  # weights are averaged over some 1 / (1 - ema) steps; 0: not
    precision: Precision | None = None
    compile: bool = False
    graphs: bool = (
        False  # a classifier's step on one GPU is recorded once and replayed: small models launch slowly
    )
    seed: int = 0
    test_flips: bool = False  # scores are averaged over the picture and its mirror image
    test_shift: int = 0  # and over the picture moved by so many pixels towards two corners
    first: bool | None = None  # classification begins with a linear head on frozen features
    threads: int | None = None  # that decode pictures

    def __post_init__(self) -> None:
        sides = self.size if isinstance(self.size, tuple) else (self.size,)
        for side in sides:
            if side is not None and not 16 <= side <= 4096:
                raise UsageError(f"size must be 16 to 4096 pixels, got {side}")
        if self.batch is not None and self.batch < 1:
            raise UsageError(f"batch must be at least 1, got {self.batch}")
        _within("label_smoothing", self.label_smoothing or 0, 0, 0.9)
        _within("ema", self.ema or 0, 0, 0.99999)
        _within("test_shift", self.test_shift, 0, 8)
        if not self.train_on:
            raise UsageError("train_on must name at least one split, got none; write train_on: [train]")

    @property
    def network(self) -> ModelConfig:
        """The model's part, also where the file has only a name."""
        return ModelConfig(name=self.model) if isinstance(self.model, str) else self.model

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the model's input, of a resolved configuration."""
        assert self.size is not None
        return self.size if isinstance(self.size, tuple) else (self.size, self.size)
