"""Results of a classifier: confusion, precision and recall per class, curves, and its worst mistakes. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
WORST = 24  # mistakes that are kept
STEPS = np.linspace(0, 0.99, 34)  # thresholds of a sweep


def classification_results(
    scores: Array, truth: Array, classes: Sequence[str], names: Sequence[str]
) -> dict[str, Any]:
    """Return all that a results page shows, as plain data; `scores` are probabilities, pictures x classes."""
    guess = scores.argmax(1)
    confusion = confusion_of(truth, guess, len(classes))
    return {
        "accuracy": float((guess == truth).mean()),
        "classes": [_of_class(confusion, number, name) for number, name in enumerate(classes)],
        "confusion": {"labels": list(classes), "counts": confusion.tolist()},
        "curves": [_curve(scores[:, number], truth == number, name) for number, name in enumerate(classes)],
        "sweep": [_at(threshold, scores, guess, truth) for threshold in STEPS],
        "worst": worst_mistakes(scores, truth, classes, names),
    }


def confusion_of(truth: Array, guess: Array, count: int) -> Array:
    """Return counts, true class x guessed class."""
    return np.bincount(truth * count + guess, minlength=count * count).reshape(count, count)


def _of_class(confusion: Array, number: int, name: str) -> dict[str, Any]:
    right = int(confusion[number, number])
    guessed, true = int(confusion[:, number].sum()), int(confusion[number].sum())
    precision, recall = right / guessed if guessed else 0.0, right / true if true else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"label": name, "pictures": true, "precision": precision, "recall": recall, "f1": f1}


def _curve(scores: Array, positive: Array, name: str) -> dict[str, Any]:
    """Return precision and recall as the threshold falls, at most 101 points, and their average precision."""
    order = np.argsort(-scores, kind="stable")
    right = positive[order].cumsum()
    recall = right / max(1, positive.sum())
    precision = right / np.arange(1, len(order) + 1)
    gained = np.diff(np.concatenate([[0.0], recall]))
    picked = np.unique(np.linspace(0, len(order) - 1, min(101, len(order))).astype(int))
    return {
        "label": name,
        "average_precision": float((precision * gained).sum()),
        "recall": recall[picked].tolist(),
        "precision": precision[picked].tolist(),
        "confidence": scores[order][picked].tolist(),
    }


def _at(threshold: float, scores: Array, guess: Array, truth: Array) -> dict[str, float]:
    """Return what becomes of pictures if guesses under a confidence are withheld."""
    predicted = scores.max(1) >= threshold
    right = (guess == truth) & predicted
    return {
        "threshold": float(threshold),
        "answered": float(predicted.mean()),
        "accuracy": float(right.sum() / predicted.sum()) if predicted.any() else 0.0,
    }


def worst_mistakes(
    scores: Array, truth: Array, classes: Sequence[str], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return wrong guesses, the surest first."""
    guess = scores.argmax(1)
    wrong = np.flatnonzero(guess != truth)
    order = wrong[np.argsort(-scores[wrong, guess[wrong]], kind="stable")][:WORST]
    return [
        {
            "picture": names[place],
            "truth": classes[truth[place]],
            "guess": classes[guess[place]],
            "confidence": float(scores[place, guess[place]]),
        }
        for place in order
    ]
