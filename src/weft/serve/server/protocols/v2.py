"""Inference requests and answers of the open inference protocol V2, in JSON with or without binary tensors.

With the binary extension the JSON comes first, `Inference-Header-Content-Length` says how long it is, and the bytes of
the tensors follow in order, each as long as its `binary_data_size`. Pure: bytes in, arrays out, and back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from weft.serve.server.protocols.classification import class_count
from weft.serve.server.protocols.tensors import (
    BF16,
    NAMES,
    REALS,
    Array,
    Datatype,
    TensorSpec,
    from_bytes,
    from_json,
    to_bytes,
)
from weft.serve.server.refusal import RefusalError

_LONGEST_US = 1e15  # microseconds: what a request may ask for, 31 years; the model's own bound is shorter
NOTHING = msgspec.Raw(b"")


class InputTensor(msgspec.Struct):
    """An input of a request: its values in `data`, or in the bytes after the JSON."""

    name: str
    shape: list[int]
    datatype: Datatype
    parameters: dict[str, Any] | None = None
    data: Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "array"})] = msgspec.field(
        default_factory=lambda: NOTHING
    )


class OutputChoice(msgspec.Struct):
    """An output that a request asks for."""

    name: str
    parameters: dict[str, Any] | None = None


class InferRequest(msgspec.Struct):
    """The JSON of an inference request."""

    inputs: list[InputTensor]
    id: str | None = None
    parameters: dict[str, Any] | None = None
    outputs: list[OutputChoice] | None = None


class OutputTensor(msgspec.Struct, omit_defaults=True):
    """An output of an answer: its values in `data`, or in the bytes after the JSON."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    parameters: dict[str, Any] | None = None
    # NaN, Infinity and -Infinity as Python's json module and Triton write them: JSON has no words of its own.
    data: list[Any] | None = None


class InferResponse(msgspec.Struct, omit_defaults=True):
    """The JSON of an answer to an inference request."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    id: str | None = None


class Ask(msgspec.Struct):
    """An inference request after parsing: its tensors, and the outputs it asks for."""

    feeds: dict[str, Array]
    id: str | None = None
    outputs: tuple[str, ...] = ()  # none: all of the model's
    binary: frozenset[str] | None = frozenset()  # outputs wanted as bytes; None: all
    timeout_s: float | None = None
    classes: dict[str, int] = {}  # best classes wanted in place of scores, by output


class PlainTensor(msgspec.Struct):
    """An input as most requests bring it: numbers in one list."""

    name: str
    shape: list[int]
    datatype: str
    data: list[float]
    parameters: dict[str, Any] | None = None


class PlainBody(msgspec.Struct):
    """The JSON of most requests."""

    inputs: list[PlainTensor]
    id: str | None = None
    parameters: dict[str, Any] | None = None
    outputs: list[OutputChoice] | None = None


_PLAIN = msgspec.json.Decoder(PlainBody)
_BODY = msgspec.json.Decoder(InferRequest)
_ENCODER = msgspec.json.Encoder()


def parse_infer(body: bytes, header_length: int | None = None) -> Ask:
    """A request from its body; the header's length is there where binary tensors follow the JSON."""
    if header_length is None and (ask := _plain(body)) is not None:
        return ask
    if header_length is not None and not 0 <= header_length <= len(body):
        raise RefusalError(
            400, f"Inference-Header-Content-Length must be 0 to {len(body)}, got {header_length}"
        )
    view = memoryview(body)
    text = body if header_length is None else view[:header_length]
    try:
        request = _BODY.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if (found := _with_infinities(bytes(text))) is None:
            raise RefusalError(400, f"the request must be JSON of an inference request: {error}") from None
        request = found
    feeds: dict[str, Array] = {}
    at = header_length if header_length is not None else len(body)
    for tensor in request.inputs:
        if tensor.name in feeds:
            raise RefusalError(400, f"each input must be given once, got {tensor.name!r} twice")
        check_memory(tensor.parameters)
        size = (tensor.parameters or {}).get("binary_data_size")
        if size is None:
            feeds[tensor.name] = from_json(tensor.name, tensor.datatype, tensor.shape, tensor.data)
            continue
        if not isinstance(size, int) or size < 0 or at + size > len(body):
            raise RefusalError(
                400,
                f"binary_data_size of {tensor.name!r} must be within the body's {len(body) - at} bytes "
                f"that are left, got {size}",
            )
        feeds[tensor.name] = from_bytes(tensor.name, tensor.datatype, tensor.shape, view[at : at + size])
        at += size
    if at != len(body):
        raise RefusalError(400, f"the body must end after its tensors, got {len(body) - at} bytes more")
    return _ask(request, feeds)


def _with_infinities(text: bytes) -> InferRequest | None:
    """Read JSON with NaN and Infinity in it, as Python's json module writes them; None: it is no JSON even so."""
    if b"NaN" not in text and b"Infinity" not in text:
        return None
    try:
        whole = json.loads(text)
        for tensor in whole["inputs"]:
            if "data" in tensor:
                tensor["data"] = msgspec.Raw(_ENCODER.encode(_spelled(tensor["data"])))
        return msgspec.convert(whole, InferRequest)
    except (ValueError, TypeError, KeyError, RecursionError):  # msgspec's errors are ValueErrors
        return None


