"""Automatic labels: a job in which a trained model labels pictures, and what becomes of what it found.

The job writes lines and touches no library; they are taken over when it has completed. A picture that somebody has
labelled meanwhile stays as it is. Labels carry the model and its confidence, until a person accepts them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import UsageError
from weft.jobs.spec.model import JobSpec, ResourceSpec
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event
from weft.jobs.store.jobs import StoredJob
from weft.jobs.vision.models import PictureModel
from weft.jobs.vision.pictures import FrozenPictures
from weft.jobs.vision.trainings import DOCUMENT, LABELLING, TAG, WORKER
from weft.jobs.vision.worker import LABELS

if TYPE_CHECKING:
    from weft.vision.library import Library

_LARGEST_LINE = 16 << 20  # bytes


@dataclass(frozen=True, kw_only=True)
class LabellingRequest:
    """An automatic labelling as it is requested."""

    data: FrozenPictures
    files: tuple[str, ...]  # that are to be labelled
    model: PictureModel
    confidence: float  # that a label must have at least
    workers: int = 1
    resources: ResourceSpec = field(default_factory=ResourceSpec)


def labelling_document(asked: LabellingRequest) -> dict[str, Any]:
    """Return what the worker of a labelling reads."""
    version = {"name": asked.data.name, "number": asked.data.number, "digest": asked.data.digest}
    return {
        "version": version,
        "files": list(asked.files),
        "model": asked.model.reference,
        "confidence": asked.confidence,
    }


def labelling_spec(asked: LabellingRequest) -> JobSpec:
    """Return the job of an automatic labelling."""
    return JobSpec(
        run=("-m", WORKER, "label", DOCUMENT),
        name=f"label-{asked.data.name}"[:100],
        project="vision",
        workers=asked.workers,
        resources=asked.resources,
        data={"pictures": asked.data.place},
        tags={
            TAG: LABELLING,
            "dataset": asked.data.dataset,
            "dataset_name": asked.data.name,
            "model": asked.model.reference,
            "pictures": str(len(asked.files)),
        },
    )


class AutomaticLabels:
    """Takes what labellings found into the library."""

    def __init__(self, database: Database, library: Library) -> None:
        self._database, self._library = database, library

    async def take(self, job: StoredJob, spec: JobSpec, folder: Path) -> None:
        """Take over the lines of a labelling that has completed."""
        labelled, left = await asyncio.to_thread(self._take, folder / "outputs")
        text = f"{labelled} pictures of {spec.tags.get('dataset_name', 'the data set')} have labels of this model"
        if left:
            text += f"; {left} stay as they are: labelled by people meanwhile, removed, or nothing was found"

        def tell(connection: Any) -> None:
            add_event(connection, f"job:{job.id}", "note", job=job.id, text=text)

        await self._database.write(tell)

    def _take(self, outputs: Path) -> tuple[int, int]:
        labelled = left = 0
        for line in _lines(outputs):
            done = self._label(line)
            labelled, left = labelled + done, left + (not done)
        return labelled, left

    def _label(self, line: dict[str, Any]) -> bool:
        """Save what was found in one picture, unless a person has labelled it; return whether it was saved."""
        from weft.vision.formats.documents import shape_of
        from weft.vision.refusals import LabelsChangedError, PicturesNotFoundError

        shapes = tuple(shape_of(one) for one in line.get("shapes", ()))
        category, confidence = line.get("category"), line.get("confidence")
        if not shapes and category is None:
            return False
        try:
            known = self._library.file(str(line.get("id", "")))
            if known.state == "labelled":
                return False
            sure = float(confidence) if category is not None and confidence is not None else None
            self._library.save_labels(known.id, known.revision, shapes, category, category_confidence=sure)
        except (PicturesNotFoundError, LabelsChangedError):  # removed, or labelled this very moment
            return False
        return True


def _lines(outputs: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines that the workers of a labelling wrote."""
    for path in sorted(outputs.glob(f"*{LABELS}")):
        if path.is_symlink():
            continue
        with path.open("rb") as file:
            while line := file.readline(_LARGEST_LINE):
                try:
                    found = json.loads(line)
                except ValueError:
                    raise UsageError(f"{path.name} must be lines of JSON, got {line[:80]!r}") from None
                if isinstance(found, dict):
                    yield found
