"""A model file asked as the model it was made from is: arrays by name, and how long an answer takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from weft.errors import ModelError
from weft.serve.onnx_session import first_line, open_session, usable_cores

Array = np.ndarray[Any, Any]


class ModelSession:
    """A model in ONNX Runtime on the CPU: arrays by name in, arrays by name out."""

    def __init__(self, path: Path, threads: int = 0) -> None:
        self.threads = threads or usable_cores()
        self._session = open_session(path, self.threads)
        self.inputs = tuple(self._session.get_inputs())
        self.outputs = tuple(self._session.get_outputs())

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        names = [output.name for output in self.outputs]
        try:
            return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))
        except Exception as error:
            shapes = {name: list(array.shape) for name, array in inputs.items()}
            raise ModelError(
                f"the model must run on inputs of shapes {shapes}: {first_line(error)}"
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
