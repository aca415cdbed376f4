"""The classes that a custom model's `train.py` and `deploy.py` derive from, and what they are called with.

`train.py` has a class `MyTrain`, `deploy.py` a class `MyDeploy`; both may import `train_interface` and
`deploy_interface`, which stand for this module. Methods, and what they get, are those of IBM's contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What a training by IBM's products hands over as params where nothing else was asked for: text, as there.
USUAL_PARAMS: Mapping[str, str] = {
    "max_iter": "1500",
    "learning_rate": "0.001",
    "weight_decay": "0.0005",
    "momentum": "0.9",
    "test_iteration": "100",
    "test_interval": "20",
}


@dataclass
class AnnotatedObject:
    """A labelled object of a picture."""

    label: str
    bbox: list[float]  # xmin, ymin, xmax, ymax in pixels
    segment_polygons: list[list[list[float]]]  # rings of [x, y]; none where only a box was drawn


@dataclass
class Annotation:
    """A picture with its labelled objects, as a detector's `onPreprocessing` gets it."""

    filename: str  # the path of the picture, which is upright
    size: tuple[int, int, int]  # height, width, channels
    objects: list[AnnotatedObject]

    @property
    def object(self) -> list[AnnotatedObject]:
        return self.objects

    @property
    def image_size(self) -> tuple[int, int, int]:
        return self.size


class TrainCallback:
    """A training: called in the order below, in one process."""

    def onPreprocessing(  # noqa: N802
        self,
        labels: Mapping[str, int],
        images: Mapping[str, str] | Sequence[Annotation],
        workspace_path: str,
        params: Mapping[str, Any],
    ) -> None:
        """Take the data: class indices by name, and of each picture its category by path, or its annotation."""

    def onTraining(self, monitor_handler: MonitorHandler) -> None:  # noqa: N802
        """Train, and tell how it goes."""

    def onCompleted(self, model_path: str) -> None:  # noqa: N802
        """Write the model into a folder."""

    def onFailed(self, train_status: str, e: BaseException, tb_message: str) -> None:  # noqa: N802
        """Learn that a step before failed."""


class DeployCallback:
    """A deployment of a trained model."""

    def onModelLoading(self, model_path: str, labels: Mapping[int, str], workspace_path: str) -> None:  # noqa: N802
        """Load the model from its folder; `labels` has class names by index."""

    def onTest(self) -> Any:  # noqa: N802
        """Answer that the model is there."""

    def onInference(self, image_url: str, params: Mapping[str, Any]) -> Any:  # noqa: N802
        """Answer for a picture: {"label": ..., "confidence": ...}, or a list of objects with boxes."""

    def onFailed(self, deploy_status: str, e: BaseException, tb_message: str) -> None:  # noqa: N802
        """Learn that a step before failed."""


class MonitorHandler:
    """Numbers of a custom training, passed on to the job that it is.

    Classifiers tell (iter, max_iter, loss, epoch) and (iter, accuracy, loss, epoch); detectors (iter, max_iter,
    loss of classes, loss of boxes, epoch) and (mAP). Names are passed over: IBM's own pages disagree about them.
    """

    def __init__(self, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._tell = tell
        self._step = 0

    def updateTrainMetrics(self, *numbers: float, **named: float) -> None:  # noqa: N802
        step, most, *losses, epoch = _plain_numbers("updateTrainMetrics", numbers, named, (4, 5))
        self._step = int(step)
        values = {"step": self._step, "total": int(most), "epoch": epoch, "loss": sum(losses)}
        if len(losses) == 2:
            values |= {"loss_classes": losses[0], "loss_boxes": losses[1]}
        self._tell({**values, "left_s": None})

    def updateTestMetrics(self, *numbers: float, **named: float) -> None:  # noqa: N802
        given = _plain_numbers("updateTestMetrics", numbers, named, (1, 4))
        if len(given) == 1:
            self._tell({"step": self._step, "val_map50": given[0]})
            return
        step, accuracy, loss, epoch = given
        self._tell({"step": int(step), "epoch": epoch, "val_accuracy": accuracy, "val_loss": loss})


def _plain_numbers(
    name: str, numbers: tuple[float, ...], named: Mapping[str, float], counts: tuple[int, int]
) -> list[float]:
    """Return what was told, in the order of the call; numbers of NumPy and of frameworks become plain ones."""
    given = [*numbers, *named.values()]
    if len(given) not in counts:
        raise TypeError(f"{name} must get {counts[0]} or {counts[1]} numbers, got {len(given)}")
    return [float(one) for one in given]
