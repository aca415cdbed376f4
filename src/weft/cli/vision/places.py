"""Places of data sets: a library in a folder of this machine, or the one of a jobs service; both do the same."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from weft.cli.jobs.options import open_client
from weft.errors import PictureError, UsageError
from weft.vision.views import VisionDataset, VisionFiles, VisionHealth, VisionTask, VisionVersion

if TYPE_CHECKING:
    from weft.jobs.client.connection import ServiceConnection
    from weft.vision.library.library import Library

Report = Callable[[int, int], object]
Imported = dict[str, Any]  # added, there, left_out, problems
LONGEST_S = 24 * 3600.0  # of an upload
LOOK_S = 0.3  # between two looks at a task
URL_LISTS = (".txt", ".urls")  # files with the address of a picture in each line


class DataPlace(Protocol):
    """A place of data sets, as the verbs ask it."""

    def datasets(self) -> tuple[VisionDataset, ...]: ...

    def dataset(self, name: str) -> VisionDataset: ...

    def create(self, name: str, description: str) -> VisionDataset: ...

    def bring_in(self, name: str, source: Path, skip_duplicates: bool, report: Report) -> Imported: ...

    def export(self, text: str, path: Path, format: str) -> Path: ...

    def health(self, name: str, near: bool, report: Report) -> VisionHealth: ...

    def versions(self, name: str) -> tuple[VisionVersion, ...]: ...

    def freeze(self, name: str, note: str) -> VisionVersion: ...

    def augment(self, name: str, made: str, steps: Sequence[tuple[str, float]], keep: bool, seed: int,
                report: Report) -> VisionDataset: ...  # fmt: skip

    def frames(
        self, name: str, film: str, times_s: Sequence[float], every_s: float | None, report: Report
    ) -> int: ...

    def clone(self, name: str, made: str) -> VisionDataset: ...

    def files(self, name: str, query: str, sort: str, limit: int) -> VisionFiles: ...

    def carry(self, action: str, name: str, target: str, query: str) -> int: ...

    def remove(self, name: str) -> None: ...


@contextmanager
def open_place(folder: Path | None, url: str | None) -> Iterator[DataPlace]:
    """Yield the place that the options mean: a service with --url, or else a library."""
    if url is not None and folder is not None:
        raise UsageError(
            "data must be in a library or on a service, got --library and --url; give one of them"
        )
    if url is not None:
        with open_client(url) as client:
            yield ServicePlace(client.connection)
        return
    try:
        from weft.vision.library.library import Library, default_library
    except ModuleNotFoundError as error:
        raise UsageError(
            f"weft vision needs the package {error.name}, got none; install weft[vision]"
        ) from None
    with Library(folder or default_library()) as library:
        yield LibraryPlace(library)


class LibraryPlace:
    """A library in a folder."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def datasets(self) -> tuple[VisionDataset, ...]:
        return self._library.datasets()

    def dataset(self, name: str) -> VisionDataset:
        return self._library.dataset(name)

    def create(self, name: str, description: str) -> VisionDataset:
        return self._library.create(name, description=description)

    def bring_in(self, name: str, source: Path, skip_duplicates: bool, report: Report) -> Imported:
        if source.suffix.lower() in URL_LISTS:
            from weft.vision.fetching import EVERYWHERE, add_from_urls, read_url_list

            added, problems = add_from_urls(
                self._library,
                name,
                read_url_list(source),
                skip_duplicates=skip_duplicates,
                allowed=EVERYWHERE,  # the list is this user's own, and so is the machine that asks
                report=report,
            )
            return {"added": added, "there": 0, "left_out": len(problems), "problems": problems}
        done = self._library.import_from(name, source, skip_duplicates=skip_duplicates, report=report)
        return {
            "added": done.added,
            "there": done.there,
            "left_out": done.left_out,
            "problems": done.problems,
        }

    def export(self, text: str, path: Path, format: str) -> Path:
        return self._library.export(text, path, format)

    def health(self, name: str, near: bool, report: Report) -> VisionHealth:
        return self._library.health(name, near=near, report=report)

    def versions(self, name: str) -> tuple[VisionVersion, ...]:
        return self._library.versions(name)

    def freeze(self, name: str, note: str) -> VisionVersion:
        return self._library.freeze(name, note=note)

    def augment(
        self, name: str, made: str, steps: Sequence[tuple[str, float]], keep: bool, seed: int, report: Report
    ) -> VisionDataset:
        from weft.vision.augment.planning import AugmentStep

        planned = [AugmentStep(kind, level) for kind, level in steps]
        return self._library.augment(name, made, planned, keep=keep, seed=seed, report=report)

    def frames(
        self, name: str, film: str, times_s: Sequence[float], every_s: float | None, report: Report
    ) -> int:
        from weft.vision.library.files import FileFilter

        page = self._library.files(name, FileFilter(kind="film"), limit=1000)
        chosen = [one for one in page.files if film in (one.id, one.name)]
        return len(
            self._library.capture(_only(chosen, film), times_s=times_s, every_s=every_s, report=report)
        )

    def clone(self, name: str, made: str) -> VisionDataset:
        return self._library.clone(name, made)

    def files(self, name: str, query: str, sort: str, limit: int) -> VisionFiles:
        from weft.vision.library.files import FileFilter

        return self._library.files(name, FileFilter(query=query, sort=sort), limit=limit)

    def carry(self, action: str, name: str, target: str, query: str) -> int:
        from weft.vision.library.files import FileFilter

        return self._library.change_files(name, action, wanted=FileFilter(query=query), target=target)[0]

    def remove(self, name: str) -> None:
        self._library.remove(name)
        self._library.sweep()


