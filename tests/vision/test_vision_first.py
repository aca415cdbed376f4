"""The first classifier: its head against scikit-learn's logistic regression on the same features."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from weft.vision.training.first import fit_head


def features(count: int, width: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features as a network pools them, never below 0, and the classes they were drawn around."""
    generator = np.random.default_rng(count)
    labels = np.arange(count) % classes
    middles = generator.normal(0, 1, (classes, width))
    rows = np.maximum(middles[labels] + generator.normal(0, 2, (count, width)), 0)
    return rows.astype(np.float32), labels


@pytest.mark.parametrize(("count", "width", "classes"), [(40, 300, 4), (90, 20, 3), (24, 64, 2)])
def test_the_head_is_logistic_regression(count: int, width: int, classes: int) -> None:
    sklearn = pytest.importorskip("sklearn.linear_model")
    rows, labels = features(count, width, classes)
    weights, bias = fit_head(rows, labels, classes)
    mine = torch.softmax(torch.from_numpy(rows @ weights.T + bias), 1).numpy()
    # With two classes scikit-learn penalises the one difference d of two weights d/2 and -d/2: twice as much as both.
    factor = 2.0 if classes == 2 else 1.0
    theirs = [
        sklearn.LogisticRegression(C=strength * factor, max_iter=20_000, tol=1e-9)
        .fit(rows - rows.mean(0), labels)
        .predict_proba(rows - rows.mean(0))
        for strength in (0.1, 1.0, 10.0)
    ]
    assert min(np.abs(mine - one).max() for one in theirs) < 0.001
    assert weights.shape == (classes, width)


def test_threads_are_as_many_as_before() -> None:
    before = torch.get_num_threads()
    rows, labels = features(12, 8, 2)
    fit_head(rows, labels, 2)
    assert torch.get_num_threads() == before
