"""Requests and answers about inferences on films."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from weft.documents import Document
from weft.jobs.api.types.common import Text
from weft.jobs.api.types.jobs import JobView
from weft.jobs.api.types.trainings import Confidence


class FilmInferenceBody(Document, frozen=True):
    """A film to be looked at by a trained model."""

    model: Text  # NAME or NAME@VERSION
    confidence: Confidence = 0.5
    every: Annotated[int, Meta(ge=1, le=10_000)] = 1  # frames: the first of so many is looked at
    gpus: Annotated[float, Meta(ge=0, le=1024)] = 0.0
    cpus: Annotated[float, Meta(ge=0, le=65_536)] = 1.0


class FilmInference(msgspec.Struct, frozen=True, kw_only=True):
    """An inference on a film at a glance."""

    job: JobView
    film: str  # id of its file
    film_name: str
    dataset: str
    model: str
    captioned: str | None  # address of the film that came out, once there is one


class FilmInferences(msgspec.Struct, frozen=True):
    """Inferences on films, newest first."""

    inferences: tuple[FilmInference, ...]


class FilmInferenceDetail(FilmInference, frozen=True, kw_only=True):
    """An inference with its answers: `time_s`, `classified` and `shapes` of each frame that was looked at.

    Shapes have label, box, confidence, and `track`: the same object in other frames.
    """

    frames: tuple[dict[str, Any], ...]
    actions: tuple[dict[str, Any], ...] = ()  # of a model of actions: label, start_s, end_s, confidence
