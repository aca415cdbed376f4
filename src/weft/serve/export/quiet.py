"""Silence for torch's exporter and ONNX Runtime's quantizer, whose messages are no news to the person who exports."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

# Missing torchvision, names of axes that are equal, steps of the capture that did not succeed: a failure is raised.
TALKERS = (
    "torch.onnx._internal.exporter._registration",
    "torch.onnx._internal.exporter._core",
    "torch.onnx._internal.exporter._compat",
    "torch.fx.experimental.symbolic_shapes",
    "torch.export",
    "torch._export",
    "torch._export.non_strict_utils",
    "onnxscript",
    "onnx_ir",
)


@contextmanager
def quiet() -> Iterator[None]:
    """Let nothing through but what is raised."""
    loggers = [logging.getLogger(name) for name in TALKERS]
    levels = [logger.level for logger in loggers]
    root = logging.getLogger()  # the quantizer logs there
    root.addFilter(_from_quantizer)
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        # A graph that could not be captured is printed as well.
        unread = io.StringIO()
        with warnings.catch_warnings(), redirect_stderr(unread), redirect_stdout(unread):
            warnings.simplefilter("ignore")
            yield
    finally:
        root.removeFilter(_from_quantizer)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _from_quantizer(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or "onnxruntime" not in record.pathname
