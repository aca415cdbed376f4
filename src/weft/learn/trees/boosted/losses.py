"""The losses that boosting minimises: a function of raw predictions, its derivatives, and where to begin.

Raw predictions are (rows, outputs): one output for numbers and two classes, one for each of several classes.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from scipy.special import expit, log_softmax, logit, softmax

from weft.learn.trees.kernels.boosting import class_derivatives, logistic_derivatives, squared_derivatives

Array = np.ndarray[Any, Any]

MANY = 1 << 17  # rows beyond which sums need fewer digits of each


class BoostingLoss(Protocol):
    """A loss over rows. `steep` bounds |first derivative| and `curved` the second, for a weight of 1; None: unknown."""

    @property
    def outputs(self) -> int: ...
    @property
    def steep(self) -> float | None: ...
    @property
    def curved(self) -> float | None: ...

    def start(self, y: Array, weights: Array) -> Array:
        """Return the best constant for each output."""
        ...

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        """Return first and second derivatives, (rows, outputs), and the mean loss where it comes for free."""
        ...

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        """Return the mean loss."""
        ...


def _room(raw: Array) -> tuple[Array, Array]:
    """Return room for both derivatives: of many rows half the digits are enough, and half as much to fetch."""
    kind = np.float32 if len(raw) > MANY else np.float64
    return np.empty(raw.shape, kind, order="F"), np.empty(raw.shape, kind, order="F")


class LogLoss:
    """Two classes, 0 and 1; raw predictions are log-odds."""

    outputs, steep, curved = 1, 1.0, 0.25

    def start(self, y: Array, weights: Array) -> Array:
        share = np.clip(np.average(y, weights=weights), 1e-12, 1 - 1e-12)
        return np.array([logit(share)])

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        first, second = _room(raw)
        total = logistic_derivatives(raw[:, 0], y, weights, first[:, 0], second[:, 0])
        return first, second, total / float(weights.sum())

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        return float(np.average(np.logaddexp(0, raw[:, 0]) - y * raw[:, 0], weights=weights))

    def probabilities(self, raw: Array) -> Array:
        second = expit(raw[:, 0])
        return np.column_stack([1 - second, second])


class Exponential(LogLoss):
    """AdaBoost's loss of two classes; raw predictions are half the log-odds."""

    steep, curved = None, None  # type: ignore[assignment]

    def start(self, y: Array, weights: Array) -> Array:
        return super().start(y, weights) / 2

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        sign = np.where(y > 0, 1.0, -1.0)[:, None]
        second = weights[:, None] * np.exp(-sign * raw)
        return -sign * second, second, None

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        return float(np.average(np.exp(np.where(y > 0, -1.0, 1.0) * raw[:, 0]), weights=weights))

    def probabilities(self, raw: Array) -> Array:
        return super().probabilities(2 * raw)


class MultinomialDeviance:
    """Several classes; probabilities are the softmax of raw predictions."""

    steep = 1.0

    def __init__(self, classes: int):
        self.outputs = classes
        self.curved = 0.25 * classes / (classes - 1)  # see class_derivatives

    def start(self, y: Array, weights: Array) -> Array:
        shares = np.bincount(y, weights=weights, minlength=self.outputs) / weights.sum()
        logs = np.log(np.clip(shares, 1e-12, None))
        centred: Array = logs - logs.mean()
        return centred

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        first, second = np.empty(raw.shape, order="F"), np.empty(raw.shape, order="F")
        total = class_derivatives(np.asfortranarray(raw), y, weights, first, second)
        return first, second, total / float(weights.sum())

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        return float(np.average(-log_softmax(raw, axis=1)[np.arange(len(y)), y], weights=weights))

    def probabilities(self, raw: Array) -> Array:
        shares: Array = softmax(raw, axis=1)
        return shares


class SquaredError:
    """The squared error: squares of residuals."""

    outputs, steep, curved = 1, None, 1.0

    def start(self, y: Array, weights: Array) -> Array:
        return np.array([np.average(y, weights=weights)])

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        first, second = _room(raw)
        total = squared_derivatives(raw[:, 0], y, weights, first[:, 0], second[:, 0])
        return first, second, total / float(weights.sum())

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        return float(np.average((raw[:, 0] - y) ** 2, weights=weights))


