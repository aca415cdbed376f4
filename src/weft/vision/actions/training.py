"""Training of actions: features of clips from marked stretches of films, a linear head, judged on stretches left out.

Clips of these films in which nothing is marked are learned as nothing, so that a film is not full of actions.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.errors import ModelError
from weft.serve.card import Card
from weft.vision.actions.clips import CLIP_S, FRAMES, SIDE, MarkedAction, clip_starts, read_clips
from weft.vision.actions.minimum import check_enough
from weft.vision.actions.network import ActionNet
from weft.vision.films import probe_film
from weft.vision.models.building import load_imagenet
from weft.vision.training.first import fit_head
from weft.vision.training.folder import CONFIG, RESULTS, WEIGHTS, write_json

Array = np.ndarray[Any, Any]
NOTHING = ""  # the class of clips without an action
HELD_OUT = 5  # of so many stretches of an action, one is judged on
BATCH = 4  # clips


def train_actions(
    marked: Sequence[MarkedAction],
    folder: Path,
    *,
    name: str = "",
    report: Callable[[Mapping[str, Any]], None] = lambda values: None,
    pretrained: bool = True,
) -> dict[str, Any]:
    """Train on marked stretches of films, judge it, and write the model folder; return its results."""
    from safetensors.torch import save_file

    names = check_enough(one.label for one in marked)
    began = time.perf_counter()
    model = ActionNet(len(names) + 1).eval()
    if pretrained:
        load_imagenet(model)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    classes = (*names, NOTHING)
    held = held_out(marked)
    features, numbers, groups = _learned(model, marked, classes, device, report)
    inside = np.array([group not in held for group in groups])
    _fit(model, features[inside], numbers[inside], len(classes))
    score = _judged(model, features, numbers, groups, held)
    folder.mkdir(parents=True, exist_ok=True)
    state = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    save_file(state, folder / WEIGHTS)
    results = {
        "task": "action",
        "classes": list(classes),
        "pictures": {"train": int(inside.sum()), "test": int((~inside).sum())},
        "split": "test",
        "training_s": time.perf_counter() - began,
        "metrics": {} if score is None else {"accuracy": score},
        "score": {"name": "accuracy", "value": score},
        "export": _export(model.cpu(), classes, folder, name),
    }
    write_json(folder / CONFIG, {"task": "action", "name": name})
    write_json(folder / RESULTS, results)
    return results


def held_out(marked: Sequence[MarkedAction]) -> frozenset[int]:
    """Return the places of stretches that are judged on: one of five of each action, the same ones each time."""
    found: set[int] = set()
    for label in {one.label for one in marked}:
        mine = [place for place, one in enumerate(marked) if one.label == label]
        mine.sort(key=lambda place: hashlib.sha256(repr(marked[place]).encode()).digest())
        found |= set(mine[: len(mine) // HELD_OUT])
    return frozenset(found)


def free_starts(marks: Sequence[MarkedAction], duration_s: float) -> tuple[float, ...]:
    """Return where clips of a film begin in which nothing is marked."""
    starts = clip_starts(0.0, duration_s, CLIP_S)
    return tuple(
        start
        for start in starts
        if start + CLIP_S <= duration_s
        and all(start + CLIP_S <= one.start_s or start >= one.end_s for one in marks)
    )


def _learned(
    model: ActionNet,
    marked: Sequence[MarkedAction],
    classes: tuple[str, ...],
    device: torch.device,
    report: Callable[[Mapping[str, Any]], None],
) -> tuple[Array, Array, list[int]]:
    """Return features, classes and stretches of all clips, film by film; clips of nothing belong to none (-1)."""
    rows: list[Array] = []
    numbers: list[int] = []
    groups: list[int] = []
    films = sorted({one.film for one in marked})
    for done, film in enumerate(films, 1):
        mine = [(place, one) for place, one in enumerate(marked) if one.film == film]
        wanted = [
            (start, place, one.label) for place, one in mine for start in clip_starts(one.start_s, one.end_s)
        ]
        free = free_starts([one for _, one in mine], probe_film(film).duration_s)
        wanted += [(start, -1, NOTHING) for start in free[: 2 * len(mine)]]
        clips = [clip for _, clip in read_clips(film, [start for start, _, _ in wanted])]
        rows.append(features_of(model, clips, device))
        numbers += [classes.index(label) for _, _, label in wanted]
        groups += [place for _, place, _ in wanted]
        report({"step": done, "total": len(films), "epoch": done / len(films), "left_s": None})
    return np.concatenate(rows), np.array(numbers), groups


@torch.no_grad()
def features_of(model: ActionNet, clips: Sequence[Array], device: torch.device) -> Array:
    """Return a vector for each clip."""
    found = []
    for place in range(0, len(clips), BATCH):
        batch = torch.from_numpy(np.stack(clips[place : place + BATCH])).to(device)
        found.append(model.features(batch).float().cpu().numpy())
    return np.concatenate(found)


@torch.no_grad()
def _fit(model: ActionNet, features: Array, numbers: Array, count: int) -> None:
    """Set centre, spread and head of the network."""
    centre, spread = features.mean(0), features.std(0) + 1e-3
    scaled = ((features - centre) / spread).astype(np.float32)
    with torch.enable_grad():
        weights, bias = fit_head(scaled, numbers, count)
    model.centre.copy_(torch.from_numpy(centre))
    model.spread.copy_(torch.from_numpy(spread))
    model.head.weight.copy_(torch.from_numpy(weights.astype(np.float32)))
    model.head.bias.copy_(torch.from_numpy(bias.astype(np.float32)))


@torch.no_grad()
def _judged(
    model: ActionNet, features: Array, numbers: Array, groups: Sequence[int], held: frozenset[int]
) -> float | None:
    """Return the share of stretches left out whose clips together are named right."""
    right = []
    device = model.centre.device
    for place in sorted(held):
        mine = [row for row, group in enumerate(groups) if group == place]
        rows = torch.from_numpy(features[mine]).to(device)
        scores = model.head((rows - model.centre) / model.spread).softmax(-1).mean(0)
        right.append(int(scores.argmax()) == numbers[mine[0]])
    return float(np.mean(right)) if right else None


def _export(model: ActionNet, classes: tuple[str, ...], folder: Path, name: str) -> dict[str, Any]:
    """Write `model.onnx`; say why where packages are missing."""
    from weft.serve.export.api import export

    card = Card(name=name, task="tensor", labels=classes, notes="weft.vision actions: clips of films")
    samples = np.random.default_rng(0).integers(0, 256, (2, FRAMES, 3, SIDE, SIDE), dtype=np.uint8)
    try:
        with torch.no_grad():
            done = export(
                model.eval(), samples, folder / "model.onnx", card=card, batches=(1, 2), rtol=0.0, atol=1e-4
            )
    except ModelError as error:
        return {"file": None, "reason": str(error)}
    return {"file": "model.onnx", "largest_difference": done.parity.largest}
