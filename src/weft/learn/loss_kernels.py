"""Loops over margins: losses, their slopes and their curvatures, row by row.

Targets of a binary loss are -1 and 1. Every function adds up in float64 and writes into the array it is given.
"""

from __future__ import annotations

import math
from typing import Any

from weft.learn.compiling import kernel

Array = Any  # inside compiled code the types are Numba's


@kernel
def logistic(margins: Array, y: Array, weights: Array, slope: Array) -> float:
    """Sum of weights * log(1 + exp(-y * margin)); slope becomes its derivative by the margin."""
    one = y.dtype.type(1)
    total = 0.0
    for i in range(margins.shape[0]):
        z = y[i] * margins[i]
        e = math.exp(-abs(z))
        total += weights[i] * (math.log1p(e) - min(z, 0.0))
        share = e / (one + e) if z > 0 else one / (one + e)
        slope[i] = -y[i] * weights[i] * share
    return total


@kernel
def logistic_curvature(margins: Array, y: Array, weights: Array, curvature: Array) -> None:
    for i in range(margins.shape[0]):
        e = math.exp(-abs(margins[i]))
        curvature[i] = weights[i] * e / ((1 + e) * (1 + e))


@kernel
def squared_hinge(margins: Array, y: Array, weights: Array, slope: Array) -> float:
    """Sum of weights * max(0, 1 - y * margin)²."""
    total = 0.0
    for i in range(margins.shape[0]):
        short = 1 - y[i] * margins[i]
        if short > 0:
            total += weights[i] * short * short
            slope[i] = -2 * y[i] * weights[i] * short
        else:
            slope[i] = 0
    return total


@kernel
def squared_hinge_curvature(margins: Array, y: Array, weights: Array, curvature: Array) -> None:
    for i in range(margins.shape[0]):
        curvature[i] = 2 * weights[i] if y[i] * margins[i] < 1 else 0


@kernel
def multinomial(margins: Array, y: Array, weights: Array, slope: Array) -> float:
    """Sum of weights * -log softmax(margins)[y]; margins and slope have one column for each class."""
    total = 0.0
    classes = margins.shape[1]
    for i in range(margins.shape[0]):
        top = margins[i, 0]
        for k in range(1, classes):
            top = max(top, margins[i, k])
        whole = 0.0
        for k in range(classes):
            e = math.exp(margins[i, k] - top)
            slope[i, k] = e
            whole += e
        own = int(y[i])
        total += weights[i] * (math.log(whole) + top - margins[i, own])
        scale = weights[i] / whole
        for k in range(classes):
            slope[i, k] *= scale
        slope[i, own] -= weights[i]
    return total
