"""The content of a part of a checkpoint: pieces of tensors, written and read with torch.distributed.checkpoint.

Without its collectives: a group may break at any time, and all members know by themselves what each of them writes.
Importing this takes seconds, as torch.distributed.checkpoint does, so it is left to whoever writes or reads.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    create_default_global_save_plan,
)
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from weft.elastic.checkpoint.layout import SavedCheckpoint, TornError, verify
from weft.elastic.checkpoint.snapshot import TensorPiece, rows_of
from weft.elastic.replica.state import StateImage, empty_like

REST = "weft.rest"  # what is not tensors


def write(
    folder: Path,
    image: StateImage,
    pieces: Sequence[TensorPiece],
    copies: Sequence[Tensor],
    *,
    with_rest: bool,
) -> None:
    """Fill a part. `copies` are the pieces of the image's tensors, as they were when the copies were made."""
    data = {
        MetadataIndex(image.names[piece.tensor], _offsets(image.tensors[piece.tensor], piece.start)): copy
        for piece, copy in zip(pieces, copies, strict=True)
    }
    items = [_item(image, piece) for piece in pieces]
    if with_rest:
        rest = torch.frombuffer(
            bytearray(pickle.dumps((image.rest, image.table(), image.names))), dtype=torch.uint8
        )
        items.append(_whole(REST, rest))
        data[MetadataIndex(REST, (0,))] = rest
    _write(folder, items, data)


def _offsets(tensor: Tensor, start: int) -> tuple[int, ...]:
    return (start, *[0] * (tensor.ndim - 1)) if tensor.ndim else ()


def _item(image: StateImage, piece: TensorPiece) -> WriteItem:
    tensor = image.tensors[piece.tensor]
    offsets = torch.Size(_offsets(tensor, piece.start))
    chunk = ChunkStorageMetadata(offsets=offsets, sizes=rows_of(tensor, piece).shape)
    return _item_of(image.names[piece.tensor], tensor, chunk)


def _whole(name: str, tensor: Tensor) -> WriteItem:
    chunk = ChunkStorageMetadata(offsets=torch.Size([0] * tensor.ndim), sizes=tensor.shape)
    return _item_of(name, tensor, chunk)


def _item_of(name: str, tensor: Tensor, chunk: ChunkStorageMetadata) -> WriteItem:
    return WriteItem(
        index=MetadataIndex(name, chunk.offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=chunk, properties=TensorProperties(dtype=tensor.dtype), size=tensor.shape
        ),
    )


class _Planner(DefaultSavePlanner):
    """Hands a writer what is already in memory."""

    def __init__(self, data: Mapping[MetadataIndex, Tensor]) -> None:
        super().__init__()
        self._data = data

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        return self._data[write_item.index]


def _write(folder: Path, items: list[WriteItem], data: Mapping[MetadataIndex, Tensor]) -> None:
    """Do what `dcp.save` does in one process, which would warn each time that it is alone."""
    writer = FileSystemWriter(folder)
    writer.set_up_storage_writer(True)
    plans, metadata = create_default_global_save_plan([writer.prepare_local_plan(SavePlan(items))])
    [plan] = writer.prepare_global_plan(plans)
    written = writer.write_data(plan, _Planner(data))
    written.wait()
    writer.finish(metadata, [written.value()])


def join(saved: SavedCheckpoint) -> None:
    """Leave the metadata of the whole for torch's own tools."""
    path = saved.folder / ".metadata"
    draft = path.with_name(f".metadata.{secrets.token_hex(4)}")
    draft.write_bytes(pickle.dumps(_merged(saved)))
    draft.replace(path)


def read(saved: SavedCheckpoint) -> StateImage:
    """The state in a checkpoint; TornError if it is not what was written."""
    verify(saved)
    try:
        metadata = _merged(saved)
        about_rest = metadata.state_dict_metadata[REST]
        assert isinstance(about_rest, TensorStorageMetadata)
        room = torch.empty(about_rest.size, dtype=torch.uint8)
        _read(saved.folder, metadata, {REST: room})
        rest, table, names = pickle.loads(room.numpy().tobytes())
        tensors = empty_like(table)
        wanted = {name: tensor for name, tensor in zip(names, tensors, strict=True) if tensor.nbytes}
        _read(saved.folder, metadata, wanted)
    except Exception as error:  # torch's readers raise whatever they meet
        raise TornError(f"{saved.folder} must be a checkpoint of ours, got {error!r}") from error
    return StateImage(rest, tensors, names)


class _Parts(FileSystemReader):
    """Reads several parts as one checkpoint."""

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        super().__init__(folder)
        self._metadata = metadata

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self._metadata


def _read(folder: Path, metadata: Metadata, into: dict[str, Any]) -> None:
    """Do what `dcp.load` does in one process."""
    reader, planner = _Parts(folder, metadata), DefaultLoadPlanner()
    planner.set_up_planner(into, metadata, True)
    reader.set_up_storage_reader(metadata, True)
    plans = planner.create_global_plan([reader.prepare_local_plan(planner.create_local_plan())])
    [plan] = reader.prepare_global_plan(plans)
    reader.read_data(planner.finish_plan(plan), planner).wait()


def _merged(saved: SavedCheckpoint) -> Metadata:
    """One metadata for all parts."""
    tensors: dict[str, Any] = {}
    places: dict[MetadataIndex, Any] = {}
    for part in saved.parts:
        with (part / ".metadata").open("rb") as file:
            metadata = pickle.load(file)
        for name, value in metadata.state_dict_metadata.items():
            before = tensors.setdefault(name, replace(value, chunks=[]))
            assert isinstance(before, TensorStorageMetadata)
            before.chunks.extend(value.chunks)
        for place, info in metadata.storage_data.items():
            path = f"{part.name}/{info.relative_path}"
            places[MetadataIndex(place.fqn, place.offset)] = replace(info, relative_path=path)
    return Metadata(tensors, storage_data=places, version=metadata.version)
