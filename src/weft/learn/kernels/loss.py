"""Loops over margins: losses, their slopes and their curvatures, row by row.

Targets of a binary loss are -1 and 1. Every function adds up in float64 and writes into the array it is given.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined, kernel

Array = Any  # inside compiled code the types are Numba's


@inlined
def _power_of_two32(n: Any) -> Any:
    return np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@inlined
def _power_of_two64(n: Any) -> Any:
    return np.int64((np.int64(n) + np.int64(1023)) << np.int64(52)).view(np.float64)


@inlined
def _exp32(a: Any) -> Any:
    """The exponential of a number from -87 to 0: a power of two times a polynomial, which loops do for many at once."""
    n = np.floor(a * np.float32(1.44269504) + np.float32(0.5))
    # The logarithm of 2 is in two parts, of which the first has so few digits that its product is exact.
    r = (a - n * np.float32(0.693359375)) + n * np.float32(2.12194440e-4)
    p = np.float32(1 / 5040)
    p = p * r + np.float32(1 / 720)
    p = p * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(1 / 2)
    return (p * r * r + r + np.float32(1)) * _power_of_two32(n)


@inlined
def _exp64(a: Any) -> Any:
    """The same from -708 to 0, to 16 digits."""
    n = np.floor(a * 1.4426950408889634 + 0.5)
    r = (a - n * 0.693147180369123816490) + n * -1.90821492927058770002e-10
    p = 1 / 6227020800
    p = p * r + 1 / 479001600
    p = p * r + 1 / 39916800
    p = p * r + 1 / 3628800
    p = p * r + 1 / 362880
    p = p * r + 1 / 40320
    p = p * r + 1 / 5040
    p = p * r + 1 / 720
    p = p * r + 1 / 120
    p = p * r + 1 / 24
    p = p * r + 1 / 6
    p = p * r + 1 / 2
    return (p * r * r + r + 1.0) * _power_of_two64(n)


@inlined
def _log32(e: Any) -> Any:
    """log(1 + e) for e from 0 to 1: twice the series of artanh(e / (2 + e))."""
    u = e / (np.float32(2) + e)
    v = u * u
    p = np.float32(1 / 13)
    p = p * v + np.float32(1 / 11)
    p = p * v + np.float32(1 / 9)
    p = p * v + np.float32(1 / 7)
    p = p * v + np.float32(1 / 5)
    p = p * v + np.float32(1 / 3)
    return (p * v * u + u) * np.float32(2)


@inlined
def _log64(e: Any) -> Any:
    u = e / (2.0 + e)
    v = u * u
    p = 1 / 31
    p = p * v + 1 / 29
    p = p * v + 1 / 27
    p = p * v + 1 / 25
    p = p * v + 1 / 23
    p = p * v + 1 / 21
    p = p * v + 1 / 19
    p = p * v + 1 / 17
    p = p * v + 1 / 15
    p = p * v + 1 / 13
    p = p * v + 1 / 11
    p = p * v + 1 / 9
    p = p * v + 1 / 7
    p = p * v + 1 / 5
    p = p * v + 1 / 3
    return (p * v * u + u) * 2.0


@inlined
def logistic_row32(z: Any) -> tuple[Any, Any]:
    """log(1 + exp(-z)), and minus its derivative."""
    one = np.float32(1)
    e = _exp32(max(-abs(z), np.float32(-87)))
    return _log32(e) - min(z, np.float32(0)), (e if z > 0 else one) / (one + e)


@inlined
def logistic_row64(z: Any) -> tuple[Any, Any]:
    e = _exp64(max(-abs(z), -708.0))
    return _log64(e) - min(z, 0.0), (e if z > 0 else 1.0) / (1.0 + e)


@kernel
def logistic(margins: Array, y: Array, weights: Array, slope: Array) -> float:
    """Sum of weights * log(1 + exp(-y * margin)); slope becomes its derivative by the margin."""
    total = 0.0
    if margins.itemsize == 4:
        for i in range(margins.shape[0]):
            loss, share = logistic_row32(y[i] * margins[i])
            total += weights[i] * loss
            slope[i] = -y[i] * weights[i] * share
    else:
        for i in range(margins.shape[0]):
            wide, part = logistic_row64(y[i] * margins[i])
            total += weights[i] * wide
            slope[i] = -y[i] * weights[i] * part
    return total


@kernel
def logistic_curvature(margins: Array, y: Array, weights: Array, curvature: Array) -> None:
    if margins.itemsize == 4:
        one = np.float32(1)
        for i in range(margins.shape[0]):
            e = _exp32(max(-abs(margins[i]), np.float32(-87)))
            curvature[i] = weights[i] * e / ((one + e) * (one + e))
    else:
        for i in range(margins.shape[0]):
            a = _exp64(max(-abs(margins[i]), -708.0))
            curvature[i] = weights[i] * a / ((1.0 + a) * (1.0 + a))


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
    """Sum of weights * -log softmax(margins)[y]; margins and slope have one column for each class.

    A class of -1 is none: the loss is of no use then, and slopes are the shares of the classes, weighted.
    """
    total = 0.0
    classes = margins.shape[1]
    for i in range(margins.shape[0]):
        top = margins[i, 0]
        for k in range(1, classes):
            top = max(top, margins[i, k])
        if margins.itemsize == 4:
            few = np.float32(0)
            for k in range(classes):
                slope[i, k] = _exp32(max(margins[i, k] - top, np.float32(-87)))
                few += slope[i, k]
            whole = float(few)
        else:
            whole = 0.0
            for k in range(classes):
                slope[i, k] = _exp64(max(margins[i, k] - top, -708.0))
                whole += slope[i, k]
        own = int(y[i])
        scale = margins.dtype.type(weights[i] / whole)
        for k in range(classes):
            slope[i, k] *= scale
        if own >= 0:
            total += weights[i] * (math.log(whole) + top - margins[i, own])
            slope[i, own] -= weights[i]
    return total
