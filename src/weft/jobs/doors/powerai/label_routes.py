"""Labels: categories, tags of objects, objects of a file, and keys and values that users give files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from weft.jobs.doors.access import Caller, DoorError
from weft.jobs.doors.powerai.answers import class_json, label_json
from weft.jobs.doors.powerai.base import body_of, both, json_answer, seen_as, success, text_of
from weft.jobs.doors.powerai.data_routes import DataPart
from weft.jobs.doors.powerai.identities import missing, named_id
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
            *both(objects, {"GET": self.labels, "POST": self.add_label}),
            *both(
                f"{objects}/{{label}}",
                {"GET": self.label, "PUT": self.change_label, "DELETE": self.remove_label},
            ),
            *both(f"{_FILE}/user-metadata", {"GET": self.metadata, "POST": self.set_metadata}),
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
        return json_answer([label_json(found, shape, place) for place, shape in enumerate(found.shapes)])

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
        saved = await self._save(found, [*found.shapes, _shape(known, body)], caller)
        place = len(saved.shapes) - 1
        return success(201, **label_json(saved, saved.shapes[place], place))

    async def change_label(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        found: VisionFileDetail = await self._file(request, caller)
        known, place = await self.dataset(request, caller), _place(found, request.path_params["label"])
        shapes = [*found.shapes]
        before = label_json(found, shapes[place], place)
        shapes[place] = _shape(known, {**before, **body}, shapes[place].id)
        saved = await self._save(found, shapes, caller)
        return success(**label_json(saved, saved.shapes[place], place))

    async def remove_label(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        found: VisionFileDetail = await self._file(request, caller)
        gone = _place(found, request.path_params["label"])
        await self._save(found, [one for place, one in enumerate(found.shapes) if place != gone], caller)
        return success()

    async def replace_labels(self, request: Request) -> Response:
        """Replace all objects of a file, as the oldest clients do."""
        caller, body = await self.caller(request, writes=True), await body_of(request)
        found: VisionFileDetail = await self._file(request, caller)
        known = await self.dataset(request, caller)
        given = body.get("labels", [])
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            raise DoorError("bad", "labels must be a list of objects, got another value")
        await self._save(found, [_shape(known, one) for one in given], caller)
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
        given = {str(key): str(value) for key, value in body.items()}
        await self.library(lambda library: library.save_metadata(found.id, given, seen_as(caller)))
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


def _shape(known: VisionDataset, body: dict[str, Any], identity: str = "") -> ShapeView:
    """Return a labelled object of a body: a box, or polygons with a box around them."""
    tags = {named_id("tag", known.id, one.name): one.name for one in known.labels}
    name = body.get("name") or tags.get(str(body.get("tag_id", "")))
    if not isinstance(name, str) or not name.strip():
        raise DoorError("bad", "a label must have a name, or the tag_id of a tag, got neither; add name")
    polygons = _polygons(body.get("segment_polygons") or ())
    box = body.get("bndbox")
    if not isinstance(box, dict) and not polygons:
        raise DoorError(
            "bad", "a label must have bndbox {xmin,ymin,xmax,ymax} or segment_polygons, got neither"
        )
    try:
        if polygons:
            points = [point for ring in polygons for point in ring]
            xs, ys = [x for x, _ in points], [y for _, y in points]
            corners = (min(xs), min(ys), max(xs), max(ys))
        else:
            assert isinstance(box, dict)
            corners = (float(box["xmin"]), float(box["ymin"]), float(box["xmax"]), float(box["ymax"]))
    except (KeyError, TypeError, ValueError):
        raise DoorError("bad", "bndbox must have the numbers xmin, ymin, xmax and ymax, got others") from None
    return ShapeView(label=name.strip(), box=corners, polygons=polygons, id=identity)


def _polygons(given: Any) -> tuple[tuple[tuple[float, float], ...], ...]:
    try:
        return tuple(tuple((float(x), float(y)) for x, y in ring) for ring in given)
    except (TypeError, ValueError):
        raise DoorError("bad", "segment_polygons must be lists of [x, y], got another value") from None
