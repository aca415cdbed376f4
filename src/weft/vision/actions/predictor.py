"""Answers of a trained model for films: which actions happen, and from when to when."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UsageError
from weft.vision.actions.clips import CLIP_S, STEP_S, clip_starts, read_clips
from weft.vision.films import probe_film

Array = np.ndarray[Any, Any]
BATCH = 8  # clips that are looked at together


@dataclass(frozen=True)
class FoundAction:
    """An action that a model finds in a film."""

    label: str
    start_s: float
    end_s: float
    confidence: float


def is_action_model(folder: str | Path) -> bool:
    """Return whether a model folder is one of actions."""
    try:
        found = json.loads((Path(folder) / "results.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("task") == "action"


class ActionPredictor:
    """A loaded model of actions, by ONNX Runtime."""

    def __init__(self, folder: str | Path) -> None:
        import onnxruntime

        home = Path(folder)
        try:
            about = json.loads((home / "results.json").read_bytes())
            self.classes = tuple(str(one) for one in about["classes"])
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(
                f"{home} must be a model of actions, got none that can be read: {error}"
            ) from None
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            home / "model.onnx", options, providers=["CPUExecutionProvider"]
        )

    def find(self, film: Path, *, confidence: float = 0.5) -> list[FoundAction]:
        """Return the actions of a film in the order of time."""
        starts = clip_starts(0.0, probe_film(film).duration_s)
        scores: list[Array] = []
        batch: list[Array] = []
        name = self._session.get_inputs()[0].name
        for number, (_, clip) in enumerate(read_clips(film, starts), 1):
            batch.append(clip)
            if len(batch) == BATCH or number == len(starts):
                scores.append(self._session.run(None, {name: np.stack(batch)})[0])
                batch = []
        if not scores:
            return []
        return joined_actions(
            starts, np.concatenate(scores), self.classes, confidence, probe_film(film).duration_s
        )


def joined_actions(
    starts: Sequence[float], scores: Array, classes: Sequence[str], confidence: float, duration_s: float
) -> list[FoundAction]:
    """Return actions from the scores of clips that overlap by half: neighbours of one name are one action.

    A clip tells of its middle half; the first and the last one of a film also of what lies beyond.
    """
    found: list[FoundAction] = []
    best = scores.argmax(1)
    edge = (CLIP_S - STEP_S) / 2
    place = 0
    while place < len(starts):
        number, last = int(best[place]), place
        while last + 1 < len(starts) and best[last + 1] == number:
            last += 1
        sure = float(scores[place : last + 1, number].max())
        if classes[number] and sure >= confidence:
            start_s = 0.0 if place == 0 else starts[place] + edge
            end_s = duration_s if last == len(starts) - 1 else starts[last] + edge + STEP_S
            found.append(
                FoundAction(classes[number], round(start_s, 3), round(min(end_s, duration_s), 3), sure)
            )
        place = last + 1
    return without_gaps(found)


def without_gaps(found: Sequence[FoundAction]) -> list[FoundAction]:
    """Return actions of which those of one name with less than a clip between them are one."""
    joined: list[FoundAction] = []
    for one in found:
        if joined and joined[-1].label == one.label and one.start_s - joined[-1].end_s < CLIP_S:
            before = joined.pop()
            sure = max(before.confidence, one.confidence)
            one = FoundAction(one.label, before.start_s, one.end_s, sure)
        joined.append(one)
    return joined
