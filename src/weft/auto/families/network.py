"""A small neural network for tables, in NumPy: smooth where trees are stairs, so that a blend of both is better.

Layers of rectified units are trained by Adam with decoupled weight decay, and judged by a moving mean of their weights,
which is what the model keeps. Rows may be sparse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from weft.auto.families.fitting import FitRequest, FittedModel, len_of
from weft.auto.validation import loss_of
from weft.learn.onnx import OnnxGraph

Array = np.ndarray[Any, Any]

MOST_EPOCHS = 300
PATIENCE_EPOCHS = 20  # without a better loss that end a fit
FEWEST_BATCHES = 12  # of an epoch, where the table has so many rows
LEAST_BATCH, MOST_BATCH = 16, 512
FIRST_MOMENT, SECOND_MOMENT, TINY = 0.9, 0.99, 1e-8
MEAN_BATCHES = 60  # that the moving mean of the weights looks back
LONGEST_STEP = 5.0  # norm of a gradient, per output, beyond which it is shortened
JUDGED_AT_ONCE = 8192


@dataclass
class DenseNetwork:
    """Weights and biases of all layers, and how its last numbers become answers."""

    weights: list[Array]
    biases: list[Array]
    centre: float = 0.0  # of a target of numbers
    spread: float = 1.0

    def scores(self, rows: Any) -> Array:
        """Return the numbers of the last layer."""
        hidden = rows
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.maximum(np.asarray(hidden @ weight) + bias, 0.0)
        return np.asarray(np.asarray(hidden @ self.weights[-1]) + self.biases[-1])

    def _in_parts(self, rows: Any) -> Array:
        starts = range(0, max(1, len_of(rows)), JUDGED_AT_ONCE)
        return np.concatenate([self.scores(rows[start : start + JUDGED_AT_ONCE]) for start in starts])

    def predict(self, rows: Any) -> Array:
        """Return one number for each row."""
        found: Array = self._in_parts(rows)[:, 0].astype(np.float64) * self.spread + self.centre
        return found

    def predict_proba(self, rows: Any) -> Array:
        """Return the probabilities of all classes."""
        return shares_of(self._in_parts(rows).astype(np.float64))

    def onnx(self, graph: OnnxGraph, features: str, classes: int | None) -> str:
        """Add the network to a graph; return the name of (batch, classes) probabilities, or (batch, 1) numbers."""
        hidden = features
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True), 1):
            hidden = graph.add("MatMul", hidden, graph.constant(weight))
            hidden = graph.add("Add", hidden, graph.constant(bias))
            if number < len(self.weights):
                hidden = graph.add("Relu", hidden)
        if classes is not None:
            return graph.add("Softmax", hidden, axis=1)
        scaled = graph.add("Mul", hidden, graph.constant(np.full(1, self.spread)))
        return graph.add("Add", scaled, graph.constant(np.full(1, self.centre)))


def shares_of(scores: Array) -> Array:
    """Return the softmax of each row."""
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def fit_network(asked: FitRequest) -> FittedModel | tuple[FittedModel, Array]:
    """Fit a network; judges choose the epoch, and `rounds` counts epochs."""
    training = NetworkTraining(asked)
    judges = asked.judges
    if judges is None:
        for _ in range(asked.rounds or MOST_EPOCHS):
            training.epoch()
            if asked.deadline.over():
                break
        return FittedModel("network", training.averaged(), asked.classes, asked.rounds, asked.deadline.passed)
    judged_rows = judges.rows.astype(np.float32)
    best, least, kept, late = 0, math.inf, training.averaged(), 0
    for number in range(1, MOST_EPOCHS + 1):
        training.epoch()
        current = training.averaged()
        predicted = FittedModel("network", current, asked.classes).predict(judged_rows)
        loss = loss_of(asked.task.smooth_metric, judges.target, predicted)
        if loss < least:
            best, least, kept, late = number, loss, current, 0
        late += 1
        if late > PATIENCE_EPOCHS or asked.deadline.over() or not math.isfinite(loss):
            break
    model = FittedModel("network", kept, asked.classes, best, asked.deadline.passed)
    return model, model.predict(judges.rows)


class NetworkTraining:
    """The state of a fit: weights, their moments and their moving mean."""

    def __init__(self, asked: FitRequest) -> None:
        self.asked = asked
        self.random = np.random.default_rng(asked.seed)
        self.rows = asked.rows.astype(np.float32)
        self.centre, self.spread = _scale(asked)
        self.goals = self._goals()
        sizes = [self.rows.shape[1], *[int(asked.params["width"])] * int(asked.params["layers"])]
        self.layers = [_started(self.random, above, below) for above, below in pairwise(sizes)]
        self.layers.append(np.zeros((sizes[-1], self.goals.shape[1]), np.float32))
        self.layers += [np.zeros(layer.shape[1], np.float32) for layer in self.layers]
        self.first = [np.zeros_like(one) for one in self.layers]
        self.second = [np.zeros_like(one) for one in self.layers]
        self.mean = [one.copy() for one in self.layers]
        self.steps = 0

    @property
    def depth(self) -> int:
        return len(self.layers) // 2

    def _goals(self) -> Array:
        target = self.asked.target
        if self.asked.classes is None:
            scaled: Array = ((target - self.centre) / self.spread).astype(np.float32)[:, None]
            return scaled
        return np.eye(self.asked.classes, dtype=np.float32)[target]

    def _batches(self) -> Iterator[Array]:
        count = len(self.goals)
        size = int(np.clip(count // FEWEST_BATCHES, LEAST_BATCH, MOST_BATCH))
        order = self.random.permutation(count)
        return (order[start : start + size] for start in range(0, count, size))

    def epoch(self) -> None:
        """Look at all rows once; the deadline may end it early."""
        for places in self._batches():
            self._step(self._gradients(self.rows[places], self.goals[places]))
            if self.asked.deadline.left_s <= 0 and self.steps > 1:
                return

    def _gradients(self, rows: Any, goals: Array) -> list[Array]:
        weights, biases = self.layers[: self.depth], self.layers[self.depth :]
        kept = 1.0 - float(self.asked.params["dropout"])
        inputs, hidden = [rows], rows
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            hidden = np.maximum(np.asarray(hidden @ weight) + bias, 0.0)
            if kept < 1.0:
                hidden *= (self.random.random(hidden.shape, np.float32) < kept) / np.float32(kept)
            inputs.append(hidden)
        error = self._error(np.asarray(hidden @ weights[-1]) + biases[-1], goals)
        found: list[Array] = [np.empty(0)] * len(self.layers)
        for place in range(self.depth - 1, -1, -1):
            found[place] = np.asarray(inputs[place].T @ error)
            found[self.depth + place] = error.sum(axis=0)
            if place:
                error = (error @ weights[place].T) * (inputs[place] > 0)
                if kept < 1.0:
                    error /= np.float32(kept)
        return found

    def _error(self, scores: Array, goals: Array) -> Array:
        """Return the derivatives of the mean loss by the scores."""
        if self.asked.classes is not None:
            error = shares_of(scores) - goals
        elif self.asked.task.metric == "mae":
            error = np.clip((scores - goals) * 10.0, -1.0, 1.0)  # smooth near 0
        else:
            error = scores - goals
        return np.asarray(error / np.float32(len(goals)), np.float32)

    def _step(self, gradients: list[Array]) -> None:
        """Move the weights by Adam, shrink those of layers, and take them into the moving mean."""
        self.steps += 1
        norm = math.sqrt(sum(float((one * one).sum()) for one in gradients))
        shorter = min(1.0, LONGEST_STEP / max(norm, TINY))
        rate = float(self.asked.params["rate"])
        start = 1.0 - FIRST_MOMENT**self.steps
        scale = rate * math.sqrt(1.0 - SECOND_MOMENT**self.steps) / start
        shrink = 1.0 - rate * float(self.asked.params["decay"])
        share = max(1.0 / self.steps, 1.0 / MEAN_BATCHES)
        for place, gradient in enumerate(gradients):
            gradient = gradient * np.float32(shorter)
            self.first[place] += np.float32(1 - FIRST_MOMENT) * (gradient - self.first[place])
            self.second[place] += np.float32(1 - SECOND_MOMENT) * (gradient * gradient - self.second[place])
            if place < self.depth:
                self.layers[place] *= np.float32(shrink)
            self.layers[place] -= np.float32(scale) * self.first[place] / (np.sqrt(self.second[place]) + TINY)
            self.mean[place] += np.float32(share) * (self.layers[place] - self.mean[place])

    def averaged(self) -> DenseNetwork:
        """Return a network of the moving mean of the weights."""
        whole = [one.astype(np.float64) for one in self.mean]
        return DenseNetwork(whole[: self.depth], whole[self.depth :], self.centre, self.spread)


def _scale(asked: FitRequest) -> tuple[float, float]:
    if asked.classes is not None:
        return 0.0, 1.0
    return float(asked.target.mean()), float(asked.target.std()) or 1.0


def _started(random: np.random.Generator, above: int, below: int) -> Array:
    spread = math.sqrt(2.0 / above)
    return (spread * random.standard_normal((above, below))).astype(np.float32)
