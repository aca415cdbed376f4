"""A model folder: the names of its files, and how they are written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.vision.config import VisionConfig

WEIGHTS, RESULTS, CONFIG = "weights.safetensors", "results.json", "config.json"


@dataclass(frozen=True)
class TrainedModel:
    """A model folder that a training wrote."""

    folder: Path
    config: VisionConfig
    classes: tuple[str, ...]
    results: Mapping[str, Any]


def write_json(path: Path, data: Any) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, indent=1) + "\n")
    part.replace(path)
