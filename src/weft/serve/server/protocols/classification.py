"""The classification extension of V2: an output as its best classes, `score:number:label`, in place of all scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.serve.server.protocols.tensors import Array
from weft.serve.server.refusal import RefusalError


def class_count(given: Any) -> int:
    """Return the number of classes that a request asks for."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise RefusalError(400, f"classification must be a number of classes above 0, got {given!r}")
    return given


def classified(scores: Array, count: int, labels: Sequence[str], has_rows: bool) -> Array:
    """Return the `count` best classes, rows x classes or classes alone, best first, as strings."""
    if scores.dtype.kind == "O":
        raise RefusalError(400, "classification must be asked of an output of numbers, got one of strings")
    rows = scores.reshape(len(scores), -1) if has_rows else scores.reshape(1, -1)
    best = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :count]
    named = [
        [_class(row[place], int(place), labels) for place in order]
        for row, order in zip(rows, best, strict=True)
    ]
    found = np.array(named, np.object_).reshape(best.shape)
    return found if has_rows else found[0]


def _class(score: Any, place: int, labels: Sequence[str]) -> str:
    text = f"{float(score):f}:{place}"
    return f"{text}:{labels[place]}" if place < len(labels) else text
