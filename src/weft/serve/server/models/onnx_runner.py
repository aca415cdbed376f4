"""Something that computes: a runner takes named arrays and gives the outputs in order.

`OnnxRunner` is an ONNX Runtime session with a share of the cores and no spinning; `torch_runner.py` has the other one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from weft.errors import ModelError, UsageError
from weft.serve.card import Card, read_card
from weft.serve.onnx_session import CPU, first_line, open_session
from weft.serve.server.protocols.tensors import BF16, Array, TensorSpec
from weft.serve.server.refusal import RefusalError

ONNX_TYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
    "tensor(bfloat16)": "BF16",
}
_BFLOAT16 = 16  # as ONNX numbers its types


class Runner(Protocol):
    """One replica. `run` is called from one thread at a time, and may take as long as it needs."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    card: Card
    platform: str
    processor: str  # CPU or GPU

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs, in order; a RefusalError where the feeds are to blame."""
        ...


class OnnxRunner:
    """A session of ONNX Runtime."""

    platform = "onnxruntime_onnx"

    def __init__(self, path: Path, *, threads: int, device: str = "auto") -> None:
        import onnxruntime as ort

        providers = _providers(device)
        self.processor = "CPU" if providers == [CPU] else "GPU"
        self._session = open_session(path, threads, providers)
        self._invalid = (
            ort.capi.onnxruntime_pybind11_state.InvalidArgument,
            ort.capi.onnxruntime_pybind11_state.RuntimeException,
            ort.capi.onnxruntime_pybind11_state.Fail,
        )
        self.inputs = tuple(map(_spec, self._session.get_inputs()))
        self.outputs = tuple(map(_spec, self._session.get_outputs()))
        self.card = read_card(self._session.get_modelmeta().custom_metadata_map)
        self._names = [output.name for output in self.outputs]
        if any(spec.datatype == "BF16" for spec in (*self.inputs, *self.outputs)):
            self._run: Callable[..., list[Array]] = self._run_values
        else:
            # The session's own `run` checks once more what was checked when the request came in.
            self._run = getattr(self._session, "_sess", self._session).run

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        # The runtime reads whole values: bytes cut out of a body may begin anywhere.
        for array in feeds.values():
            if not (array.flags.aligned and array.flags.c_contiguous):
                feeds = {name: np.array(array, order="C") for name, array in feeds.items()}
                break
        try:
            results: list[Array] = self._run(self._names, feeds, None)
        except self._invalid as error:
            raise RefusalError(400, f"the model refused its inputs: {first_line(error)}") from None
        return results

    def _run_values(self, names: list[str], feeds: Mapping[str, Array], options: Any) -> list[Array]:
        """The way of BF16, which the runtime neither takes from numpy nor gives to it."""
        given = {name: _value(array) for name, array in feeds.items()}
        return list(map(_array, self._session.run_with_ort_values(names, given, options)))


def _value(array: Array) -> Any:
    import onnxruntime as ort

    if array.dtype == BF16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), _BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def _array(value: Any) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        found: Array = value.numpy()
        return found
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(raw, BF16).reshape(value.shape())


def splits_by_rows(runner: Runner) -> bool:
    """Return whether requests may share a run: the first size of every input and output is free."""
    tensors: tuple[TensorSpec, ...] = (*runner.inputs, *runner.outputs)
    return all(spec.shape and spec.shape[0] == -1 for spec in tensors)


def _providers(device: str) -> list[str]:
    import onnxruntime as ort

    known = ort.get_available_providers()
    cuda = "CUDAExecutionProvider" in known
    if device == "cuda" and not cuda:
        raise UsageError(
            f"device cuda needs an ONNX Runtime with CUDA, got one with {', '.join(known)}; "
            "install onnxruntime-gpu in place of onnxruntime"
        )
    return (["CUDAExecutionProvider"] if cuda and device != "cpu" else []) + [CPU]


def _spec(node: Any) -> TensorSpec:
    if node.type not in ONNX_TYPES:
        raise ModelError(
            f"{node.name!r} must be a tensor of a type that the protocol knows, got {node.type}; "
            "export the model with plain outputs"
        )
    shape = tuple(size if isinstance(size, int) and size >= 0 else -1 for size in node.shape)
    return TensorSpec(node.name, ONNX_TYPES[node.type], shape)
