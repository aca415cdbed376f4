"""Mean average precision against pycocotools; results of classifiers and detectors; assignment and loss."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools.coco import COCO  # type: ignore[import-untyped]
from pycocotools.cocoeval import COCOeval  # type: ignore[import-untyped]

from weft.vision.evaluation.boxes import best_boxes, overlaps
from weft.vision.evaluation.classification import classification_results
from weft.vision.evaluation.detection import detection_results
from weft.vision.evaluation.precision import PictureResult, mean_precision
from weft.vision.models.detector import BINS, CellOutputs
from weft.vision.training.feeding.targets import BoxTargets
from weft.vision.training.tasks.detection_loss import complete_overlap, detection_loss, plain_overlap


def made_results(seed: int, pictures: int = 12, classes: int = 3) -> list[PictureResult]:
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(pictures):
        true = int(generator.integers(0, 7))
        low = generator.uniform(0, 80, (true, 2))
        truth = np.concatenate([low, low + generator.uniform(4, 40, (true, 2))], 1)
        names = generator.integers(0, classes, true)
        kept = generator.random(true) < 0.8
        near = truth[kept] + generator.normal(0, 3, (int(kept.sum()), 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        extra = int(generator.integers(0, 5))
        other = generator.uniform(0, 80, (extra, 2))
        boxes = np.concatenate([near, np.concatenate([other, other + 20], 1)])
        labels = np.concatenate([names[kept], generator.integers(0, classes, extra)])
        scores = np.round(generator.random(len(boxes)), 2)  # ties happen
        order = np.argsort(-scores, kind="stable")
        found.append(PictureResult(truth, names, boxes[order], scores[order], labels[order]))
    return found


def by_pycocotools(results: list[PictureResult], classes: int) -> tuple[float, float]:
    annotations: list[dict[str, Any]] = []
    detections: list[dict[str, Any]] = []
    for image, one in enumerate(results, 1):
        for box, name in zip(one.truth_boxes, one.truth_classes, strict=True):
            sides = [*box[:2], *(box[2:] - box[:2])]
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image, "category_id": int(name) + 1, "bbox": sides,
                 "area": float(sides[2] * sides[3]), "iscrowd": 0}
            )  # fmt: skip
        for box, score, name in zip(one.boxes, one.scores, one.classes, strict=True):
            detections.append(
                {"image_id": image, "category_id": int(name) + 1, "bbox": [*box[:2], *(box[2:] - box[:2])],
                 "score": float(score)}
            )  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "images": [{"id": image} for image in range(1, len(results) + 1)],
            "annotations": annotations,
            "categories": [{"id": number + 1} for number in range(classes)],
            "info": {},
        }
        coco.createIndex()
        judged = COCOeval(coco, coco.loadRes(detections), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return float(judged.stats[1]), float(judged.stats[0])


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_equal_to_pycocotools(seed: int) -> None:
    results = made_results(seed)
    if not any(len(one.boxes) for one in results) or not any(len(one.truth_boxes) for one in results):
        return
    ours = mean_precision(results, 3)
    assert (ours.map50, ours.map50_95) == pytest.approx(by_pycocotools(results, 3), abs=1e-3)


def test_results_of_a_perfect_detector() -> None:
    results = [
        PictureResult(
            one.truth_boxes,
            one.truth_classes,
            one.truth_boxes,
            np.full(len(one.truth_boxes), 0.9),
            one.truth_classes,
        )
        for one in made_results(4)
    ]
    found = mean_precision(results, 3)
    assert found.map50 == pytest.approx(1)
    assert found.map50_95 == pytest.approx(1)
    page = detection_results(results, found, ("a", "b", "c"), [str(place) for place in range(len(results))])
    counts = np.array(page["confusion"]["counts"])
    assert counts.trace() == counts.sum()
    assert page["worst"] == []
    assert all(one["recall"] == 1 for one in page["classes"])


def test_results_of_a_classifier() -> None:
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.6, 0.4]])
    page = classification_results(scores, np.array([0, 1, 1, 0]), ("cat", "dog"), list("wxyz"))
    assert page["accuracy"] == 0.75
    assert page["confusion"]["counts"] == [[2, 0], [1, 1]]
    assert page["worst"] == [
        {"picture": "y", "truth": "dog", "guess": "cat", "confidence": pytest.approx(0.7)}
    ]
    assert page["classes"][1]["recall"] == 0.5
    assert page["sweep"][-1]["answered"] == 0


def test_covered_boxes_are_left_out() -> None:
    boxes = np.array([[0, 0, 10, 10], [1, 1, 11, 11], [40, 40, 50, 50]], float)
    scores = np.array([[0.9, 0.0], [0.8, 0.85], [0.3, 0.0]])
    found = best_boxes(boxes, scores, confidence=0.25)
    assert [(int(cell), int(number)) for cell, number in zip(found.cells, found.classes, strict=True)] == [
        (0, 0),
        (1, 1),
        (2, 0),
    ]
    assert overlaps(boxes[:1], boxes)[0, 0] == pytest.approx(1)


def cells_of(truth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return centres and strides of cells of 8 pixels over 64 x 64."""
    places = (torch.arange(8) + 0.5) * 8
    ys, xs = torch.meshgrid(places, places, indexing="ij")
    return torch.stack([xs, ys], -1).view(-1, 2), torch.full((64,), 8.0)


def test_the_loss_falls_to_the_truth() -> None:
    truth = torch.tensor([[[10.0, 12.0, 40.0, 44.0], [44.0, 40.0, 60.0, 60.0]]])
    targets = BoxTargets(truth, torch.tensor([[0, 1]]))
    centres, strides = cells_of(truth)
    torch.manual_seed(0)
    classes = torch.full((1, 64, 2), -4.0, requires_grad=True)
    distances = torch.zeros(1, 64, 4 * BINS, requires_grad=True)
    optimizer = torch.optim.Adam([classes, distances], lr=0.3)
    losses = []
    for _ in range(60):
        loss, parts = detection_loss(CellOutputs(classes, distances, centres, strides), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.25 * losses[0]
    assert set(parts) == {"class_loss", "box_loss", "bin_loss"}
    best = best_boxes(
        _decoded(distances, centres, strides), classes[0].detach().sigmoid().numpy(), confidence=0.3
    )
    assert sorted(best.classes.tolist()) == [0, 1]
    assert np.diag(overlaps(best.boxes[np.argsort(best.classes)], truth[0].numpy())).min() > 0.85


def _decoded(distances: torch.Tensor, centres: torch.Tensor, strides: torch.Tensor) -> np.ndarray[Any, Any]:
    from weft.vision.models.detector import decode_boxes

    return decode_boxes(distances.detach(), centres, strides)[0].numpy()


def test_a_picture_without_objects_teaches_nothing_but_nothing() -> None:
    centres, strides = cells_of(torch.zeros(1))
    targets = BoxTargets(torch.zeros(1, 1, 4), torch.full((1, 1), -1))
    loss, parts = detection_loss(
        CellOutputs(torch.zeros(1, 64, 2), torch.zeros(1, 64, 4 * BINS), centres, strides), targets
    )
    assert float(parts["box_loss"]) == 0
    assert torch.isfinite(loss)


def test_overlaps_of_boxes() -> None:
    one = torch.tensor([0.0, 0.0, 10.0, 10.0])
    assert float(plain_overlap(one, one)) == pytest.approx(1)
    assert float(complete_overlap(one, one)) == pytest.approx(1, abs=1e-4)
    assert float(complete_overlap(one, torch.tensor([20.0, 20.0, 30.0, 30.0]))) < 0
