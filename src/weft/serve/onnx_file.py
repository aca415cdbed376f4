"""Metadata of an ONNX file and the files its weights lie in, read without the onnx package, which a server may lack.

An ONNX file is one protobuf message. We step over its fields and look into the few we need, so that a model of
gigabytes is listed in a moment and a file that is cut short is found out.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from weft.errors import ModelError

# Field numbers of the messages in onnx.proto.
IR_VERSION, GRAPH, METADATA, FUNCTION = 1, 7, 14, 25  # ModelProto
NODE, INITIALIZER, SPARSE = 1, 5, 15  # GraphProto
FUNCTION_NODE = 7  # FunctionProto
ATTRIBUTE = 5  # NodeProto
TENSOR, SUBGRAPH, TENSORS, SUBGRAPHS = 5, 6, 10, 11  # AttributeProto
SPARSE_VALUES, SPARSE_INDICES = 1, 2  # SparseTensorProto
EXTERNAL = 13  # TensorProto
KEY, VALUE = 1, 2  # StringStringEntryProto

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types

Span = tuple[int, int]


def read_metadata(path: Path) -> dict[str, str]:
    """The `metadata_props` of an ONNX file."""
    with _opened(path) as data:
        return dict(_pair(data, span) for span in _spans(data, (0, len(data)), METADATA))


def external_files(path: Path) -> tuple[str, ...]:
    """Names of the files beside an ONNX file that hold weights of it, sorted."""
    found: set[str] = set()
    with _opened(path) as data:
        for tensor in _tensors(data):
            pairs = dict(_pair(data, span) for span in _spans(data, tensor, EXTERNAL))
            if "location" in pairs:
                found.add(pairs["location"])
    for name in found:
        if len(PurePosixPath(name).parts) != 1 or name in (".", "..") or "\\" in name:
            raise ModelError(f"weights must lie in the model's own folder, got {name!r} in {path}")
    return tuple(sorted(found))


def _tensors(data: mmap.mmap) -> Iterator[Span]:
    """Each tensor of a file: of its graph, of graphs inside nodes, and of functions."""
    graphs: list[Span] = []
    nodes: list[Span] = []
    for number, span in _fields(data, (0, len(data))):
        if number == GRAPH:
            graphs.append(span)
        elif number == FUNCTION:
            nodes += _spans(data, span, FUNCTION_NODE)
    while graphs or nodes:
        if not nodes:
            for number, span in _fields(data, graphs.pop()):
                if number == INITIALIZER:
                    yield span
                elif number == SPARSE:
                    yield from _fields_of(data, span, SPARSE_VALUES, SPARSE_INDICES)
                elif number == NODE:
                    nodes.append(span)
            continue
        for attribute in _spans(data, nodes.pop(), ATTRIBUTE):
            yield from _fields_of(data, attribute, TENSOR, TENSORS)
            graphs += _fields_of(data, attribute, SUBGRAPH, SUBGRAPHS)


def _fields_of(data: mmap.mmap, message: Span, *wanted: int) -> Iterator[Span]:
    return (span for number, span in _fields(data, message) if number in wanted)


def size_with_weights(path: Path) -> int:
    """Bytes of an ONNX file and of the files that hold weights of it."""
    total = path.stat().st_size
    for name in external_files(path):
        try:
            total += path.with_name(name).stat().st_size
        except OSError as error:
            raise ModelError(
                f"{path} must have its weights beside it, got no {path.with_name(name)}"
            ) from error
    return total


class _TornError(Exception):
    """The bytes are not a whole message."""


@contextmanager
def _opened(path: Path) -> Iterator[mmap.mmap]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if not {IR_VERSION, GRAPH} <= {number for number, _ in _fields(data, (0, len(data)))}:
                raise ModelError(
                    f"{path} must be an ONNX file, got one with no graph in it; write it again with weft export"
                )
            yield data
    except FileNotFoundError as error:
        raise ModelError(f"{path} must be an ONNX file, got nothing there; check the path") from error
    except OSError as error:
        raise ModelError(f"{path} must be an ONNX file that can be read: {error.strerror}") from error
    except _TornError as error:
        raise ModelError(
            f"{path} must be a whole ONNX file, got {error}; it is cut short or something else"
        ) from error
    except ModelError:
        raise
    except ValueError as error:  # nothing at all cannot be mapped
        raise ModelError(
            f"{path} must be an ONNX file, got an empty one; write it again with weft export"
        ) from error


def _spans(data: mmap.mmap, message: Span, wanted: int) -> Iterator[Span]:
    return (span for number, span in _fields(data, message) if number == wanted)


def _pair(data: mmap.mmap, span: Span) -> tuple[str, str]:
    parts = {number: data[start:end].decode(errors="replace") for number, (start, end) in _fields(data, span)}
    return parts.get(KEY, ""), parts.get(VALUE, "")


def _fields(data: mmap.mmap, span: Span) -> Iterator[tuple[int, Span]]:
    """Each field of the message at `span`: its number, and where its value lies."""
    at, end = span
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        start = at
        if wire == VARINT:
            _, at = _varint(data, at, end)
        elif wire == BYTES:
            length, start = _varint(data, at, end)
            at = start + length
        elif wire in (FIXED64, FIXED32):
            at += 8 if wire == FIXED64 else 4
        else:
            raise _TornError(f"a field of unknown kind at byte {start}")
        if at > end or number == 0:
            raise _TornError(f"a field that goes past the end at byte {start}")
        yield number, (start, at)


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _TornError(f"a number with no end at byte {at}")
