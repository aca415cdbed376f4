"""The place where a fit runs: on this machine's cores, or on an accelerator. torch is imported only for the latter."""

from __future__ import annotations

import re
import sys
from typing import Any

from weft.errors import UsageError

HOST = "cpu:torch"  # the accelerator's code on this machine's cores: for tests, where there is none


def place_of(device: str | None, X: Any) -> str | None:
    """The torch device to fit on; None: this machine's cores, by Numba.

    A table that lies on an accelerator is fitted there, unless `device` says otherwise.
    """
    if device is None:
        return home_of(X)
    if device == HOST:
        return "cpu"
    if device == "cpu":
        return None
    if not isinstance(device, str) or not re.fullmatch(r"cuda(:\d+)?", device):
        raise ValueError(f"device must be None, 'cpu', 'cuda' or 'cuda:N', got {device!r}")
    _check(device)
    return device


def home_of(X: Any) -> str | None:
    """The accelerator that a table lies on, if any."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(X, torch.Tensor):
        return str(X.device) if X.is_cuda else None
    if type(X).__module__.split(".")[0] == "cudf":
        return "cuda"
    if not hasattr(X, "__cuda_array_interface__"):
        return None
    number = getattr(getattr(X, "device", None), "id", 0)  # CuPy's
    return f"cuda:{number}"


def _check(device: str) -> None:
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            f"device={device!r} must find a GPU that torch can use, got none (torch {torch.__version__}); "
            "leave device out to fit on this machine's cores"
        )
    number = torch.device(device).index or 0
    if number >= torch.cuda.device_count():
        raise UsageError(
            f"device must be one of {torch.cuda.device_count()} GPUs, counted from cuda:0, got {device!r}"
        )
