"""Data sets of made-up pictures for the pages of vision: cells on a slide, drawn when they are asked for."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import cv2
import numpy as np

LABELS = (("RBC", "#ff5c3a"), ("WBC", "#2fa8ff"), ("Platelets", "#ffb000"))
SIDES = (640, 480)


@dataclass
class VisionWorld:
    """All that the made-up service knows about pictures; requests change it."""

    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    tasks: list[Any] = field(default_factory=list)
    status: str = "untested"  # of the newest trained model
    served: bool = False  # it is deployed


def make_vision(pictures: int) -> VisionWorld:
    """Return a world with a data set of so many pictures, or with nothing."""
    world = VisionWorld()
    if not pictures:
        return world
    add_dataset(world, "cells", "Blood cells under a microscope")
    for number in range(pictures):
        add_picture(world, "cells", f"BloodImage_{number:05d}.jpg", number)
    add_film(world, "cells", "flow.mp4")
    return world


def add_dataset(world: VisionWorld, name: str, description: str = "") -> None:
    labels = [{"name": label, "colour": colour} for label, colour in (LABELS if name == "cells" else ())]
    categories = [{"name": "healthy", "colour": "#2ed3a0"}, {"name": "ill", "colour": "#e58cff"}]
    world.datasets[name] = {
        "description": description, "labels": labels, "categories": categories if name == "cells" else []
    }  # fmt: skip


def cells(number: int) -> list[dict[str, Any]]:
    """Return the cells of a picture: boxes with labels, which depend on its number alone."""
    rng = random.Random(number)
    found = []
    for index in range(rng.randrange(4, 9)):
        label = rng.choices([name for name, _ in LABELS], (8, 1, 2))[0]
        side = {"RBC": 92, "WBC": 160, "Platelets": 34}[label] * rng.uniform(0.85, 1.15)
        x, y = rng.uniform(0, SIDES[0] - side), rng.uniform(0, SIDES[1] - side)
        box = [round(x, 1), round(y, 1), round(x + side, 1), round(y + side * 0.94, 1)]
        found.append(shape(f"{number}-{index}", label, box))
    return found


def shape(key: str, label: str, box: list[float], confidence: float | None = None) -> dict[str, Any]:
    return {
        "id": key, "label": label, "box": box, "polygons": [], "mask": None, "confidence": confidence,
        "model": None if confidence is None else "cells@2", "track": None,
    }  # fmt: skip


def add_picture(world: VisionWorld, dataset: str, name: str, number: int) -> dict[str, Any]:
    """Add a picture: a third has labels of people, a third those of a model, a third none."""
    kind = number % 3
    shapes = cells(number) if kind != 2 else []
    if kind == 1:
        rng = random.Random(-number)
        shapes = [
            one | {"confidence": round(rng.uniform(0.3, 0.99), 3), "model": "cells@2"} for one in shapes
        ]
    file = {
        "id": f"{dataset}-{number}", "dataset": dataset, "name": name, "kind": "picture", "width": SIDES[0],
        "height": SIDES[1], "bytes": 30_000, "category": "healthy" if number % 6 == 0 else None,
        "category_confidence": None, "shapes": shapes, "review": "", "revision": 1, "number": number, "parent": None,
        "time_s": None, "duration_s": None, "metadata": {},
    }  # fmt: skip
    world.files[str(file["id"])] = file
    return file


def add_film(world: VisionWorld, dataset: str, name: str) -> None:
    file = add_picture(world, dataset, name, len(world.files) * 3 + 2)
    file.update(kind="film", duration_s=12.4)


@lru_cache(maxsize=64)
def picture(number: int, side: int | None = None) -> bytes:
    """Return a picture as JPEG: its cells on a pale ground."""
    image = np.full((SIDES[1], SIDES[0], 3), (214, 226, 238), np.uint8)  # blue, green, red
    colours = {"RBC": (128, 132, 214), "WBC": (164, 92, 126), "Platelets": (150, 108, 150)}
    for one in cells(number):
        x0, y0, x1, y1 = one["box"]
        middle, axes = (int((x0 + x1) / 2), int((y0 + y1) / 2)), (int((x1 - x0) / 2), int((y1 - y0) / 2))
        tone = colours[one["label"]]
        inner = tuple(min(255, part + (34 if one["label"] == "RBC" else -30)) for part in tone)
        cv2.ellipse(image, middle, axes, 0, 0, 360, tone, -1, cv2.LINE_AA)
        cv2.ellipse(image, middle, (axes[0] // 3, axes[1] // 3), 0, 0, 360, inner, -1, cv2.LINE_AA)
    if side is not None:
        sides = (side, side * SIDES[1] // SIDES[0])
        return bytes(cv2.imencode(".jpg", cv2.resize(image, sides, interpolation=cv2.INTER_AREA))[1])
    return bytes(cv2.imencode(".jpg", image)[1])
