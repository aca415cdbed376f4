"""Sources of the models that are served: a file, a store, or a factory in Python.

A source is asked again whenever something may have changed; the stamp tells whether it has.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from weft.errors import ModelError, UsageError
from weft.serve.server.models.loading import Build
from weft.serve.server.models.onnx_runner import OnnxRunner, Runner
from weft.serve.server.options import ModelOptions
from weft.serve.store import Store
from weft.serve.store.catalogue import check_name

ONLY = "1"  # the version of what has no versions


@dataclass(frozen=True)
class Found:
    """A version that could be loaded now."""

    version: str
    stamp: Hashable
    build: Build


class ModelSource(Protocol):
    """Called off the event loop; may take as long as a disk does."""

    @property
    def name(self) -> str: ...

    def find(self, which: str | None) -> Found:
        """The version that a number or an alias means; none: the one that the name stands for."""
        ...


@dataclass(frozen=True)
class FileSource:
    """One ONNX file."""

    name: str
    path: Path

    def find(self, which: str | None) -> Found:
        if which not in (None, ONLY):
            raise ModelError(f"{self.name} is a file and has version {ONLY} only, got {which!r}")
        try:
            state = self.path.stat()
        except OSError as error:
            raise ModelError(
                f"{self.path} must be an ONNX file that can be read: {error.strerror}"
            ) from error
        return Found(ONLY, (state.st_mtime_ns, state.st_size), onnx_build(self.path))


@dataclass(frozen=True)
class StoreSource:
    """A name in a store; by default its `production` version, or the newest where nobody said which."""

    store: Store
    name: str
    which: str | None = None

    def find(self, which: str | None) -> Found:
        which = which or self.which
        if which is None:
            aliases = {alias for entry in self.store.list(self.name) for alias in entry.aliases}
            which = "production" if "production" in aliases else "latest"
        entry = self.store.resolve(f"{self.name}@{which}")
        if entry.is_custom:
            raise ModelError(
                f"{self.name}@{entry.version} must be a graph to be served here, got a custom model, which is "
                "somebody's own code; unpack it and say weft vision deploy FOLDER"
            )

        @cache
        def verify() -> None:  # what was pushed is served, or nothing; read once for all replicas
            self.store.verify(entry)

        def build(options: ModelOptions) -> Runner:
            verify()
            return onnx_build(entry.path)(options)

        return Found(str(entry.version), entry.sha256, build)


@dataclass(frozen=True)
class TorchSource:
    """A factory that makes a torch module: for models that do not export."""

    name: str
    factory: str  # package.module:function

    def find(self, which: str | None) -> Found:
        if which not in (None, ONLY):
            raise ModelError(f"{self.name} is a factory and has version {ONLY} only, got {which!r}")
        from weft.serve.server.models.torch_runner import torch_build

        return Found(ONLY, self.factory, torch_build(self.factory))


def onnx_build(path: Path) -> Build:
    return lambda options: OnnxRunner(path, threads=options.share(), device=options.device)


def source_of(text: str, store: Store | None) -> ModelSource:
    """Return the source that a word names: `model.onnx`, `name=model.onnx`, `name[@alias]` or `module:factory`."""
    name, equals, rest = text.partition("=")
    target = rest if equals else text
    if equals:
        check_name(name)
    if target.endswith(".onnx"):
        path = Path(target)
        if not path.is_file():
            raise UsageError(f"{target} must be an ONNX file, got nothing there; check the path")
        return FileSource(name if equals else path.stem, path)
    if ":" in target:
        return TorchSource(name if equals else target.rpartition(":")[2], target)
    if Path(target).is_file():
        raise UsageError(f"a model in a file must end in .onnx, got {target}; write one with weft export")
    base, _, which = target.partition("@")
    store = store or Store()
    store.resolve(target)  # says what is there, if this is not
    if equals:
        raise UsageError(f"a model of a store keeps its name, got {text!r}; write {target}")
    return StoreSource(store, base, which or None)
