"""A first classifier in seconds: a pretrained backbone as it is, and a linear head fitted to its features.

The head is logistic regression on centred features; how strongly it is regularised is chosen by leaving parts of the
pictures out in turns. It is then written into the network's last layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from weft.vision.models.classifier import Classifier
from weft.vision.training.feeding.batches import PictureSet
from weft.vision.training.tasks.base import TrainingTask

Array = np.ndarray[Any, Any]
STRENGTHS = (1.0, 0.1, 10.0)  # values of C that are tried; the first wins a tie
FOLDS = 4
MOST_PRODUCTS_OF_A_THREAD = 200_000_000  # some 10 ms of one core


@torch.no_grad()
def features_of(model: Classifier, task: TrainingTask, pictures: PictureSet, device: torch.device) -> Array:
    """Return the pooled features of every picture."""
    model.eval()
    found = []
    for batch in task.plain_batches(pictures, device, 16):
        with task.autocast(device):
            found.append(model.features(batch.pixels).float().cpu().numpy())
    return np.concatenate(found)


def fit_first(model: nn.Module, task: TrainingTask, pictures: PictureSet, device: torch.device) -> bool:
    """Set a classifier's last layer; return False for a network that has none to set."""
    if not isinstance(model, Classifier) or model.head.bias is None:
        return False
    assert pictures.classes is not None
    features = features_of(model, task, pictures, device)
    weights, bias = fit_head(features, pictures.classes, len(task.classes))
    with torch.no_grad():
        model.head.weight.copy_(torch.from_numpy(weights))
        model.head.bias.copy_(torch.from_numpy(bias))
    return True


def fit_head(features: Array, classes: Array, count: int) -> tuple[Array, Array]:
    """Return weights and biases, classes x features and classes, for features as they come from the network."""
    centre = features.mean(0)
    rows = (features - centre).astype(np.float32)
    basis = None
    if len(rows) < rows.shape[1]:  # penalised weights are sums of the rows: other directions stay 0
        basis = np.linalg.svd(rows, full_matrices=False)[2]
        rows = rows @ basis.T
    with _few_threads(rows.size * count):
        weights, bias = _regression(rows, classes, count, _chosen_strength(rows, classes))
    if basis is not None:
        weights = weights @ basis
    return weights, bias - weights @ centre


@contextmanager
def _few_threads(products: int) -> Iterator[None]:
    """Use one thread for a pass of so few products: on a busy machine threads that wait for each other take longer."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if products < MOST_PRODUCTS_OF_A_THREAD else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _chosen_strength(rows: Array, classes: Array) -> float:
    """Return the C that is best on parts left out."""
    least = min(np.bincount(classes)[np.unique(classes)])
    if least < 2 or len(rows) > 5000:
        return STRENGTHS[0]
    places = np.empty(len(rows), int)
    for number in np.unique(classes):  # every part has its share of every class
        mine = np.flatnonzero(classes == number)
        places[mine] = np.arange(len(mine)) % FOLDS
    scores = []
    for strength in STRENGTHS:
        right = 0
        for part in range(FOLDS):
            inside, outside = places != part, places == part
            if not outside.any():
                continue
            weights, bias = _regression(rows[inside], classes[inside], int(classes.max()) + 1, strength)
            right += int(((rows[outside] @ weights.T + bias).argmax(1) == classes[outside]).sum())
        scores.append(right)
    return STRENGTHS[int(np.argmax(scores))]


def _regression(rows: Array, classes: Array, count: int, strength: float) -> tuple[Array, Array]:
    """Fit softmax regression by L-BFGS: n examples of d features are few here, so whole passes are quick."""
    x = torch.from_numpy(rows)
    y = torch.from_numpy(classes)
    weights = torch.zeros(count, rows.shape[1], requires_grad=True)
    bias = torch.zeros(count, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights, bias], max_iter=60, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(x @ weights.T + bias, y, reduction="sum") * strength
        loss = loss + 0.5 * weights.pow(2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach().numpy(), bias.detach().numpy()
