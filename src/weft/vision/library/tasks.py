"""Tasks: background work on a library, with progress that anybody may look at, and that outlives the process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from weft.vision.library.rows import new_id
from weft.vision.library.store import LibraryStore, now_ms
from weft.vision.library.tables import task
from weft.vision.refusals import PicturesNotFoundError
from weft.vision.views import TaskState, VisionTask

PROGRESS_S = 0.3  # between two notes of progress
MOST_PROBLEMS = 100
OPEN: tuple[TaskState, ...] = ("waiting", "running")


class TaskStopped(Exception):  # noqa: N818 (no mistake: somebody stopped it)
    """Somebody stopped a task."""


class TaskPutOff(Exception):  # noqa: N818 (no mistake: it goes on later)
    """A task was interrupted because its process ends; it goes on when another one begins."""


class TaskNotes:
    """The notes of one task while it runs: progress, problems, whether it is to stop."""

    def __init__(
        self,
        store: LibraryStore,
        task_id: str,
        told: Callable[[], object] = lambda: None,
        ends: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store, self.id, self._told, self._ends = store, task_id, told, ends
        self._last = 0.0
        self._stopped = False

    def progress(self, done: int, total: int, message: str = "") -> None:
        """Note how far the task is, now and then; TaskStopped or TaskPutOff where it is to end."""
        if self._ends():
            raise TaskPutOff
        if time.monotonic() - self._last < PROGRESS_S and done < total:
            if self._stopped:
                raise TaskStopped
            return
        self._last = time.monotonic()
        with self._store.writing() as connection:
            state = connection.scalar(sa.select(task.c.state).where(task.c.id == self.id))
            values: dict[str, Any] = {"done": done, "total": total, "updated_ms": now_ms()}
            if message:
                values["message"] = message
            connection.execute(sa.update(task).where(task.c.id == self.id).values(values))
        self._told()
        if state == "stopped":
            self._stopped = True
            raise TaskStopped


def add_task(
    store: LibraryStore, dataset_id: str, kind: str, owner: str, request: dict[str, Any] | None = None
) -> str:
    """Note a task that is to be done; return its id."""
    identity, moment = new_id(), now_ms()
    row = {
        "id": identity,
        "dataset_id": dataset_id,
        "kind": kind,
        "state": "waiting",
        "done": 0,
        "total": 0,
        "message": "",
        "problems": "[]",
        "result": "{}",
        "request": json.dumps(request or {}),
        "owner": owner,
        "created_ms": moment,
        "updated_ms": moment,
    }
    with store.writing() as connection:
        connection.execute(sa.insert(task), row)
    return identity


def begin_task(store: LibraryStore, task_id: str) -> bool:
    """Take a task; return False where somebody else has it, or it was stopped before it began."""
    with store.writing() as connection:
        mine = sa.and_(task.c.id == task_id, task.c.state == "waiting")
        done = connection.execute(sa.update(task).where(mine).values(state="running", updated_ms=now_ms()))
        return done.rowcount == 1


def end_task(
    store: LibraryStore,
    task_id: str,
    state: TaskState,
    *,
    message: str = "",
    problems: Sequence[str] = (),
    result: dict[str, Any] | None = None,
) -> None:
    values: dict[str, Any] = {
        "state": state,
        "message": message,
        "problems": json.dumps(list(problems)[:MOST_PROBLEMS]),
        "result": json.dumps(result or {}),
        "updated_ms": now_ms(),
    }
    if state == "done":
        values["done"] = task.c.total
    with store.writing() as connection:
        connection.execute(sa.update(task).where(task.c.id == task_id).values(values))


def stop_task(store: LibraryStore, task_id: str) -> None:
    """Ask a task to stop; what it has done so far stays."""
    with store.writing() as connection:
        still = sa.and_(task.c.id == task_id, task.c.state.in_(OPEN))
        connection.execute(sa.update(task).where(still).values(state="stopped", updated_ms=now_ms()))


def find_task(connection: sa.Connection, task_id: str, user: str | None) -> Any:
    row = connection.execute(sa.select(task).where(task.c.id == task_id)).one_or_none()
    if row is None or (user is not None and row.owner != user):
        raise PicturesNotFoundError(f"the task {task_id[:80]!r} must exist, got none that you may see")
    return row


def list_tasks(
    connection: sa.Connection, user: str | None, dataset_id: str | None = None, limit: int = 100
) -> tuple[VisionTask, ...]:
    """Return tasks, newest first."""
    found = sa.select(task).order_by(task.c.created_ms.desc(), task.c.id).limit(limit)
    if user is not None:
        found = found.where(task.c.owner == user)
    if dataset_id is not None:
        found = found.where(task.c.dataset_id == dataset_id)
    return tuple(map(task_view, connection.execute(found)))


def interrupted_tasks(store: LibraryStore) -> list[Any]:
    """Return tasks that were under way when their process ended, ready to be taken again."""
    with store.writing() as connection:
        connection.execute(sa.update(task).where(task.c.state == "running").values(state="waiting"))
        found = sa.select(task).where(task.c.state == "waiting").order_by(task.c.created_ms)
        return list(connection.execute(found))


def task_view(row: Any) -> VisionTask:
    return VisionTask(
        id=row.id,
        dataset=row.dataset_id,
        kind=row.kind,
        state=row.state,
        done=row.done,
        total=row.total,
        message=row.message,
        problems=tuple(json.loads(row.problems)),
        result=json.loads(row.result),
        owner=row.owner,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
    )
