"""ONNX Runtime, so that it leaves room for others: threads that wait asleep, and as many as we may use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.errors import ModelError

CPU = "CPUExecutionProvider"


def usable_cores() -> int:
    """Cores this process may use: its affinity, and what a container's quota leaves of them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return cores


def open_session(path: Path, threads: int, providers: Sequence[str] = (CPU,)) -> Any:
    """A session of ONNX Runtime over a model file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that spin while they wait take the cores from everybody else.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.log_severity_level = 4  # what fails is raised
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=list(providers))
    except Exception as error:  # its exceptions have no root of their own
        raise ModelError(f"{path} must be a model that ONNX Runtime can load: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line that says something."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)[:500]
