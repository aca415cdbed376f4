"""The classes that a custom model's `train.py` and `deploy.py` derive from, and what they are called with.

`train.py` has a class `MyTrain`, `deploy.py` a class `MyDeploy`; both may import `train_interface` and
`deploy_interface`, which stand for this module. Methods have the names of IBM's contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class TrainCallback:
    """A training: called in the order below, in one process."""

    def onPreprocessing(  # noqa: N802
        self,
        labels: Mapping[str, Any],
        images: Mapping[str, Any],
        workspace_path: str,
        params: Mapping[str, Any],
    ) -> None:
        """Take the data: by path of a picture its category, or a list of objects, and its pixels (RGB)."""

    def onTraining(self, monitor_handler: MonitorHandler) -> None:  # noqa: N802
        """Train, and tell how it goes."""

    def onCompleted(self, model_path: str) -> None:  # noqa: N802
        """Write the model into a folder."""

    def onFailed(self, train_status: str, e: BaseException, tb_message: str) -> None:  # noqa: N802
        """Learn that a step before failed."""


class DeployCallback:
    """A deployment of a trained model."""

    def onModelLoading(self, model_path: str, labels: Any, workspace_path: str) -> None:  # noqa: N802
        """Load the model from its folder."""

    def onTest(self) -> Any:  # noqa: N802
        """Check that the model answers."""

    def onInference(self, image_url: str, params: Mapping[str, Any]) -> Any:  # noqa: N802
        """Answer for a picture: {"label": ..., "confidence": ...}, or a list of objects with boxes."""

    def onFailed(self, deploy_status: str, e: BaseException, tb_message: str) -> None:  # noqa: N802
        """Learn that a step before failed."""


class MonitorHandler:
    """Numbers of a custom training, passed on to the job that it is."""

    def __init__(self, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._tell = tell

    def updateTrainMetrics(  # noqa: N802
        self, current_iter: int, max_iter: int, loss_value: float, epoch: float
    ) -> None:
        step = int(current_iter)
        self._tell(
            {
                "step": step,
                "total": int(max_iter),
                "epoch": float(epoch),
                "loss": float(loss_value),
                "left_s": None,
            }
        )

    def updateTestMetrics(  # noqa: N802
        self, current_iter: int, accuracy: float, loss_value: float, epoch: float
    ) -> None:
        self._tell(
            {
                "step": int(current_iter),
                "epoch": float(epoch),
                "val_accuracy": float(accuracy),
                "val_loss": float(loss_value),
            }
        )