def _only(found: Sequence[Any], film: str) -> str:
    if len(found) != 1:
        raise PictureError(
            f"the film must be one of the data set by its name or its id, got {film!r}, which {len(found)} have"
        )
    return str(found[0].id)


class ServicePlace:
    """The library of a jobs service."""

    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection

    def _path(self, name: str) -> str:
        return f"/vision/datasets/{quote(name, safe='')}"

    def datasets(self) -> tuple[VisionDataset, ...]:
        from weft.jobs.api.types.vision import VisionDatasets

        return self._connection.get("/vision/datasets", VisionDatasets).datasets

    def dataset(self, name: str) -> VisionDataset:
        return self._connection.get(self._path(name), VisionDataset)

    def create(self, name: str, description: str) -> VisionDataset:
        body = {"name": name, "description": description}
        return self._connection.send("POST", "/vision/datasets", VisionDataset, body)

    def bring_in(self, name: str, source: Path, skip_duplicates: bool, report: Report) -> Imported:
        """Send a file, a folder as a zip, or the addresses of a list for the service to fetch."""
        if source.suffix.lower() in URL_LISTS and source.is_file():
            from weft.vision.fetching import read_url_list

            body = {"urls": read_url_list(source), "skip_duplicates": skip_duplicates}
            task = self._connection.send("POST", f"{self._path(name)}/import", VisionTask, body)
            done = self._ended(task, report)
            return {"there": 0, **done.result, "problems": list(done.problems)}
        if source.is_dir():
            from weft.vision.formats.archives import pack

            with tempfile.TemporaryDirectory() as home:
                packed = Path(home) / f"{source.resolve().name or 'data'}.zip"
                pack(source, packed)
                return self._send(name, packed, skip_duplicates, report)
        return self._send(name, source, skip_duplicates, report)

    def _send(self, name: str, path: Path, skip_duplicates: bool, report: Report) -> Imported:
        from weft.jobs.api.types.vision import VisionUploadAnswer

        asked = f"name={quote(path.name, safe='')}&skip_duplicates={str(skip_duplicates).lower()}"
        sent = self._connection.send_file(
            f"{self._path(name)}/upload?{asked}", path, VisionUploadAnswer, timeout_s=LONGEST_S
        )
        if sent.task is None:
            return {"added": 1, "there": 0, "left_out": 0, "problems": []}
        task = self._ended(sent.task, report)
        return {**task.result, "problems": list(task.problems)}

    def _ended(self, task: VisionTask, report: Report) -> VisionTask:
        """Follow a task to its end; one that failed is an error."""
        while task.state in ("waiting", "running"):
            time.sleep(LOOK_S)
            task = self._connection.get(f"/vision/tasks/{task.id}", VisionTask)
            if task.total:
                report(task.done, task.total)
        if task.state != "done":
            raise PictureError(task.message or f"the task was {task.state}")
        return task

    def export(self, text: str, path: Path, format: str) -> Path:
        if path.exists():
            raise PictureError(f"{path} must not be there yet; choose another name or remove it")
        if path.suffix.lower() != ".zip":
            raise PictureError(f"an export of a service must be written to a .zip, got {path}; name one")
        name, _, version = text.partition("@")
        query = {"format": format} | ({"version": version} if version else {})
        draft = path.with_name(f".{path.name}.part")
        try:
            asking = self._connection.open(f"{self._path(name)}/export", query, silence_s=LONGEST_S)
            with asking as answer, draft.open("wb") as file:
                for part in answer.iter_bytes():
                    file.write(part)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return path

    def health(self, name: str, near: bool, report: Report) -> VisionHealth:
        query = {"near": str(near).lower()}
        return self._connection.get(f"{self._path(name)}/health", VisionHealth, query)

    def versions(self, name: str) -> tuple[VisionVersion, ...]:
        from weft.jobs.api.types.vision import VisionVersions

        return self._connection.get(f"{self._path(name)}/versions", VisionVersions).versions

    def freeze(self, name: str, note: str) -> VisionVersion:
        return self._connection.send("POST", f"{self._path(name)}/versions", VisionVersion, {"note": note})

    def augment(
        self, name: str, made: str, steps: Sequence[tuple[str, float]], keep: bool, seed: int, report: Report
    ) -> VisionDataset:
        changes = [{"kind": kind, "level": level} for kind, level in steps]
        body = {"name": made, "steps": changes, "keep": keep, "seed": seed}
        task = self._connection.send("POST", f"{self._path(name)}/augment", VisionTask, body)
        return self.dataset(self._ended(task, report).result["dataset"])

    def frames(
        self, name: str, film: str, times_s: Sequence[float], every_s: float | None, report: Report
    ) -> int:
        query = {"kind": "film", "limit": "1000"}
        page = self._connection.get(f"{self._path(name)}/files", VisionFiles, query)
        chosen = _only([one for one in page.files if film in (one.id, one.name)], film)
        body = {"times_s": list(times_s), "every_s": every_s}
        task = self._connection.send("POST", f"/vision/files/{chosen}/frames", VisionTask, body)
        return int(self._ended(task, report).result["frames"])

    def clone(self, name: str, made: str) -> VisionDataset:
        task = self._connection.send("POST", f"{self._path(name)}/clone", VisionTask, {"name": made})
        return self.dataset(self._ended(task, lambda done, total: None).result["dataset"])

    def files(self, name: str, query: str, sort: str, limit: int) -> VisionFiles:
        asked = {"query": query, "sort": sort, "limit": str(limit)}
        return self._connection.get(f"{self._path(name)}/files", VisionFiles, asked)

    def carry(self, action: str, name: str, target: str, query: str) -> int:
        from weft.jobs.api.types.vision import VisionChangeAnswer

        body = {"action": action, "filter": {"query": query}, "target": target}
        return self._connection.send("POST", f"{self._path(name)}/change", VisionChangeAnswer, body).changed

    def remove(self, name: str) -> None:
        self._connection.send("DELETE", self._path(name), type(None))
