"""Background work on data sets, by kind: from the request that was kept to its result. It can be begun again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.vision.augment.planning import AugmentStep
from weft.vision.fetching import add_from_urls
from weft.vision.library.library import Library
from weft.vision.library.tasks import TaskNotes
from weft.vision.views import VisionTask

Outcome = tuple[dict[str, Any], list[str]]  # result and problems
Work = Callable[[Library, TaskNotes, VisionTask, Mapping[str, Any]], Outcome]


def _user(task: VisionTask, request: Mapping[str, Any]) -> str | None:
    """Return the user who asked for a task; None: an administrator, who may do it with everybody's data."""
    return None if request.get("admin") else task.owner


def _import(library: Library, notes: TaskNotes, task: VisionTask, request: Mapping[str, Any]) -> Outcome:
    result = library.import_from(
        task.dataset,
        Path(request["path"]),
        skip_duplicates=bool(request.get("skip_duplicates")),
        report=notes.progress,
        user=_user(task, request),
    )
    counts = {"added": result.added, "there": result.there, "left_out": result.left_out}
    return counts, result.problems


def _fetch(library: Library, notes: TaskNotes, task: VisionTask, request: Mapping[str, Any]) -> Outcome:
    added, problems = add_from_urls(
        library,
        task.dataset,
        request["urls"],
        skip_duplicates=bool(request.get("skip_duplicates")),
        report=notes.progress,
        user=_user(task, request),
    )
    return {"added": added, "left_out": len(problems)}, problems


def _augment(library: Library, notes: TaskNotes, task: VisionTask, request: Mapping[str, Any]) -> Outcome:
    steps = [AugmentStep(**step) for step in request["steps"]]
    made = library.augment(
        task.dataset,
        request["name"],
        steps,
        keep=request["keep"],
        seed=request["seed"],
        report=notes.progress,
        user=_user(task, request),
    )
    return {"dataset": made.id, "pictures": made.counts.pictures}, []


def _clone(library: Library, notes: TaskNotes, task: VisionTask, request: Mapping[str, Any]) -> Outcome:
    made = library.clone(task.dataset, request["name"], _user(task, request))
    return {"dataset": made.id, "pictures": made.counts.pictures}, []


def _frames(library: Library, notes: TaskNotes, task: VisionTask, request: Mapping[str, Any]) -> Outcome:
    ids = library.capture(
        request["film"],
        times_s=request.get("times_s", ()),
        every_s=request.get("every_s"),
        report=notes.progress,
        user=_user(task, request),
    )
    return {"frames": len(ids), "files": list(ids[:1000])}, []


WORK: Mapping[str, Work] = {
    "import": _import,
    "fetch": _fetch,
    "augment": _augment,
    "clone": _clone,
    "frames": _frames,
}