class Quantile:
    """The quantile loss: the mean of `alpha` times what is above the prediction, and 1 - alpha times what is below."""

    outputs, steep, curved = 1, 1.0, 1.0

    def __init__(self, alpha: float = 0.5):
        self.alpha = alpha

    def start(self, y: Array, weights: Array) -> Array:
        return np.array([self.leaf(y, weights)])

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        first = np.where(y[:, None] > raw, -self.alpha, 1 - self.alpha)
        return weights[:, None] * first, weights[:, None] + np.zeros_like(raw), None

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        above = y - raw[:, 0]
        return float(np.average(np.maximum(self.alpha * above, (self.alpha - 1) * above), weights=weights))

    def leaf(self, residuals: Array, weights: Array) -> float:
        """The step of a leaf: a weighted quantile of what is left there."""
        by = np.argsort(residuals, kind="stable")
        sums = np.cumsum(weights[by])
        # Halfway between two rows where the sum falls on the border between them, as a median is.
        first = min(int(np.searchsorted(sums, self.alpha * sums[-1] * (1 - 1e-12))), len(by) - 1)
        second = min(int(np.searchsorted(sums, self.alpha * sums[-1] * (1 + 1e-12))), len(by) - 1)
        return float(residuals[by[first]] + residuals[by[second]]) / 2


class Huber:
    """Huber's loss: squares of small residuals, absolute values beyond the quantile `alpha` of them."""

    outputs, steep, curved = 1, None, 1.0

    def __init__(self, alpha: float = 0.9):
        self.alpha = alpha
        self._border = 1.0

    def start(self, y: Array, weights: Array) -> Array:
        return Quantile().start(y, weights)

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        off = raw - y[:, None]
        self._border = Quantile(self.alpha).leaf(np.abs(off[:, 0]), weights)
        near = np.clip(off, -self._border, self._border)
        return weights[:, None] * near, weights[:, None] + np.zeros_like(raw), None

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        off = np.abs(raw[:, 0] - y)
        far = self._border * (off - self._border / 2)
        return float(np.average(np.where(off <= self._border, off**2 / 2, far), weights=weights))

    def leaf(self, residuals: Array, weights: Array) -> float:
        middle = Quantile().leaf(residuals, weights)
        off = residuals - middle
        near = np.sign(off) * np.minimum(np.abs(off), self._border)
        return middle + float(np.average(near, weights=weights))


class LogLink:
    """The base of losses of positive numbers; predictions are the exponential of raw ones."""

    outputs, steep, curved = 1, None, None
    needs = "not be negative"  # what targets must

    def check(self, y: Array) -> None:
        """Raise an error that names the first target that is out of range."""
        bad = y < 0 if self.needs == "not be negative" else y <= 0
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(f"y must {self.needs} for this loss, got {y[row]:g} in row {row}")
        if not np.any(y > 0):
            raise ValueError("y must have a target above 0 for this loss, got zeros only")

    def start(self, y: Array, weights: Array) -> Array:
        return np.array([np.log(np.average(y, weights=weights))])

    def prediction(self, raw: Array) -> Array:
        """Return the predicted numbers."""
        predicted: Array = np.exp(raw)
        return predicted


class Poisson(LogLink):
    """The Poisson deviance, for counts: exp(raw) - y * raw."""

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        mean = weights[:, None] * np.exp(raw)
        return mean - (weights * y)[:, None], mean, None

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        return float(np.average(np.exp(raw[:, 0]) - y * raw[:, 0], weights=weights))


class Gamma(LogLink):
    """The gamma deviance, for positive numbers of a wide range: raw + y * exp(-raw)."""

    needs = "be positive"

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        share = (weights * y)[:, None] * np.exp(-raw)
        return weights[:, None] - share, share, None

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        return float(np.average(raw[:, 0] + y * np.exp(-raw[:, 0]), weights=weights))


class Tweedie(LogLink):
    """The Tweedie deviance of a power between 1 and 2, for sums of claims: many zeros, and positive numbers."""

    def __init__(self, power: float = 1.5):
        self.power = power

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        up, down = 2 - self.power, 1 - self.power
        near = weights[:, None] * np.exp(up * raw)
        off = (weights * y)[:, None] * np.exp(down * raw)
        return near - off, up * near - down * off, None

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        up, down = 2 - self.power, 1 - self.power
        losses = np.exp(up * raw[:, 0]) / up - y * np.exp(down * raw[:, 0]) / down
        return float(np.average(losses, weights=weights))
