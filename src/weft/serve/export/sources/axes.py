"""The axes of the inputs that stay open in the file: rows always, sides and lengths where asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.errors import ModelError
from weft.serve.card import Picture

Array = np.ndarray[Any, Any]
Axes = Mapping[str, Mapping[int, str]]  # input: {axis: name}

BATCH = "batch"
SIDES = {"height": {"NCHW": 2, "NHWC": 1}, "width": {"NCHW": 3, "NHWC": 2}}
LENGTH = "length"


def open_axes(
    inputs: Mapping[str, Array], dynamic: Sequence[str] | Axes, picture: Picture | None = None
) -> dict[str, dict[int, str]]:
    """The open axes of each input.

    Words: `height` and `width` of inputs with four axes, `length` of the second axis of inputs of numbered tokens, or
    of all inputs with more than one axis where there are no tokens. A mapping says it for itself.
    """
    axes = {name: {0: BATCH} for name in inputs}
    if isinstance(dynamic, Mapping):
        for name, more in dynamic.items():
            if name not in axes:
                raise ModelError(f"dynamic axes must be of an input, {', '.join(axes)}; got {name!r}")
            axes[name].update(more)
        _check(axes, inputs)
        return axes
    for word in dynamic:
        found = _axes_of(word, inputs, picture.layout if picture else "NCHW")
        if not found:
            raise ModelError(f"an input must have the axis {word!r} that shall stay open, got none that has")
        for name, axis in found.items():
            axes[name][axis] = word
    return axes


def _axes_of(word: str, inputs: Mapping[str, Array], layout: str) -> dict[str, int]:
    if word in SIDES:
        return {name: SIDES[word][layout] for name, array in inputs.items() if array.ndim == 4}
    if word == LENGTH:
        long = {name: array for name, array in inputs.items() if array.ndim > 1}
        tokens = {name: array for name, array in long.items() if array.dtype.kind in "iu"}
        # A mask beside the tokens has their length, whatever its type.
        lengths = {array.shape[1] for array in tokens.values()}
        return {name: 1 for name, array in long.items() if not tokens or array.shape[1] in lengths}
    if word == BATCH:
        return dict.fromkeys(inputs, 0)
    raise ModelError(f"a dynamic axis must be {', '.join([*SIDES, LENGTH])} or INPUT.AXIS=NAME, got {word!r}")


def parse_dynamic(words: Sequence[str]) -> Sequence[str] | Axes:
    """Words as they are; `ids.1=length` and the like as a mapping."""
    named = [word for word in words if "=" in word]
    if not named:
        return words
    if len(named) != len(words):
        raise ModelError(f"dynamic axes must be all words or all INPUT.AXIS=NAME, got {', '.join(words)}")
    axes: dict[str, dict[int, str]] = {}
    for word in named:
        place, _, name = word.partition("=")
        owner, _, axis = place.rpartition(".")
        if not owner or not axis.isdecimal() or not name.isidentifier():
            raise ModelError(f"a dynamic axis must look like INPUT.AXIS=NAME, ids.1=length say, got {word!r}")
        axes.setdefault(owner, {})[int(axis)] = name
    return axes


def _check(axes: Axes, inputs: Mapping[str, Array]) -> None:
    for name, open_ones in axes.items():
        for axis in open_ones:
            if not 0 <= axis < inputs[name].ndim:
                raise ModelError(
                    f"{name} must have the axis {axis}, got the shape {list(inputs[name].shape)}"
                )


def smaller(inputs: Mapping[str, Array], axes: Axes) -> dict[str, Array] | None:
    """The inputs cut to another size along their open axes other than rows; None where there are none."""
    cut = dict(inputs)
    for name, open_ones in axes.items():
        for axis in open_ones:
            if axis:
                size = another_size(cut[name].shape[axis])
                cut[name] = np.ascontiguousarray(np.take(cut[name], np.arange(size), axis))
    return cut if any(cut[name] is not inputs[name] for name in cut) else None


def another_size(size: int) -> int:
    """Three quarters, in steps that networks with strides like."""
    for step in (32, 16, 8, 4, 2):
        if size > step and size % step == 0:
            return max(step, size * 3 // 4 // step * step)
    return max(1, size * 3 // 4)
