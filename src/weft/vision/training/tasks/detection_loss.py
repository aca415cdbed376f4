"""The detector's loss: each object is given the cells that agree with it best, by score and overlap together.

A cell inside an object is aligned with it by score^0.5 x overlap^6; the best of them become its positives, with a
target score that grows with that alignment. Overlap is told as CIoU; distances learn by the two bins around the truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from weft.vision.models.detector import BINS, CellOutputs, decode_boxes
from weft.vision.training.feeding.targets import MASK_STRIDE, BoxTargets

SCORE_POWER, OVERLAP_POWER = 0.5, 6.0
MOST_CELLS = 10  # positives of one object
MOST_MASKS = 64  # objects of a batch whose masks are learned in one step
BOX_GAIN, CLASS_GAIN, BIN_GAIN, MASK_GAIN = 7.5, 0.5, 1.5, 2.5


@dataclass(frozen=True)
class CellTargets:
    """The object that each cell is to find: rows x cells."""

    positive: Tensor
    objects: Tensor  # place of the object in its picture
    boxes: Tensor
    scores: Tensor  # rows x cells x classes


def detection_loss(out: CellOutputs, targets: BoxTargets) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss and its parts."""
    logits, distances = out.classes.float(), out.distances.float()
    boxes = decode_boxes(distances, out.centres, out.strides)
    given = assign_cells(logits.detach().sigmoid(), boxes.detach(), out.centres, out.strides, targets)
    total = given.scores.sum().clamp(min=1)
    classes = functional.binary_cross_entropy_with_logits(logits, given.scores, reduction="sum") / total
    # Positives are weighed, not picked: sizes then do not depend on values, and a device need not be waited for.
    weight = given.scores.sum(-1) * given.positive
    overlap = ((1 - complete_overlap(boxes, given.boxes)) * weight).sum() / total
    bins = (_bin_loss(distances, given.boxes, out) * weight).sum() / total
    parts = {"class_loss": classes, "box_loss": overlap, "bin_loss": bins}
    loss = CLASS_GAIN * classes + BOX_GAIN * overlap + BIN_GAIN * bins
    if out.coefficients is not None and out.prototypes is not None and targets.masks is not None:
        parts["mask_loss"] = _mask_loss(out.coefficients, out.prototypes, given, targets)
        loss = loss + MASK_GAIN * parts["mask_loss"]
    return loss, {name: part.detach() for name, part in parts.items()}


@torch.no_grad()
def assign_cells(
    scores: Tensor, boxes: Tensor, centres: Tensor, strides: Tensor, targets: BoxTargets
) -> CellTargets:
    """Choose the positives; `scores` are rows x cells x classes, `boxes` rows x cells x 4."""
    truth, labels = targets.boxes, targets.classes
    real = labels >= 0
    _rows, most = labels.shape
    inside = _inside(truth, centres, strides) & real[:, :, None]  # rows x objects x cells
    overlap = plain_overlap(truth[:, :, None], boxes[:, None]).clamp(min=0) * inside
    chosen = scores.gather(2, labels.clamp(min=0)[:, None].expand(-1, scores.shape[1], -1)).transpose(1, 2)
    alignment = chosen.pow(SCORE_POWER) * overlap.pow(OVERLAP_POWER) * inside
    count = min(MOST_CELLS, alignment.shape[-1])
    best = alignment.topk(count, -1)
    positive = torch.zeros_like(inside).scatter_(-1, best.indices, best.values > 1e-12) & inside
    # A cell that several objects want belongs to the one that it overlaps most.
    contested = positive.sum(1, keepdim=True) > 1
    winner = functional.one_hot((overlap * positive).argmax(1), most).permute(0, 2, 1).bool()
    positive = torch.where(contested, positive & winner, positive)
    objects = positive.float().argmax(1)
    found = positive.any(1)
    alignment = alignment * positive
    highest = alignment.amax(-1, keepdim=True).clamp(min=1e-9)
    widest = (overlap * positive).amax(-1, keepdim=True)
    strength = (alignment / highest * widest).amax(1)  # rows x cells
    picked = labels.clamp(min=0).gather(1, objects)
    one_hot = functional.one_hot(picked, scores.shape[-1]).to(scores.dtype)
    return CellTargets(
        found,
        objects,
        truth.gather(1, objects[..., None].expand(-1, -1, 4)),
        one_hot * (strength * found)[..., None],
    )


