"""Weights in a folder of torch.distributed.checkpoint, read without running code that somebody put into it.

The folder's `.metadata` is a pickle. Its unpickler here knows the classes that describe a checkpoint and no others, and
torch reads the tensors themselves with `weights_only`. So a checkpoint of a stranger can be wrong, but it cannot act.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from weft.errors import ModelError
from weft.serve.export.sources.names import some

# module: the names in it that describe a checkpoint
KNOWN = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"},
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath", "PurePosixPath"},
}


class MetadataUnpickler(pickle.Unpickler):
    """Reads the description of a checkpoint, and refuses every other object."""

    def find_class(self, module: str, name: str) -> Any:
        if name in KNOWN.get(module, ()):
            return super().find_class(module, name)
        kind = getattr(torch, name, None) if module == "torch" else None
        if isinstance(kind, torch.dtype):
            return kind
        raise pickle.UnpicklingError(
            f"it wants to use {module}.{name}, which no description of a checkpoint needs"
        )


def read_metadata(file: Any) -> Metadata:
    """Return the description of a checkpoint; each of its files must be inside the folder."""
    metadata = MetadataUnpickler(file).load()
    if not isinstance(metadata, Metadata) or not isinstance(metadata.state_dict_metadata, dict):
        raise pickle.UnpicklingError(f"it holds {type(metadata).__name__} in place of a description")
    for place in (metadata.storage_data or {}).values():
        path = PurePosixPath(place.relative_path)
        if path.is_absolute() or ".." in path.parts:
            raise pickle.UnpicklingError(f"it names {path}, which is outside the folder")
    return metadata


class CheckpointReader(FileSystemReader):
    """Reads a checkpoint's description with `MetadataUnpickler`."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with self.fs.create_stream(self.fs.concat_path(self.path, ".metadata"), "rb") as file:
            metadata = read_metadata(file)
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def read_checkpoint(model: torch.nn.Module, folder: Path) -> Mapping[str, Any]:
    """Return the weights of a model, under whatever key the script has put them in the checkpoint."""
    reader = CheckpointReader(folder)
    try:
        metadata = reader.read_metadata().state_dict_metadata
    except Exception as error:
        raise _refused(folder, error) from error
    stored = {name: what for name, what in metadata.items() if isinstance(what, TensorStorageMetadata)}
    wanted = model.state_dict()
    prefix = _prefix(list(wanted), list(stored))
    names = [name for name in wanted if prefix + name in stored]
    wrong = [name for name in names if tuple(stored[prefix + name].size) != tuple(wanted[name].shape)]
    if wrong:
        raise ModelError(f"{folder} must have the weights of the model, got of another shape {some(wrong)}")
    state = {prefix + name: torch.empty_like(wanted[name], device="cpu") for name in names}
    try:
        with warnings.catch_warnings():  # torch remarks that there is one process
            warnings.simplefilter("ignore")
            load(state, storage_reader=reader, no_dist=True)
    except Exception as error:
        raise _refused(folder, error) from error
    more = {name.removeprefix(prefix) for name in stored if prefix and name.startswith(prefix)} - set(wanted)
    return {name: state[prefix + name] for name in names} | dict.fromkeys(sorted(more))


def _prefix(wanted: list[str], stored: list[str]) -> str:
    """Of all keys that end like the model's first, return the start under which most of the others are."""
    first = next(iter(wanted), "")
    starts = {name.removesuffix(first) for name in stored if name == first or name.endswith(f".{first}")}
    known = set(stored)
    return max(sorted(starts), key=lambda start: sum(start + name in known for name in wanted), default="")


def _refused(folder: Path, error: Exception) -> ModelError:
    said = str(error).splitlines()[0] if str(error) else "no reason given"
    return ModelError(
        f"{folder} must be a checkpoint of torch.distributed, got {type(error).__name__}: {said}"
    )
