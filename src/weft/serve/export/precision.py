"""Smaller files: half precision, and int8 with ranges measured on samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import ModelError
from weft.serve.export.file import save
from weft.serve.export.quiet import quiet
from weft.serve.export.sources.samples import Samples

Array = np.ndarray[Any, Any]

CALIBRATED_AT_ONCE = 8  # rows


def to_fp16(source: Path, target: Path, *, external: bool) -> None:
    """Weights and arithmetic in half precision; inputs and outputs stay as they are."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with quiet():
        half = convert_float_to_float16(onnx.load(source), keep_io_types=True)
    save(half, target, external=external)


def to_int8(source: Path, target: Path, samples: Samples, *, external: bool) -> None:
    """Weights by channel and activations by tensor in int8, written as pairs of QuantizeLinear and DequantizeLinear."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = target.with_suffix(".prepared.onnx")
    with quiet():
        try:
            quant_pre_process(
                str(source), str(prepared), skip_symbolic_shape=True, save_as_external_data=external
            )
            quantize_static(
                str(prepared),
                str(target),
                _Reader(samples),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                # Unsigned by signed is what x86 multiplies fastest. Without VNNI it adds pairs of products in 16 bits,
                # which weights of 7 bits cannot overflow.
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                reduce_range=True,
                use_external_data_format=external,
            )
        except Exception as error:
            raise ModelError(f"the model cannot be written as int8: {error}; choose fp32 or fp16") from error


class _Reader:
    """Hands the quantizer one batch after the other, as it asks."""

    def __init__(self, samples: Samples) -> None:
        self._batches: Iterator[dict[str, Array]] = samples.batches(CALIBRATED_AT_ONCE)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._batches, None)