def _inside(truth: Tensor, centres: Tensor, strides: Tensor) -> Tensor:
    """Tell which cells have their centre in which object; a small object also has the cells next to its centre."""
    low = centres - truth[:, :, None, :2]
    high = truth[:, :, None, 2:] - centres
    within = torch.cat([low, high], -1).amin(-1) > 1e-6
    middle = (truth[:, :, None, :2] + truth[:, :, None, 2:]) / 2
    near = ((centres - middle).abs() < strides[:, None] * 0.75).all(-1)
    reachable = torch.cat([low, high], -1).amax(-1) < strides * (BINS - 1)
    return (within | near) & reachable


def plain_overlap(one: Tensor, other: Tensor) -> Tensor:
    """Return intersection over union of boxes that broadcast."""
    low = torch.maximum(one[..., :2], other[..., :2])
    high = torch.minimum(one[..., 2:], other[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = (one[..., 2:] - one[..., :2]).prod(-1) + (other[..., 2:] - other[..., :2]).prod(-1)
    return shared / (areas - shared).clamp(min=1e-7)


def complete_overlap(found: Tensor, truth: Tensor) -> Tensor:
    """Return CIoU: intersection over union, less the distance of the centres and the difference of the shapes."""
    overlap = plain_overlap(found, truth)
    low = torch.minimum(found[..., :2], truth[..., :2])
    high = torch.maximum(found[..., 2:], truth[..., 2:])
    diagonal = (high - low).pow(2).sum(-1).clamp(min=1e-7)
    centres = (found[..., :2] + found[..., 2:] - truth[..., :2] - truth[..., 2:]).pow(2).sum(-1) / 4
    ours, theirs = found[..., 2:] - found[..., :2], truth[..., 2:] - truth[..., :2]
    angle = torch.atan2(theirs[..., 0], theirs[..., 1].clamp(min=1e-7)) - torch.atan2(
        ours[..., 0], ours[..., 1].clamp(min=1e-7)
    )
    shape = (4 / math.pi**2) * angle.pow(2)
    with torch.no_grad():
        share = shape / (1 - overlap + shape).clamp(min=1e-7)
    return overlap - centres / diagonal - share * shape


def _bin_loss(distances: Tensor, boxes: Tensor, out: CellOutputs) -> Tensor:
    """Return the cross entropy of the two bins around each true distance, rows x cells."""
    strides = out.strides[:, None]
    true = torch.cat([(out.centres - boxes[..., :2]) / strides, (boxes[..., 2:] - out.centres) / strides], -1)
    true = true.clamp(0, BINS - 1.01)
    low = true.floor()
    logs = distances.view(*distances.shape[:2], 4, BINS).log_softmax(-1)
    below = logs.gather(-1, low.long()[..., None])[..., 0]
    above = logs.gather(-1, low.long()[..., None] + 1)[..., 0]
    return -(below * (low + 1 - true) + above * (true - low)).mean(-1)


def _mask_loss(coefficients: Tensor, prototypes: Tensor, given: CellTargets, targets: BoxTargets) -> Tensor:
    """Return the cross entropy of summed prototypes inside the true boxes, for some positives of the batch."""
    assert targets.masks is not None
    rows, cells = given.positive.nonzero(as_tuple=True)
    if not len(rows):
        return prototypes.sum() * 0
    if len(rows) > MOST_MASKS:
        some = torch.randperm(len(rows), device=rows.device)[:MOST_MASKS]
        rows, cells = rows[some], cells[some]
    objects = given.objects[rows, cells]
    truth = targets.masks[rows, objects].float()
    size = prototypes.shape[-2:]
    if truth.shape[-2:] != size:
        truth = functional.interpolate(truth[:, None], size, mode="nearest")[:, 0]
    masks = torch.einsum("nc,nchw->nhw", coefficients[rows, cells].float(), prototypes.float()[rows])
    losses = functional.binary_cross_entropy_with_logits(masks, truth, reduction="none")
    boxes = targets.boxes[rows, objects] / MASK_STRIDE
    ys = torch.arange(size[0], device=boxes.device)[None, :, None] + 0.5
    xs = torch.arange(size[1], device=boxes.device)[None, None, :] + 0.5
    x0, y0, x1, y1 = (boxes[:, side, None, None] for side in range(4))
    inside = (xs >= x0) & (xs <= x1) & (ys >= y0) & (ys <= y1)
    areas = inside.sum((1, 2)).clamp(min=1)
    return ((losses * inside).sum((1, 2)) / areas).mean()