def _spelled(values: Any) -> Any:
    """Return nested lists in which numbers that JSON cannot write are strings that numpy can read."""
    if isinstance(values, list):
        return [_spelled(value) for value in values]
    return str(values) if isinstance(values, float) and not math.isfinite(values) else values


def _plain(body: bytes) -> Ask | None:
    """The short way: real numbers in flat lists, read in one go. None: something else, or something wrong."""
    try:
        request = _PLAIN.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    feeds: dict[str, Array] = {}
    for tensor in request.inputs:
        kind = REALS.get(tensor.datatype)
        if (
            kind is None
            or tensor.name in feeds
            or tensor.parameters  # binary data, or something that is not supported
        ):
            return None
        try:
            feeds[tensor.name] = np.array(tensor.data, kind).reshape(tensor.shape)
        except (ValueError, OverflowError):
            return None
        if -1 in tensor.shape:  # numpy would find out; we want it said
            return None
    return _ask(request, feeds)


def _ask(request: InferRequest | PlainBody, feeds: dict[str, Array]) -> Ask:
    if request.parameters is None and request.outputs is None:
        return Ask(feeds=feeds, id=request.id)
    parameters = request.parameters or {}
    check_parameters(parameters)
    everything = parameters.get("binary_data_output") is True
    timeout_s = timeout_of(parameters) if "timeout" in parameters else None
    if not request.outputs:
        return Ask(
            feeds=feeds, id=request.id, binary=None if everything else frozenset(), timeout_s=timeout_s
        )
    classes: dict[str, int] = {}
    for choice in request.outputs:
        check_memory(choice.parameters)
        if choice.parameters and "classification" in choice.parameters:
            classes[choice.name] = class_count(choice.parameters["classification"])
    binary = frozenset(
        choice.name
        for choice in request.outputs
        if (choice.parameters or {}).get("binary_data", everything) is True
    )
    outputs = tuple(choice.name for choice in request.outputs)
    return Ask(
        feeds=feeds, id=request.id, outputs=outputs, binary=binary, timeout_s=timeout_s, classes=classes
    )


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters of a request that would change its answer and are not supported."""
    if parameters.get("sequence_id"):
        raise RefusalError(501, "sequences are not supported, got sequence_id; each request stands alone")


def check_memory(parameters: Container[str] | None) -> None:
    """Refuse a tensor that lies in shared memory."""
    if parameters and "shared_memory_region" in parameters:
        raise RefusalError(501, "shared memory is not supported; send tensors in the request")


def timeout_of(parameters: Mapping[str, Any]) -> float | None:
    """The request's own bound: `timeout`, in microseconds as Triton has it."""
    timeout = parameters.get("timeout")
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        raise RefusalError(400, f"timeout must be a number of microseconds above 0, got {timeout!r}")
    return min(timeout, _LONGEST_US) / 1e6


def format_infer(
    name: str, version: str, ask: Ask, results: Sequence[tuple[str, Array]]
) -> tuple[bytes, int | None]:
    """The answer's body, and the length of its JSON where binary tensors follow it."""
    tensors: list[OutputTensor] = []
    raw: list[bytes] = []
    for output, array in results:
        tensor = OutputTensor(output, NAMES[array.dtype], array.shape)
        if ask.binary is None or output in ask.binary:
            raw.append(to_bytes(array))
            tensor.parameters = {"binary_data_size": len(raw[-1])}
        else:
            tensor.data = array.ravel().tolist()
        tensors.append(tensor)
    text = _ENCODER.encode(InferResponse(name, version, tensors, ask.id))
    if b"null" in text and not _all_finite(results):
        text = json.dumps(msgspec.to_builtins(InferResponse(name, version, tensors, ask.id))).encode()
    if not raw:
        return text, None
    return b"".join([text, *raw]), len(text)


def _all_finite(results: Sequence[tuple[str, Array]]) -> bool:
    return all(
        np.isfinite(array).all() for _, array in results if array.dtype.kind == "f" or array.dtype == BF16
    )


def check_feeds(feeds: Mapping[str, Array], inputs: Mapping[str, TensorSpec]) -> None:
    """Refuse what the model cannot take: a wrong name, type or shape."""
    for name, array in feeds.items():
        spec = inputs.get(name)
        if spec is None:
            raise RefusalError(400, f"inputs must be among {', '.join(inputs)}, got {name!r}")
        if array.dtype != spec.kind:
            raise RefusalError(
                400, f"input {name!r} must be {spec.datatype}, got {NAMES.get(array.dtype, array.dtype)}"
            )
        if not spec.fits(array.shape):
            raise RefusalError(
                400, f"input {name!r} must have the shape {list(spec.shape)}, got {list(array.shape)}"
            )
    if len(feeds) != len(inputs):
        missing = [name for name in inputs if name not in feeds]
        raise RefusalError(400, f"every input must be given, got none for {', '.join(missing)}")


def check_tokens(feeds: Mapping[str, Array], limit: int) -> None:
    """Refuse rows of more token numbers than the model was made for."""
    for name, array in feeds.items():
        if array.dtype.kind == "i" and array.ndim > 1 and array.shape[1] > limit:
            raise RefusalError(
                400, f"input {name!r} must have at most {limit} tokens a row, got {array.shape[1]}"
            )
