"""Modules that forks of a server had to import: the server imports them, too, and forks from then on have them.

A program that is run by several workers, or by several tests, so pays for its imports twice and no more. Only modules
of packages that a fork may inherit are learned: those that start no thread and read no variable when they are loaded.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

TIMES = 2  # a module is learned when so many forks have imported it
PACKAGES = sys.stdlib_module_names | {
    "accelerate", "alembic", "anyio", "cloudpickle", "fsspec", "httpcore", "httpx", "llvmlite", "msgspec", "numba",
    "numpy", "onnx", "onnx_ir", "onnxscript", "optree", "optuna", "pandas", "psutil", "pyarrow", "safetensors", "scipy",
    "sklearn", "sqlalchemy", "starlette", "sympy", "torch", "transformers", "uvicorn", "weft", "yaml",
}  # fmt: skip
# onnxruntime and gRPC have threads, Keras chooses its backend when it is loaded, and OpenCV sets a variable.
NEVER = ("cv2", "grpc", "keras", "onnxruntime")


class Learned:
    """What forks tell of, in a folder that a server shares with them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._heard: set[str] = set()
        self._counts: Counter[str] = Counter()
        folder.mkdir(exist_ok=True)

    def tell(self, modules: Sequence[str]) -> None:
        """Note, in a fork that ends, which modules it imported."""
        if names := learnable(modules):
            told = self._folder / f"{os.getpid()}-{time.monotonic_ns()}.json"  # hosts have pids of their own
            with suppress(OSError):  # the server has ended
                told.with_suffix(".new").write_text(json.dumps(names))
                told.with_suffix(".new").rename(told)

    def due(self) -> list[str]:
        """Return the modules that enough forks have told of since the last call."""
        with suppress(OSError):  # the folder goes when the tests end
            for path in self._folder.glob("*.json"):
                if path.name not in self._heard:
                    self._heard.add(path.name)
                    self._counts.update(json.loads(path.read_text()))
        return [name for name in _ready(self._counts) if name not in sys.modules]


def learnable(modules: Sequence[str]) -> list[str]:
    """Return those of some modules, in their order, that a server may import. Pure."""
    roots = {name.partition(".")[0] for name in modules}
    packages: Collection[str] = PACKAGES - {"weft"} if roots & set(NEVER) else PACKAGES
    return [name for name in modules if name.partition(".")[0] in packages and not _is_barred(name)]


def _is_barred(name: str) -> bool:
    return any(part in name for part in NEVER)


def _ready(counts: Counter[str]) -> Iterable[str]:
    return (name for name, count in counts.items() if count >= TIMES)


def import_all(modules: Iterable[str]) -> None:
    """Import modules as far as that is possible: some exist only in the program that made them."""
    for name in modules:
        with suppress(Exception):
            importlib.import_module(name)
