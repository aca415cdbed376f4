"""ONNX Runtime, so that it leaves room for others: threads that wait asleep, and as many as we may use."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from weft.errors import ModelError

Array = np.ndarray[Any, Any]


def threads_here() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Session:
    """A model in ONNX Runtime on the CPU: arrays by name in, arrays by name out."""

    def __init__(self, path: Path, threads: int = 0) -> None:
        import onnxruntime

        self.threads = threads or threads_here()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what fails is raised
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no root of their own
            raise ModelError(
                f"{path} must be a model that ONNX Runtime can load: {_first_line(error)}"
            ) from error
        self.inputs = tuple(self._session.get_inputs())
        self.outputs = tuple(self._session.get_outputs())

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        names = [output.name for output in self.outputs]
        try:
            return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))
        except Exception as error:
            shapes = {name: list(array.shape) for name, array in inputs.items()}
            raise ModelError(
                f"the model must run on inputs of shapes {shapes}: {_first_line(error)}"
            ) from error

    def latency_ms(self, inputs: Mapping[str, Array], repeats: int) -> float:
        """The median time of one run, after a few that do not count."""
        for _ in range(min(3, repeats)):
            self(inputs)
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            self(inputs)
            times.append(time.perf_counter() - began)
        return median(times) * 1e3


def _first_line(error: Exception) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)[:300]
