"""Weights of an ensemble, and how sure it is, found on predictions that no model made of rows it was trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.auto.validation import loss_of

Array = np.ndarray[Any, Any]

SHARPEST = 3.0  # power, and the bluntest is one by it
LEAST_SHARPENED = 1e-3  # of the loss, relative: where less is gained, probabilities stay as they are
FEWEST_SHARPENED = 200  # rows that a power is found by
STEPS = 20  # models that are added one by one, with repetition
LEAST_GAIN = 1e-6  # of the loss, relative: a smaller gain ends the search
MOST_ROWS = 20_000  # that weights are found by
MOST_CANDIDATES = 20  # the best models alone are tried


def greedy_weights(predicted: Mapping[int, Array], target: Array, metric: str) -> dict[int, float]:
    """Return the weights of models by number: each step adds the model that makes the mean of all added the best."""
    step = -(-len(target) // MOST_ROWS)  # rows are in no order that matters within a fold
    if step > 1:
        target, predicted = target[::step], {number: one[::step] for number, one in predicted.items()}
    alone = {number: loss_of(metric, target, one) for number, one in predicted.items()}
    candidates = sorted(alone, key=lambda number: (alone[number], number))[:MOST_CANDIDATES]
    chosen = [candidates[0]]
    total, least = predicted[candidates[0]].copy(), alone[candidates[0]]
    while len(chosen) < STEPS:
        losses = [loss_of(metric, target, (total + predicted[one]) / (len(chosen) + 1)) for one in candidates]
        best = int(np.argmin(losses))
        if losses[best] > least * (1 - LEAST_GAIN):
            break
        least = losses[best]
        chosen.append(candidates[best])
        total += predicted[candidates[best]]
    return {number: chosen.count(number) / len(chosen) for number in dict.fromkeys(chosen)}


def blended(predicted: Mapping[int, Array], weights: Mapping[int, float]) -> Array:
    """Return the weighted mean of predictions."""
    return np.asarray(sum(weight * predicted[number] for number, weight in weights.items()))


def sharpened(predicted: Any, power: float) -> Array:
    """Return probabilities raised to a power, which add up to 1 again; numbers come with a power of 1."""
    shares: Array = np.asarray(predicted)
    if power == 1:
        return shares
    raised = shares**power
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def best_power(predicted: Array, target: Array) -> float:
    """Return the power that makes the log-loss of probabilities least: a blend is less sure than it could be.

    1 where little is gained.
    """
    from scipy.optimize import minimize_scalar

    if len(target) < FEWEST_SHARPENED:
        return 1.0
    step = -(-len(target) // MOST_ROWS)
    target, predicted = target[::step], predicted[::step]

    def loss(exponent: float) -> float:
        return loss_of("log_loss", target, sharpened(predicted, math.exp(exponent)))

    most = math.log(SHARPEST)
    found = minimize_scalar(loss, bounds=(-most, most), method="bounded", options={"xatol": 1e-3})
    return math.exp(found.x) if found.fun < (1 - LEAST_SHARPENED) * loss(0.0) else 1.0
