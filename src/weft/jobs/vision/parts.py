"""The library of data sets in the service: opened when it is first needed; background work in threads; events."""

from __future__ import annotations

import asyncio
import json
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft.errors import UsageError, WeftError
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event
from weft.serve.server import logs as server_logs

if TYPE_CHECKING:
    from weft.vision.library.library import Library
    from weft.vision.views import VisionTask

T = TypeVar("T")
AT_ONCE = 2  # tasks that run at the same time
UPLOADS = "uploads"  # folder of zips that wait to be imported


class VisionParts:
    """Data sets of pictures in the service."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self.folder = folder / "vision"
        self._library: Library | None = None
        self._opening = threading.Lock()
        self._turns = threading.Semaphore(AT_ONCE)
        self._threads: set[threading.Thread] = set()
        self._closing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Begin interrupted work again, and close the library at the end."""
        if (self.folder / "library.db").exists() or self._shared_address() is not None:
            await asyncio.to_thread(self._begin_again)
        try:
            yield
        finally:
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Let background work end at its next step, and close the library; what was under way goes on next time."""
        self._closing = True
        for thread in list(self._threads):
            thread.join()
        if self._library is not None:
            self._library.close()

    def _shared_address(self) -> str | None:
        """Return the address of a PostgreSQL database, where the tables of the library are beside those of jobs."""
        url = self._database.engine.url
        if url.get_backend_name() != "postgresql":
            return None  # SQLite: a file of its own, so that long imports keep no job from being written
        return url.render_as_string(hide_password=False)

    @property
    def library(self) -> Library:
        """Return the library; opened at the first time, which may block."""
        with self._opening:
            if self._library is None:
                try:
                    from weft.vision.library.library import Library
                except ImportError as error:
                    raise UsageError(
                        f"data sets of pictures need the extra `vision` on the service: {error}; "
                        "pip install 'weft[vision]'"
                    ) from None
                self._library = Library(self.folder, self._shared_address())
            return self._library

    async def call(self, work: Callable[[Library], T]) -> T:
        """Do something with the library in a thread."""
        return await asyncio.to_thread(lambda: work(self.library))

    # -- tasks ------------------------------------------------------------------------------------

    async def begin(self, dataset_id: str, kind: str, owner: str, request: dict[str, Any]) -> VisionTask:
        """Begin background work; return the task as it stands."""

        def add(library: Library) -> VisionTask:
            from weft.vision.library.tasks import add_task

            identity = add_task(library.store, dataset_id, kind, owner, request)
            self._start(identity)
            return library.task(identity)

        return await self.call(add)

    def _start(self, task_id: str) -> None:
        """Run a task in a thread of its own, when it is its turn."""

        def run() -> None:
            try:
                with self._turns:
                    if not self._closing:
                        self._run(task_id)
            finally:
                self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=f"vision-task-{task_id[:8]}")
        self._threads.add(thread)
        thread.start()

    def _begin_again(self) -> None:
        from weft.vision.library.tasks import interrupted_tasks

        for row in interrupted_tasks(self.library.store):
            self._start(row.id)

    def _run(self, task_id: str) -> None:
        from weft.jobs.vision.work import WORK
        from weft.vision.library.tasks import (
            TaskNotes,
            TaskPutOff,
            TaskStopped,
            begin_task,
            end_task,
            find_task,
        )

        library = self.library
        if not begin_task(library.store, task_id):
            return
        with library.store.reading() as connection:
            row = find_task(connection, task_id, None)
        task, request = library.task(task_id), json.loads(row.request)
        self.tell(task.dataset, "task", [task.owner], task=task_id)
        try:
            notify = partial(self.tell, task.dataset, "task", [task.owner], task=task_id)
            notes = TaskNotes(library.store, task_id, notify, lambda: self._closing)
            result, problems = WORK[task.kind](library, notes, task, request)
            end_task(library.store, task_id, "done", problems=problems, result=result)
        except TaskPutOff:
            request = {}  # its upload is needed again
        except TaskStopped:
            end_task(library.store, task_id, "stopped", message="stopped; what was done stays")
        except WeftError as error:
            end_task(library.store, task_id, "failed", message=str(error))
        except Exception:
            server_logs.event("vision-task", id=task_id, error=traceback.format_exc())
            end_task(library.store, task_id, "failed", message="the service failed on it; its log says how")
        finally:
            if request.get("uploaded"):
                Path(request["path"]).unlink(missing_ok=True)
            self.changed(task.dataset, task=task_id)

    # -- events -----------------------------------------------------------------------------------

    def changed(self, dataset_id: str, **data: Any) -> None:
        """Tell all who may see a data set that it has changed."""
        try:
            found = self.library.dataset(dataset_id)
        except WeftError:
            return  # it is gone: those who look at it find out when they ask
        self.tell(dataset_id, "vision", [found.owner, *found.shares], **data)

    def tell(self, dataset_id: str, kind: str, users: Iterable[str], **data: Any) -> None:
        """Write an event for each of some users; "*" is for everybody."""
        names = list(dict.fromkeys(users))

        def write(connection: Any) -> None:
            for name in names:
                add_event(connection, f"vision:{name}", kind, dataset=dataset_id, **data)

        self._database.submit(write)
