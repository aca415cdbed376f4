"""Lists over a whole data set: all labelled objects, and the keys and values that users gave its files."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from weft.jobs.doors.access import Caller, DoorError
from weft.jobs.doors.powerai.answers import label_json
from weft.jobs.doors.powerai.base import body_of, both, json_answer, seen_as, success, text_of, whole
from weft.jobs.doors.powerai.identities import library_id, missing
from weft.jobs.doors.powerai.labels.label_routes import LabelPart, chosen_labels
from weft.jobs.doors.powerai.queries import library_query
from weft.vision.views import VisionFileDetail

if TYPE_CHECKING:
    from weft.vision.library import Library

KEYS = "keys"  # a setting of a data set: keys that were made by themselves
LONGEST_KEY = 100
# What a query chooses objects by.
CHOICES = ("file_ids", "tag_ids", "ids", "model_id", "generate_type", "min_conf", "max_conf")
_DATASET = "/datasets/{dataset}"
_OBJECTS = f"{_DATASET}/object-labels"
_KEYS = f"{_DATASET}/files/user-keys"


class CollectionPart(LabelPart):
    """Objects, keys and values of all files of a data set; its words come before the ids of files."""

    def routes(self) -> list[BaseRoute]:
        return [
            *both(_OBJECTS, {"GET": self.objects, "POST": self.add_object, "DELETE": self.remove_objects}),
            *both(
                f"{_OBJECTS}/{{label}}",
                {"GET": self.object, "PUT": self.change_object, "DELETE": self.remove_object},
            ),
            *both(_KEYS, {"GET": self.keys, "POST": self.add_key}),
            *both(f"{_KEYS}/{{key}}", {"GET": self.key, "PUT": self.rename_key, "DELETE": self.remove_key}),
            *both(f"{_DATASET}/files/user-metadata", {"GET": self.values}),
        ]

    async def _details(self, request: Request, caller: Caller, query: str = "") -> Sequence[VisionFileDetail]:
        """Return the files of a data set that a query lets through, with labels and metadata."""
        known = await self.dataset(request, caller)

        def read(library: Library) -> Sequence[VisionFileDetail]:
            from weft.vision.library import FileFilter

            return library.details(known.id, FileFilter(query=query), seen_as(caller))

        return await self.library(read)

    # -- objects ------------------------------------------------------------------------------------------------------

    async def objects(self, request: Request) -> Response:
        details = await self._details(request, await self.caller(request), "label")
        found = chosen_labels(details, request)
        skip, limit = whole(request, "skip", 0), whole(request, "limit", len(found))
        return json_answer(found[skip : skip + limit])

    async def remove_objects(self, request: Request) -> Response:
        """Remove the objects that a query chooses; one that chooses nothing is refused."""
        caller, query = await self.caller(request, writes=True), request.query_params
        if not any(query.get(name) for name in CHOICES):
            raise DoorError("bad", f"one of {', '.join(CHOICES)} must be given, got none of them")
        return await self.remove_chosen(await self._details(request, caller, "label"), request, caller)

    async def add_object(self, request: Request) -> Response:
        """Add an object to the file that the body names."""
        caller, body = await self.caller(request, writes=True), await body_of(request)
        request.path_params["file"] = text_of(body, "file_id")
        return await self.add_label_of(request, caller, body)

    async def _point_at_file(self, request: Request) -> None:
        """Find the file of an object's id, and let the request mean it."""
        wanted = request.path_params["label"]
        for file in await self._details(request, await self.caller(request), "label"):
            if any(
                label_json(file, shape, place)["_id"] == wanted for place, shape in enumerate(file.shapes)
            ):
                request.path_params["file"] = library_id(file.id)
                return
        raise missing("label", wanted)

    async def object(self, request: Request) -> Response:
        await self._point_at_file(request)
        return await self.label(request)

    async def change_object(self, request: Request) -> Response:
        await self._point_at_file(request)
        return await self.change_label(request)

    async def remove_object(self, request: Request) -> Response:
        await self._point_at_file(request)
        return await self.remove_label(request)

    # -- keys and values ----------------------------------------------------------------------------------------------

    async def keys(self, request: Request) -> Response:
        found = await self._all_keys(request, await self.caller(request))
        return json_answer([found[key] for key in sorted(found)])

    async def _all_keys(self, request: Request, caller: Caller) -> dict[str, dict[str, Any]]:
        """Return all keys by name: those of files, and those that were made before any file had them."""
        made = await self._made_keys(request, caller)
        counts = Counter(key for one in await self._details(request, caller) for key in one.metadata)
        return {
            key: {**made.get(key, {}), "name": key, "file_count": counts[key]} for key in {*made, *counts}
        }

    async def _made_keys(self, request: Request, caller: Caller) -> dict[str, dict[str, Any]]:
        known = await self.dataset(request, caller)

        def read(library: Library) -> dict[str, dict[str, Any]]:
            from weft.vision.library.marks.settings import read_setting

            with library.store.reading() as connection:
                return read_setting(connection, known.id, KEYS) or {}

        return await self.library(read)

    async def _keep_keys(self, request: Request, caller: Caller, made: dict[str, Any]) -> None:
        known = await self.dataset(request, caller)

        def write(library: Library) -> None:
            from weft.vision.library.marks.settings import write_setting

            with library.store.writing() as connection:
                write_setting(connection, known.id, KEYS, made or None)

        await self.library(write)

    async def add_key(self, request: Request) -> Response:
        """Make a key that files may have."""
        caller, body = await self.caller(request, writes=True), await body_of(request)
        name = text_of(body, "name")
        if len(name) > LONGEST_KEY:
            raise DoorError("bad", f"name must have at most {LONGEST_KEY} letters, got {len(name)}")
        if name in await self._all_keys(request, caller):
            raise DoorError("conflict", f"a key must be new, got {name!r}, which is there")
        more = {key: value for key, value in body.items() if isinstance(value, str)}
        made = await self._made_keys(request, caller)
        await self._keep_keys(request, caller, {**made, name: {**more, "name": name}})
        return success(201, **{**more, "name": name})

    async def key(self, request: Request) -> Response:
        found = await self._all_keys(request, await self.caller(request))
        name = request.path_params["key"]
        if name not in found:
            raise missing("key", name)
        return json_answer(found[name])

    async def rename_key(self, request: Request) -> Response:
        """Give a key another name in all files, or another description."""
        caller = await self.caller(request, writes=True)
        body = await body_of(request)
        key = request.path_params["key"]
        name = text_of(body, "name", needed=False) or text_of(body, "new_name", needed=False) or key
        more = {one: value for one, value in body.items() if isinstance(value, str) and one != "new_name"}
        made = await self._made_keys(request, caller)
        about = {**made.get(key, {}), **more, "name": name}
        return await self._rewrite(
            request, caller, lambda found: {key: "", name: found[key]} if name != key else {}, about
        )

    async def remove_key(self, request: Request) -> Response:
        caller, key = await self.caller(request, writes=True), request.path_params["key"]
        return await self._rewrite(request, caller, lambda found: {key: ""}, None)

    async def _rewrite(
        self,
        request: Request,
        caller: Caller,
        change: Callable[[Mapping[str, str]], dict[str, str]],
        about: dict[str, str] | None,
    ) -> Response:
        key = request.path_params["key"]
        files = [one for one in await self._details(request, caller) if key in one.metadata]
        made = await self._made_keys(request, caller)
        if not files and key not in made:
            raise missing("key", key)
        kept = {name: one for name, one in made.items() if name != key}
        if about is not None and (key in made or len(about) > 1):
            kept[about["name"]] = about
        if kept != made:
            await self._keep_keys(request, caller, kept)

        def write(library: Library) -> None:
            for one in files:
                library.save_metadata(one.id, change(one.metadata), seen_as(caller))

        await self.library(write)
        return success(count=len(files))

    async def values(self, request: Request) -> Response:
        """Tell the keys and values of files, as JSON or as a table of comma-separated values."""
        query = request.query_params
        kind = query.get("format", "json").lower()
        if kind not in ("json", "csv"):
            raise DoorError("bad", f"format must be json or csv, got {kind[:40]!r}")
        wanted = library_query(query.get("query", ""))
        files = await self._details(request, await self.caller(request), wanted)
        asked = [key for key in query.get("keys", "").split(",") if key]
        keys = asked or sorted({key for one in files for key in one.metadata})
        rows = [_row(one, keys) for one in files]
        if kind == "json":
            return json_answer(rows)
        text = io.StringIO()
        table = csv.DictWriter(text, ["_id", "original_file_name", *keys], restval="")
        table.writeheader()
        table.writerows({key: _plain_cell(value) for key, value in row.items()} for row in rows)
        return Response(text.getvalue(), media_type="text/csv; charset=utf-8")


def _row(file: VisionFileDetail, keys: list[str]) -> dict[str, str]:
    values = file.metadata
    return {
        "_id": library_id(file.id),
        "original_file_name": file.name,
        **{key: values[key] for key in keys if key in values},
    }


def _plain_cell(text: str) -> str:
    """Return text that a spreadsheet takes for text, and for no formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
