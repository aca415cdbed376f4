"""Samples: rows a model is checked on, taken from the caller, from files, or made up from a shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import ModelError
from weft.serve.card import Picture
from weft.text import format_size

Array = np.ndarray[Any, Any]

TRUTH = "y"  # in an .npz: the true class numbers
MADE_UP = 8  # rows, where there are only shapes
LARGEST_BATCH = 4 << 30  # bytes of the rows that are asked at once
PICTURES = (".jpg", ".jpeg", ".png")
KINDS = {"float32": np.float32, "int64": np.int64, "int32": np.int32, "uint8": np.uint8, "bool": np.bool_}


@dataclass(frozen=True)
class Samples:
    """Arrays whose first axis is rows, as many in each, by the name of the input; `#0` is the first of unnamed ones."""

    inputs: Mapping[str, Array]
    truth: Array | None = None
    made_up: bool = False

    def __post_init__(self) -> None:
        if not self.inputs:
            raise ModelError("samples must have at least one array, got none")
        for name, array in self.inputs.items():
            if array.ndim < 1 or len(array) < 1:
                raise ModelError(
                    f"samples must have rows along their first axis, got {_named(name)} of shape {list(array.shape)}"
                )
        counts = {name: len(array) for name, array in self.inputs.items()}
        if len(set(counts.values())) > 1:
            raise ModelError(f"samples must have as many rows for each input, got {counts}")
        if self.truth is not None and self.truth.shape != (self.count,):
            raise ModelError(
                f"true classes must be one a row, {self.count} of them, got shape {list(self.truth.shape)}"
            )

    def check_finite(self, *, missing: bool) -> None:
        """Refuse values that are not finite, on which every answer looks alike; NaN may be `missing` to a table."""
        for name, array in self.inputs.items():
            if array.dtype.kind != "f":
                continue
            bad = np.isinf(array) if missing else ~np.isfinite(array)
            if bad.any():
                place = tuple(int(i) for i in np.argwhere(bad)[0])
                raise ModelError(
                    f"samples must be finite numbers, got {array[place]} in {_named(name)} at {list(place)}; "
                    "give rows like those the model will see"
                )

    def check_batches(self, batches: Sequence[int]) -> None:
        """Refuse batches that would fill the memory."""
        row = sum(array[:1].nbytes for array in self.inputs.values())
        if row * max(batches) > LARGEST_BATCH:
            raise ModelError(
                f"batches must take at most {format_size(LARGEST_BATCH)}, got {max(batches)} rows of "
                f"{format_size(row)}; check smaller ones"
            )

    @property
    def count(self) -> int:
        return len(next(iter(self.inputs.values())))

    def rows(self, count: int, start: int = 0) -> dict[str, Array]:
        """So many rows from the start-th on; after the last comes the first again."""
        places = (start + np.arange(count)) % self.count
        return {name: array[places] for name, array in self.inputs.items()}

    def batches(self, size: int) -> Iterator[dict[str, Array]]:
        """All rows, once."""
        for start in range(0, self.count, size):
            yield self.rows(min(size, self.count - start), start)


def samples_from(given: Any) -> Samples:
    """A tensor or array, several of them for as many inputs, a mapping by name of input, or samples as they are."""
    if isinstance(given, Samples):
        return given
    if isinstance(given, Mapping):
        return Samples({str(name): _array(value) for name, value in given.items()})
    if isinstance(given, tuple) or (isinstance(given, list) and given and hasattr(given[0], "shape")):
        # Unnamed ones are told apart by their place, until the model says what they are called.
        return Samples({f"#{place}": _array(value) for place, value in enumerate(given)})
    return Samples({"#0": _array(given)})


def _array(value: Any) -> Array:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ModelError(f"samples must be numbers, got {array.dtype}")
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _named(name: str) -> str:
    return f"input {name[1:]}" if name.startswith("#") else name


def make_up(shapes: Sequence[str], rows: int = MADE_UP, seed: int = 0) -> Samples:
    """Random rows of shapes written `3,224,224` or `NAME=16:int64:1000`: name, shape, type, and below what number."""
    random = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for place, text in enumerate(shapes):
        name, equals, rest = text.rpartition("=")
        shape, kind, below = _shape(text, rest)
        size = rows * math.prod(shape) * np.dtype(KINDS[kind]).itemsize
        if size > LARGEST_BATCH:
            raise ModelError(
                f"a shape must take at most {format_size(LARGEST_BATCH)} for {rows} rows, got {text!r}; "
                "give a smaller one"
            )
        array: Array
        if kind.startswith("float"):
            array = random.standard_normal((rows, *shape), dtype=np.float32)
        else:
            array = random.integers(0, 2 if kind == "bool" else below, (rows, *shape)).astype(KINDS[kind])
        made[name if equals else f"#{place}"] = array
    return Samples(made, made_up=True)


def _shape(text: str, rest: str) -> tuple[tuple[int, ...], str, int]:
    parts = rest.split(":")
    try:
        shape = tuple(int(side) for side in parts[0].split(",") if side.strip())
        kind = parts[1] if len(parts) > 1 else "float32"
        below = int(parts[2]) if len(parts) > 2 else 2
        if kind not in KINDS or min((*shape, below)) < 1 or len(parts) > 3:
            raise ValueError
    except ValueError as error:
        raise ModelError(
            "a shape must look like 3,224,224 or NAME=16:int64:1000 (shape of one row, type, below what number), "
            f"got {text!r}; types: {', '.join(KINDS)}"
        ) from error
    return shape, kind, below


def read_samples(path: Path, picture: Picture | None = None, labels: Sequence[str] = ()) -> Samples:
    """Rows from an .npy, from an .npz (arrays by name of input, `y` the true classes), or from pictures in a folder."""
    if path.is_dir():
        return _read_pictures(path, picture, labels)
    arrays = _read_arrays(path)
    truth = arrays.pop(TRUTH, None) if len(arrays) > 1 else None
    return Samples({name: _array(array) for name, array in arrays.items()}, truth)


def _read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz by their names, or the one of an .npy."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"#0": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except FileNotFoundError as error:
        raise ModelError(
            f"samples must be in an .npy or .npz file or a folder of pictures, got no {path}"
        ) from error
    # Of a damaged file: numpy and zipfile raise errors of a dozen kinds, among them those of Python's tokenizer.
    except Exception as error:
        raise ModelError(
            f"samples must be in an .npy or .npz file, got {path}: {error}; save them again"
        ) from error


def _read_pictures(folder: Path, picture: Picture | None, labels: Sequence[str]) -> Samples:
    """Pictures of a folder; where they lie in folders named as the labels, these are the true classes."""
    if picture is None:
        raise ModelError(
            f"how pictures become tensors must be said for a folder of them, {folder}; give --picture"
        )
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES)
    if not paths:
        raise ModelError(f"{folder} must have pictures ({', '.join(PICTURES)}), got none")
    from weft.serve.export.pictures import read_picture

    rows = np.stack([read_picture(path, picture) for path in paths])
    classes = {label: number for number, label in enumerate(labels)}
    homes = [path.parent.name for path in paths]
    truth = np.array([classes[home] for home in homes]) if all(home in classes for home in homes) else None
    return Samples({"#0": rows}, truth)
