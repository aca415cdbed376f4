"""Tensors as the V2 protocol writes them: its names of types, and BYTES as strings with their lengths before them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Annotated, Any

import ml_dtypes
import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.serve.server.refusal import RefusalError

Array = NDArray[Any]

MOST_AXES = 32  # sizes of a shape: as many as every numpy has
LARGEST_SIZE = 1 << 40  # of a shape; a tensor without values could have any

BF16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)  # numpy has none of its own

# V2's name, numpy's type; onnxruntime's names are in onnx_runner.py.
NUMPY: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
    "BF16": BF16,
}
NAMES = {kind: name for name, kind in NUMPY.items()}
REALS = {name: kind for name, kind in NUMPY.items() if kind.kind == "f" or kind == BF16}

# A datatype as requests name it. The enumeration is for the OpenAPI document: decoding does not check it, so that the
# refusal of an unknown datatype can name the tensor.
Datatype = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(NUMPY)})]

_PLAIN = {"b": list[bool], "u": list[int], "i": list[int], "f": list[float], "V": list[float], "O": list[str]}
_DECODERS = {name: msgspec.json.Decoder(_PLAIN[kind.kind]) for name, kind in NUMPY.items()}
_ANY = msgspec.json.Decoder()
_LITTLE = {name: kind.newbyteorder("<") for name, kind in NUMPY.items() if name not in ("BOOL", "BYTES")}
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # as v2.py spells them
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model; -1 in the shape is a size that a request chooses."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @cached_property
    def kind(self) -> np.dtype[Any]:
        return NUMPY[self.datatype]

    @cached_property
    def _row(self) -> tuple[int, ...] | None:
        """The shape of a row, where only the number of rows is free."""
        return self.shape[1:] if self.shape and self.shape[0] == -1 and -1 not in self.shape[1:] else None

    def fits(self, shape: tuple[int, ...]) -> bool:
        if shape and shape[1:] == self._row:
            return True
        if len(shape) != len(self.shape):
            return False
        return all(want in (-1, got) for want, got in zip(self.shape, shape, strict=True))


def numpy_type(name: str, datatype: str) -> np.dtype[Any]:
    """The numpy type of a tensor's datatype, or a refusal that lists the known ones."""
    try:
        return NUMPY[datatype]
    except KeyError:
        raise RefusalError(
            400, f"the datatype of {name!r} must be one of {', '.join(NUMPY)}, got {datatype!r}"
        ) from None


def from_json(name: str, datatype: str, shape: Sequence[int], data: msgspec.Raw) -> Array:
    """A tensor from JSON: its values in one list, or in nested ones."""
    kind = numpy_type(name, datatype)
    try:
        values = _DECODERS[datatype].decode(data)
    except msgspec.ValidationError:
        values = _nested(name, datatype, kind, shape, data)
    except msgspec.DecodeError as error:
        raise RefusalError(400, f"the data of {name!r} must be a list: {error}") from None
    try:
        array = np.array(values, dtype=kind)
    except (OverflowError, ValueError, TypeError) as error:
        raise RefusalError(400, f"the data of {name!r} must be {datatype}: {error}") from None
    return _shaped(name, array, shape)


def from_bytes(name: str, datatype: str, shape: Sequence[int], raw: memoryview | bytes) -> Array:
    """A tensor from its bytes, little-endian, in row order; nothing is copied."""
    kind = _LITTLE.get(datatype)
    if kind is not None:
        try:
            array: Array = np.ndarray(shape, kind, raw)
        except (TypeError, ValueError, OverflowError):  # too few bytes, or a shape that is none: said below
            pass
        else:
            if array.nbytes == len(raw) and (raw or elements(name, shape) == 0):
                return array
    kind = numpy_type(name, datatype)
    if datatype == "BYTES":
        return _shaped(name, _strings(name, raw), shape)
    if len(raw) != elements(name, shape) * kind.itemsize:
        raise RefusalError(
            400,
            f"{name!r} of shape {list(shape)} and type {datatype} must be "
            f"{elements(name, shape) * kind.itemsize} bytes, got {len(raw)}",
        )
    return _shaped(name, np.not_equal(np.frombuffer(raw, np.uint8), 0), shape)  # any byte but 0 is true


def to_bytes(array: Array) -> bytes:
    """A tensor's bytes in row order, as the binary extension and gRPC want them."""
    if array.dtype.kind != "O":
        return array.tobytes()
    parts = (value if isinstance(value, bytes) else str(value).encode() for value in array.ravel())
    return b"".join(chain.from_iterable((_LENGTH.pack(len(part)), part) for part in parts))


def elements(name: str, shape: Sequence[int]) -> int:
    """Return how many values a shape holds; sizes that no array can have are refused."""
    if len(shape) > MOST_AXES:
        raise RefusalError(
            400, f"the shape of {name!r} must have at most {MOST_AXES} sizes, got {len(shape)}"
        )
    if shape and min(shape) < 0:
        raise RefusalError(400, f"the shape of {name!r} must have no negative size, got {list(shape)}")
    if shape and max(shape) > LARGEST_SIZE:
        raise RefusalError(400, f"the sizes of {name!r} must be at most {LARGEST_SIZE}, got {list(shape)}")
    return math.prod(shape)


def _shaped(name: str, array: Array, shape: Sequence[int]) -> Array:
    if array.size != elements(name, shape):
        raise RefusalError(
            400, f"{name!r} of shape {list(shape)} must have {math.prod(shape)} values, got {array.size}"
        )
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:  # sizes of which one is 0 and others are huge
        raise RefusalError(400, f"the shape of {name!r} must be one of an array: {error}") from None


def _nested(
    name: str, datatype: str, kind: np.dtype[Any], shape: Sequence[int], data: msgspec.Raw
) -> list[Any]:
    try:
        values = _ANY.decode(data)
        for _ in shape[1:]:
            if values and isinstance(values[0], list):
                values = list(chain.from_iterable(values))
        if datatype in REALS:
            values = [_NOT_FINITE.get(value, value) if isinstance(value, str) else value for value in values]
        found: list[Any] = msgspec.convert(values, _PLAIN[kind.kind])
        return found
    except (msgspec.MsgspecError, TypeError, KeyError, RecursionError) as error:
        raise RefusalError(400, f"the data of {name!r} must be a list of {datatype}: {error}") from None


def _strings(name: str, raw: memoryview | bytes) -> Array:
    values: list[str] = []
    at = 0
    while at < len(raw):
        if at + 4 > len(raw):
            raise RefusalError(400, f"the bytes of {name!r} end inside a length")
        (length,) = _LENGTH.unpack_from(raw, at)
        at += 4
        if at + length > len(raw):
            raise RefusalError(400, f"the bytes of {name!r} end inside a string")
        try:
            values.append(bytes(raw[at : at + length]).decode())
        except UnicodeDecodeError as error:
            raise RefusalError(400, f"the strings of {name!r} must be UTF-8: {error}") from None
        at += length
    array = np.empty(len(values), np.object_)
    array[:] = values
    return array
