"""Labels: categories, tags of objects, objects of a file, and keys and values that users give files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from weft.jobs.doors.access import Caller, DoorError
from weft.jobs.doors.powerai.answers import class_json, label_json
from weft.jobs.doors.powerai.base import (
    body_of,
    both,
    json_answer,
    json_of,
    seen_as,
    share,
    success,
    text_of,
)
from weft.jobs.doors.powerai.data_routes import DataPart
from weft.jobs.doors.powerai.identities import missing, named_id
from weft.jobs.doors.powerai.labels.objects import ids_of, labels_of, shape_of, value_text
from weft.vision.views import ShapeView, VisionDataset, VisionFileDetail

if TYPE_CHECKING:
    from weft.vision.library import Library

_DATASET = "/datasets/{dataset}"
_FILE = "/datasets/{dataset}/files/{file}"
_KINDS = {"categories": "category", "tags": "tag"}


class LabelPart(DataPart):
    """Labels of files and of data sets."""

    def routes(self) -> list[BaseRoute]:
        found: list[BaseRoute] = []
        for plural in _KINDS:
            home = f"{_DATASET}/{plural}"
            found += both(home, {"GET": self.classes, "POST": self.add_class})
            found += both(f"{home}/{{one}}", {"GET": self.show_class, "DELETE": self.remove_class})
            found += both(f"{home}/{{one}}/action", {"POST": self.rename_class})
        objects = f"{_FILE}/object-labels"
        return [
            *found,
            *both(f"{_FILE}/labels", {"GET": self.labels, "POST": self.replace_labels}),
            *both(objects, {"GET": self.labels, "POST": self.add_label, "DELETE": self.remove_labels}),
            *both(
                f"{objects}/{{label}}",
                {"GET": self.label, "PUT": self.change_label, "DELETE": self.remove_label},
            ),
            *both(
                f"{_FILE}/user-metadata",
                {"GET": self.metadata, "POST": self.set_metadata, "DELETE": self.drop_values},
            ),
            *both(f"{_FILE}/user-metadata/{{key}}", {"GET": self.metadata, "DELETE": self.drop_metadata}),
        ]

    # -- categories and tags ------------------------------------------------------------------------------------------

    async def _classes(self, request: Request, caller: Caller) -> tuple[VisionDataset, str, Any]:
        known = await self.dataset(request, caller)
        kind = _KINDS[request.url.path.split("/datasets/")[1].split("/")[1]]
        return known, kind, known.categories if kind == "category" else known.labels

    async def classes(self, request: Request) -> Response:
        known, kind, entries = await self._classes(request, await self.caller(request))
        return json_answer([class_json(known, kind, one.name, one.pictures) for one in entries])

    async def show_class(self, request: Request) -> Response:
        known, kind, entries = await self._classes(request, await self.caller(request))
        one = _entry(known, kind, entries, request.path_params["one"])
        return json_answer(class_json(known, kind, one.name, one.pictures))

    async def add_class(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        known, kind, entries = await self._classes(request, caller)
        name = text_of(body, "name")
        if name not in [one.name for one in entries]:
            await self._set(known, kind, [*((one.name, None) for one in entries), (name, None)], caller)
        number = named_id(kind, known.id, name)
        return success(201, **{"_id": number, f"dataset_{kind}_id": number})

    async def remove_class(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        known, kind, entries = await self._classes(request, caller)
        gone = _entry(known, kind, entries, request.path_params["one"])
        await self._set(known, kind, [(one.name, None) for one in entries if one.name != gone.name], caller)
        return success()

    async def rename_class(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        known, kind, entries = await self._classes(request, caller)
        one, name = _entry(known, kind, entries, request.path_params["one"]), text_of(body, "name")
        wanted = [(name, each.name) if each == one else (each.name, None) for each in entries]
        await self._set(known, kind, wanted, caller)
        return success(_id=named_id(kind, known.id, name))

    async def _set(
        self, known: VisionDataset, kind: str, names: list[tuple[str, str | None]], caller: Caller
    ) -> None:
        """Set all categories or tags in order, each with the name that it had if it is renamed."""

        def change(library: Library) -> None:
            from weft.vision.library import ClassEntry

            entries = [ClassEntry(name, was=was) for name, was in names]
            which: dict[str, Any] = {"categories" if kind == "category" else "labels": entries}
            library.set_classes(known.id, user=seen_as(caller), **which)

        await self.library(change)

    # -- objects ------------------------------------------------------------------------------------------------------

    async def labels(self, request: Request) -> Response:
        found: VisionFileDetail = await self._file(request, await self.caller(request))
        return json_answer(chosen_labels([found], request))

    async def label(self, request: Request) -> Response:
        found: VisionFileDetail = await self._file(request, await self.caller(request))
        place = _place(found, request.path_params["label"])
        return json_answer(label_json(found, found.shapes[place], place))

    async def add_label(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        return await self.add_label_of(request, caller, body)

    async def add_label_of(self, request: Request, caller: Caller, body: dict[str, Any]) -> Response:
        """Add the object that a body describes to the file of a request."""
        found: VisionFileDetail = await self._file(request, caller)
        known = await self.dataset(request, caller)
        saved = await self._save(found, [*found.shapes, shape_of(known, body)], caller)
        place = len(saved.shapes) - 1
        return success(201, **label_json(saved, saved.shapes[place], place))

    async def change_label(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        found: VisionFileDetail = await self._file(request, caller)
        known, place = await self.dataset(request, caller), _place(found, request.path_params["label"])
        shapes = [*found.shapes]
        before = label_json(found, shapes[place], place)
        shapes[place] = shape_of(known, {**before, **body}, shapes[place].id)
        saved = await self._save(found, shapes, caller)
        return success(**label_json(saved, saved.shapes[place], place))

    async def remove_label(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        found: VisionFileDetail = await self._file(request, caller)
        gone = _place(found, request.path_params["label"])
        await self._save(found, [one for place, one in enumerate(found.shapes) if place != gone], caller)
        return success()

    async def remove_labels(self, request: Request) -> Response:
        """Remove the objects of a file, or those whose tags the query names."""
        caller = await self.caller(request, writes=True)
        return await self.remove_chosen([await self._file(request, caller)], request, caller)

    async def remove_chosen(
        self, files: Sequence[VisionFileDetail], request: Request, caller: Caller
    ) -> Response:
        """Remove those objects of files that a query chooses."""
        count = 0
        for found in files:
            gone = {one["_id"] for one in chosen_labels([found], request)}
            kept = [
                one
                for place, one in enumerate(found.shapes)
                if label_json(found, one, place)["_id"] not in gone
            ]
            if gone:
                await self._save(found, kept, caller)
            count += len(gone)
        return success(count=count)

    async def replace_labels(self, request: Request) -> Response:
        """Replace all objects of a file, as the oldest clients do."""
        caller, body = await self.caller(request, writes=True), await json_of(request)
        found: VisionFileDetail = await self._file(request, caller)
        known = await self.dataset(request, caller)
        await self._save(found, [shape_of(known, one) for one in labels_of(body)], caller)
        return success()

    async def _save(
        self, found: VisionFileDetail, shapes: list[ShapeView], caller: Caller
    ) -> VisionFileDetail:
        return await self.library(
            lambda library: library.save_labels(
                found.id,
                found.revision,
                shapes,
                found.category,
                category_confidence=found.category_confidence,
                user=seen_as(caller),
            )
        )

    # -- keys and values ----------------------------------------------------------------------------------------------

    async def metadata(self, request: Request) -> Response:
        found: VisionFileDetail = await self._file(request, await self.caller(request))
        key = request.path_params.get("key")
        if key is None:
            return json_answer(found.metadata)
        if key not in found.metadata:
            raise missing("key", key)
        return json_answer({key: found.metadata[key]})

    async def set_metadata(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        found: VisionFileDetail = await self._file(request, caller)
        given = {str(key): value_text(value) for key, value in body.items()}
        await self.library(lambda library: library.save_metadata(found.id, given, seen_as(caller)))
        return success()

    async def drop_values(self, request: Request) -> Response:
        """Remove the keys that the body lists; all of them where it lists none."""
        caller, body = await self.caller(request, writes=True), await json_of(request)
        found: VisionFileDetail = await self._file(request, caller)
        keys = body.get("keys", []) if isinstance(body, dict) else body
        if not isinstance(keys, list) or not all(isinstance(one, str) for one in keys):
            raise DoorError("bad", "keys must be a list of names, got another value")
        gone = dict.fromkeys(keys or found.metadata, "")
        await self.library(lambda library: library.save_metadata(found.id, gone, seen_as(caller)))
        return success()

    async def drop_metadata(self, request: Request) -> Response:
        caller, key = await self.caller(request, writes=True), request.path_params["key"]
        found: VisionFileDetail = await self._file(request, caller)
        await self.library(lambda library: library.save_metadata(found.id, {key: ""}, seen_as(caller)))
        return success()


def _entry(known: VisionDataset, kind: str, entries: Any, text: str) -> Any:
    for one in entries:
        if text in (named_id(kind, known.id, one.name), one.name):
            return one
    raise missing(kind, text)


def _place(found: VisionFileDetail, text: str) -> int:
    for place, shape in enumerate(found.shapes):
        if text == label_json(found, shape, place)["_id"]:
            return place
    raise missing("label", text)


def chosen_labels(files: Iterable[VisionFileDetail], request: Request) -> list[dict[str, Any]]:
    """Return the objects of files that `file_ids`, `tag_ids` and `generate_type` of a query let through."""
    query = request.query_params
    least, most = (
        share(query.get("min_conf", ""), "min_conf", 0),
        share(query.get("max_conf", ""), "max_conf", 1),
    )
    model, ids = query.get("model_id"), ids_of(query.get("ids", ""))
    wanted_files, wanted_tags = ids_of(query.get("file_ids", "")), ids_of(query.get("tag_ids", ""))
    found = [label_json(file, shape, place) for file in files for place, shape in enumerate(file.shapes)]
    return [
        one
        for one in found
        if (not wanted_files or one["file_id"] in wanted_files)
        and (not wanted_tags or one["tag_id"] in wanted_tags or one["name"] in wanted_tags)
        and query.get("generate_type", one["generate_type"]) == one["generate_type"]
        and (not ids or one["_id"] in ids)
        and (not model or model in (one["model_id"], named_id("model", str(one["model_id"]))))
        and least <= one["confidence"] <= most
    ]
