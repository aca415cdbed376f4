"""Data sets and their files: made, imported, uploaded, copied, exported, categorised."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from weft.jobs.doors.access import Caller, DoorError
from weft.jobs.doors.powerai.answers import dataset_json, file_json, task_json
from weft.jobs.doors.powerai.base import (
    PowerAiPart,
    body_of,
    both,
    guarded,
    in_order,
    json_answer,
    seen_as,
    success,
    text_of,
    whole,
)
from weft.jobs.doors.powerai.identities import (
    library_id,
    missing,
    named_id,
    number_of,
    numbered_id,
    plain_id,
)
from weft.jobs.doors.powerai.labels.objects import described, shape_of
from weft.jobs.doors.powerai.queries import library_query
from weft.jobs.doors.uploads import read_upload
from weft.jobs.vision.projects import find_project
from weft.vision.views import VisionDataset, VisionFile

if TYPE_CHECKING:
    from weft.vision.library import Library

MOST_UPLOAD_BYTES = 8 << 30
PAGE = 1000
_ALL = 10_000_000  # files: more than a data set has
FILMS = (".mp4", ".webm", ".ogg", ".ogv", ".mov", ".avi", ".mkv", ".m4v")
_DATASET = "/datasets/{dataset}"
_FILE = "/datasets/{dataset}/files/{file}"
_UPLOADED = "/uploads/{owner}/datasets/{dataset}/{kind}/{name}"
_TEXTS = frozenset(
    {"user-metadata", "user_metadata", "labels", "upload_type"}
)  # parts of an upload that describe its files
_PROJECT = "project"  # a setting of a data set


class DataPart(PowerAiPart):
    """Data sets and files."""

    def routes(self) -> list[BaseRoute]:
        return [
            *both("/datasets", {"GET": self.list, "POST": self.create}),
            *both("/datasets/import", {"POST": self.import_zip}),
            *both(_DATASET, {"GET": self.show, "PUT": self.change, "DELETE": self.remove}),
            *both(f"{_DATASET}/export", {"GET": self.export}),
            *both(f"{_DATASET}/action", {"POST": self.act}),
            *both(f"{_DATASET}/files", {"GET": self.files, "POST": self.upload}),
            *both(f"{_DATASET}/files/copy", {"POST": self.copy}),
            *both(f"{_DATASET}/files/move", {"POST": self.move}),
            *both(_FILE, {"GET": self.file, "DELETE": self.remove_file}),
            *both(f"{_FILE}/download", {"GET": self.picture}),
            *both(f"{_FILE}/thumbnail", {"GET": self.thumbnail}),
            *both(
                f"{_FILE}/action",
                {"GET": self.file_action, "POST": self.file_action, "PUT": self.file_action},
            ),
            *both(_UPLOADED, {"GET": self.uploaded}),
            Route(_UPLOADED, guarded(self.uploaded), methods=["GET"]),  # the path that a file's answer names
        ]

    async def dataset(self, request: Request, caller: Caller) -> VisionDataset:
        """Return the data set of a path, if the caller may see it."""
        reference = plain_id(request.path_params["dataset"])
        found = await self.library(lambda library: library.dataset(reference, seen_as(caller)))
        request.state.dataset = found.id
        return found

    async def list(self, request: Request) -> Response:
        caller = await self.caller(request)
        seen = await self.library(lambda library: library.datasets(seen_as(caller)))
        found = await self.shown(seen)
        project = request.query_params.get("pg_id")
        if project:
            wanted = {numbered_id("project", number_of("project", one)) for one in project.split(",")}
            found = [one for one in found if one["project_group_id"] in wanted]
        return json_answer(in_order(found, request))

    async def shown(self, found: Sequence[VisionDataset]) -> Sequence[dict[str, Any]]:
        """Return data sets with the projects that they belong to."""

        def read(library: Library) -> dict[str, Any]:
            from weft.vision.library.marks.settings import read_settings

            with library.store.reading() as connection:
                return read_settings(connection, [one.id for one in found], _PROJECT)

        projects = await self.library(read)
        return [
            dataset_json(one, numbered_id("project", projects[one.id]) if one.id in projects else None)
            for one in found
        ]

    async def _join(self, known: VisionDataset, body: dict[str, Any]) -> None:
        """Put a data set into the project that a body names, or take it out of its own."""
        if "project_group_id" not in body:
            return
        given = body["project_group_id"]
        number = number_of("project", str(given)) if given else None
        if number is not None:
            await self._database.read(lambda c: find_project(c, number))

        def write(library: Library) -> None:
            from weft.vision.library.marks.settings import write_setting

            with library.store.writing() as connection:
                write_setting(connection, known.id, _PROJECT, number)

        await self.library(write)

    async def create(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        name, about = text_of(body, "name"), text_of(body, "description", needed=False)
        made = await self.library(
            lambda library: library.create(name, description=about, user=caller.user_name)
        )
        await self._join(made, body)
        return success(dataset_id=library_id(made.id), **(await self.shown([made]))[0])

    async def show(self, request: Request) -> Response:
        found = await self.dataset(request, await self.caller(request))
        return json_answer((await self.shown([found]))[0])

    async def change(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        known = await self.dataset(request, caller)
        name, about = body.get("name"), body.get("description")
        changed = await self.library(
            lambda library: library.change(known.id, user=seen_as(caller), name=name, description=about)
        )
        await self._join(changed, body)
        return success(**(await self.shown([changed]))[0])

    async def remove(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        known = await self.dataset(request, caller)
        await self.library(lambda library: library.remove(known.id, seen_as(caller)))
        return success()

    async def act(self, request: Request) -> Response:
        """Clone or label a data set."""
        caller, body = await self.caller(request, writes=True), await body_of(request)
        known, action = await self.dataset(request, caller), text_of(body, "action")
        if action == "clone":
            name = text_of(body, "name")
            made = await self.library(lambda library: library.clone(known.id, name, caller.user_name))
            return success(dataset_id=library_id(made.id))
        if action in ("autolabel", "auto_label"):
            from weft.jobs.doors.powerai.labels.labelling import begin_labelling

            return await begin_labelling(self, caller, known, body)
        raise DoorError("bad", f"action must be clone or autolabel, got {action[:40]!r}")

    async def export(self, request: Request) -> Response:
        """Give a data set as a zip in these clients' format; `raw` leaves the labels out of nothing here."""
        caller = await self.caller(request)
        known = await self.dataset(request, caller)
        place = (
            self.service.folder
            / "vision"
            / "incoming"
            / f"export-{named_id('export', known.id, id(request))}.zip"
        )
        await self.library(lambda library: library.export(known.id, place, "ibm", seen_as(caller)))
        return FileResponse(
            place,
            media_type="application/zip",
            filename=f"{known.name}.zip",
            background=BackgroundTask(place.unlink, missing_ok=True),
        )

    # -- files --------------------------------------------------------------------------------------------------------

    async def files(self, request: Request) -> Response:
        caller = await self.caller(request)
        known, query = await self.dataset(request, caller), request.query_params
        category = query.get("category_id")
        names = {named_id("category", known.id, one.name): one.name for one in known.categories}
        state = "unlabelled" if category == "uncategorized" else "all"
        if category and category != "uncategorized" and category not in names:
            raise missing("category", category)
        parent = query.get("parent_id")
        wanted = {
            "state": state,
            "category": names.get(category or ""),
            "parent": plain_id(parent) if parent else None,
            "query": library_query(query.get("query", "")),
        }
        skip, limit = whole(request, "skip", 0), whole(request, "limit", 100_000)
        most = _ALL if query.get("sortby") else skip + limit
        found = await self.library(lambda library: _pages(library, known.id, wanted, most, seen_as(caller)))
        return json_answer(in_order([file_json(one, known.owner) for one in found], request, limit))

    async def upload(self, request: Request) -> Response:
        """Take pictures; films and zips are taken in the background where they are large."""
        caller = await self.caller(request, writes=True)
        known = await self.dataset(request, caller)
        async with read_upload(request, MOST_UPLOAD_BYTES, texts=_TEXTS) as form:
            if not form.files:
                raise DoorError("bad", "an upload must have a part named files, got none; send a picture")
            values, labels = described(form.fields)
            done = [await self._take(known, name, file, caller) for name, file in form.files]
        ids = [one["_id"] for one in done if "task_id" not in one]
        await self._describe(known, ids, values, labels, caller)
        answer: dict[str, Any] = {"dataset_id": library_id(known.id), "file_ids": ids, "files": done}
        if ids:
            answer["file_id"] = ids[0]
        answer["resultList"] = [
            {"fileName": name, "file_id": one["_id"], "result": "success"}
            for (name, _), one in zip(form.files, done, strict=True)
        ]
        tasks = [one["task_id"] for one in done if "task_id" in one]
        return success(201, **answer, **({"task_ids": tasks} if tasks else {}))

    async def _take(self, known: VisionDataset, name: str, file: IO[bytes], caller: Caller) -> dict[str, Any]:
        shown = Path(name.replace("\\", "/")).name or "picture"
        user = caller.user_name
        if shown.lower().endswith(".zip"):
            task = await self._import(known, file, user)
            return {**task, "task_id": task["_id"]}

        def add(library: Library) -> VisionFile:
            if shown.lower().endswith(FILMS):
                draft = library.blobs.draft(Path(shown).suffix)
                with draft.open("wb") as target:
                    shutil.copyfileobj(file, target)
                return library.add_film(known.id, draft, shown, user=user)
            return library.add(known.id, file.read(), shown, user=user)

        return file_json(await self.library(add), known.owner)

    async def _describe(
        self,
        known: VisionDataset,
        ids: Sequence[str],
        values: dict[str, str],
        labels: Sequence[dict[str, Any]],
        caller: Caller,
    ) -> None:
        """Give uploaded files the keys and values, and the objects, that came with them."""
        if not values and not labels:
            return
        shapes = [shape_of(known, one) for one in labels]

        def write(library: Library) -> None:
            for one in map(plain_id, ids):
                if values:
                    library.save_metadata(one, values, seen_as(caller))
                if shapes:
                    revision = library.file(one).revision
                    library.save_labels(one, revision, shapes, user=seen_as(caller), by=caller.user_name)

        await self.library(write)

    async def _import(self, known: VisionDataset, file: IO[bytes], user: str) -> dict[str, Any]:
        """Import a zip in the background; return the task."""

        def keep(library: Library) -> Path:
            place = library.blobs.draft(".zip")
            with place.open("wb") as target:
                shutil.copyfileobj(file, target)
            return place

        path = await self.library(keep)
        begun = await self.service.vision.begin(
            known.id, "import", user, {"path": str(path), "uploaded": True, "skip_duplicates": False}
        )
        return task_json(begun)

    async def import_zip(self, request: Request) -> Response:
        """Make a data set of a zip that was exported."""
        caller = await self.caller(request, writes=True)
        async with read_upload(request, MOST_UPLOAD_BYTES) as form:
            if len(form.files) != 1:
                raise DoorError("bad", f"an import must have one file, got {len(form.files)}; send a zip")
            name, file = form.files[0]
            title = form.fields.get("name") or Path(name).stem or "imported"
            made = await self.library(lambda library: library.create(title, user=caller.user_name))
            task = await self._import(made, file, caller.user_name)
        return success(202, dataset_id=library_id(made.id), task_id=task["_id"])

    async def file(self, request: Request) -> Response:
        caller = await self.caller(request)
        found = await self._file(request, caller)
        return json_answer(file_json(found, (await self.dataset(request, caller)).owner))

    async def _file(self, request: Request, caller: Caller) -> Any:
        number, home = plain_id(request.path_params["file"]), plain_id(request.path_params["dataset"])
        found = await self.library(lambda library: library.file(number, seen_as(caller)))
        request.state.dataset = found.dataset
        if found.dataset != home and (await self.dataset(request, caller)).id != found.dataset:
            raise missing("file", request.path_params["file"])
        return found

    async def remove_file(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        found = await self._file(request, caller)
        await self.library(lambda library: library.remove_file(found.id, seen_as(caller)))
        return success()

    async def picture(self, request: Request) -> Response:
        caller = await self.caller(request)
        found = await self._file(request, caller)
        path, media = await self.library(lambda library: library.picture_path(found.id, seen_as(caller)))
        kind = f"{'video' if found.kind == 'film' else 'image'}/{media.lower()}"
        return FileResponse(
            path, media_type=kind, headers={"content-security-policy": "default-src 'none'; sandbox"}
        )

    async def thumbnail(self, request: Request) -> Response:
        caller = await self.caller(request)
        found = await self._file(request, caller)
        path = await self.library(lambda library: library.thumbnail(found.id, 256, seen_as(caller)))
        return FileResponse(path, media_type="image/jpeg")

    async def uploaded(self, request: Request) -> Response:
        """Give a file by the path that older clients make of its name."""
        request.path_params["file"] = request.path_params["name"].partition(".")[0]
        if request.path_params["kind"] not in ("files", "thumbnails"):
            raise missing("file", request.path_params["name"])
        return await (
            self.thumbnail(request) if request.path_params["kind"] == "thumbnails" else self.picture(request)
        )

    async def copy(self, request: Request) -> Response:
        return await self._transfer(request, "copy")

    async def move(self, request: Request) -> Response:
        return await self._transfer(request, "move")

    async def _transfer(self, request: Request, action: str) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        known, target = await self.dataset(request, caller), plain_id(text_of(body, "target_dataset_id"))
        files = body.get("files") or body.get("file_id_list") or []
        if not isinstance(files, list) or not all(isinstance(one, str) for one in files):
            raise DoorError("bad", "files must be a list of ids, got another value")
        ids = [plain_id(one) for one in files]
        done, _ = await self.library(
            lambda library: library.change_files(
                known.id, action, ids=ids, target=target, user=seen_as(caller)
            )
        )
        results = [{"_id": one, "result": "success" if done == len(ids) else "unknown"} for one in files]
        return success(result_list=results, count=done)

    async def file_action(self, request: Request) -> Response:
        """Give a file another category; some clients send this as GET with a body."""
        caller, body = await self.caller(request, writes=True), await body_of(request)
        found, known = await self._file(request, caller), await self.dataset(request, caller)
        if text_of(body, "action") != "change_category":
            raise DoorError("bad", f"action must be change_category, got {str(body['action'])[:40]!r}")
        wanted = text_of(body, "target_category_id", needed=False)
        names = {named_id("category", known.id, one.name): one.name for one in known.categories}
        if wanted and wanted not in names and wanted != "uncategorized":
            raise missing("category", wanted)
        await self.library(
            lambda library: library.change_files(
                known.id, "categorise", ids=[found.id], category=names.get(wanted), user=seen_as(caller)
            )
        )
        return success()


def _pages(
    library: Library, dataset: str, wanted: dict[str, Any], most: int, user: str | None
) -> list[VisionFile]:
    """Return the first files that a filter lets through, page by page."""
    from weft.vision.library import FileFilter

    chosen, found = FileFilter(**wanted), list[VisionFile]()
    after = None
    while len(found) < most:
        page = library.files(dataset, chosen, after=after, limit=min(PAGE, most - len(found)), user=user)
        found += page.files
        after = page.next
        if after is None:
            break
    return found
