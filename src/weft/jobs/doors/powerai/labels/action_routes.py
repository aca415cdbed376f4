"""Action labels: what happens in a film from one second to another, and the tags that name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from weft.jobs.doors.access import Caller, DoorError
from weft.jobs.doors.powerai.base import body_of, both, in_order, json_answer, success, text_of
from weft.jobs.doors.powerai.data_routes import DataPart
from weft.jobs.doors.powerai.identities import library_id, missing, named_id, plain_id
from weft.jobs.doors.powerai.labels.objects import ids_of
from weft.vision.views import VisionDataset

if TYPE_CHECKING:
    import sqlalchemy as sa

    from weft.vision.library.marks.actions import FilmAction

T = TypeVar("T")
TAGS = "action_tags"  # a setting of a data set: names, also of tags that no film has yet
_DATASET = "/datasets/{dataset}"
_FILE = f"{_DATASET}/files/{{file}}"


class ActionPart(DataPart):
    """Actions in films."""

    def routes(self) -> list[BaseRoute]:
        found: list[BaseRoute] = []
        tags = f"{_DATASET}/action-tags"
        found += both(tags, {"GET": self.tags, "POST": self.add_tag})
        found += both(f"{tags}/{{tag}}", {"GET": self.tag, "DELETE": self.remove_tag})
        for home in (f"{_DATASET}/action-labels", f"{_FILE}/action-labels"):
            found += both(home, {"GET": self.actions, "POST": self.add_action, "DELETE": self.remove_some})
            found += both(
                f"{home}/{{label}}",
                {"GET": self.action, "PUT": self.change_action, "DELETE": self.remove_action},
            )
        return found

    async def _read(self, work: Callable[[sa.Connection], T]) -> T:
        def inside(library: Any) -> T:
            with library.store.reading() as connection:
                return work(connection)

        return await self.library(inside)

    async def _write(self, work: Callable[[sa.Connection], T]) -> T:
        def inside(library: Any) -> T:
            with library.store.writing() as connection:
                return work(connection)

        return await self.library(inside)

    async def _known(self, request: Request, caller: Caller) -> list[FilmAction]:
        """Return the actions of the data set, or of the file, that a path names."""
        from weft.vision.library.marks.actions import list_actions

        known = await self.dataset(request, caller)
        film = (await self._file(request, caller)).id if "file" in request.path_params else None
        return await self._read(lambda c: list_actions(c, known.id, film))

    # -- tags ---------------------------------------------------------------------------------------------------------

    async def _tags(self, known: VisionDataset) -> dict[str, list[FilmAction]]:
        """Return the actions of each tag by its name, those without any, too."""
        from weft.vision.library.marks.actions import list_actions
        from weft.vision.library.marks.settings import read_setting

        names = await self._read(lambda c: read_setting(c, known.id, TAGS)) or []
        found: dict[str, list[FilmAction]] = {name: [] for name in names}
        for one in await self._read(lambda c: list_actions(c, known.id)):
            found.setdefault(one.label, []).append(one)
        return found

    async def _keep(self, known: VisionDataset, names: list[str]) -> None:
        from weft.vision.library.marks.settings import write_setting

        await self._write(lambda c: write_setting(c, known.id, TAGS, names or None))

    async def tags(self, request: Request) -> Response:
        known = await self.dataset(request, await self.caller(request))
        found = await self._tags(known)
        return json_answer(in_order([tag_json(known, name, found[name]) for name in found], request))

    async def _tag(self, request: Request, known: VisionDataset) -> tuple[str, list[FilmAction]]:
        wanted = request.path_params["tag"]
        for name, actions in (await self._tags(known)).items():
            if wanted in (name, named_id("action", known.id, name)):
                return name, actions
        raise missing("action tag", wanted)

    async def tag(self, request: Request) -> Response:
        known = await self.dataset(request, await self.caller(request))
        return json_answer(tag_json(known, *await self._tag(request, known)))

    async def add_tag(self, request: Request) -> Response:
        from weft.vision.geometry.validity import label_problem

        caller, body = await self.caller(request, writes=True), await body_of(request)
        known, name = await self.dataset(request, caller), text_of(body, "name")
        if problem := label_problem(name):
            raise DoorError("bad", f"{problem}; choose another name")
        found = await self._tags(known)
        if name not in found:
            await self._keep(known, [*found, name])
        number = named_id("action", known.id, name)
        return success(201, _id=number, dataset_action_tag_id=number, name=name)

    async def remove_tag(self, request: Request) -> Response:
        """Forget a tag, with the actions that have it."""
        from weft.vision.library.marks.actions import remove_actions

        caller = await self.caller(request, writes=True)
        known = await self.dataset(request, caller)
        name, actions = await self._tag(request, known)
        await self._write(lambda c: remove_actions(c, known.id, [one.id for one in actions]))
        await self._keep(known, [one for one in await self._tags(known) if one != name])
        return success()

    # -- actions ------------------------------------------------------------------------------------------------------

    async def actions(self, request: Request) -> Response:
        return json_answer(
            in_order(chosen(await self._known(request, await self.caller(request)), request), request)
        )

    async def _one(self, request: Request, caller: Caller) -> FilmAction:
        wanted = plain_id(request.path_params["label"])
        for one in await self._known(request, caller):
            if one.id == wanted:
                return one
        raise missing("action label", request.path_params["label"])

    async def action(self, request: Request) -> Response:
        return json_answer(action_json(await self._one(request, await self.caller(request))))

    async def add_action(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        if "file" not in request.path_params:
            request.path_params["file"] = text_of(body, "file_id")
        return await self._saved(request, caller, body, None)

    async def change_action(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        found = await self._one(request, caller)
        request.path_params["file"] = found.film
        return await self._saved(request, caller, {**action_json(found), **body}, found)

    async def _saved(
        self, request: Request, caller: Caller, body: dict[str, Any], known: FilmAction | None
    ) -> Response:
        from weft.vision.library.files import find_file
        from weft.vision.library.marks.actions import find_action, save_action

        home = await self.dataset(request, caller)
        film = (await self._file(request, caller)).id
        names = {named_id("action", home.id, name): name for name in await self._tags(home)}
        given = body.get("tag_id") if known is None or body.get("tag_id") in names else None
        name = names.get(str(given or ""), "") or text_of(body, "name", needed=False)
        if not name:
            raise DoorError("bad", "an action must have the tag_id of a tag, or a name, got neither")
        start_s, end_s = seconds(body, "start_time", "start"), seconds(body, "end_time", "end")

        def write(connection: sa.Connection) -> FilmAction:
            row = find_file(connection, film, None)
            identity = known.id if known is not None else None
            return find_action(
                connection, home.id, save_action(connection, row, name, start_s, end_s, identity=identity)
            )

        saved = await self._write(write)
        return success(201 if known is None else 200, **action_json(saved))

    async def remove_action(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        return await self._removed(request, caller, [await self._one(request, caller)])

    async def remove_some(self, request: Request) -> Response:
        """Remove the actions that a query chooses, or those of a file."""
        caller, query = await self.caller(request, writes=True), request.query_params
        if "file" not in request.path_params and not any(map(query.get, ("file_ids", "tag_ids"))):
            raise DoorError("bad", "file_ids or tag_ids must be given, got none of them")
        wanted = {one["_id"] for one in chosen(await self._known(request, caller), request)}
        gone = [one for one in await self._known(request, caller) if library_id(one.id) in wanted]
        return await self._removed(request, caller, gone)

    async def _removed(self, request: Request, caller: Caller, gone: list[FilmAction]) -> Response:
        from weft.vision.library.marks.actions import remove_actions

        known = await self.dataset(request, caller)
        return success(
            count=await self._write(lambda c: remove_actions(c, known.id, [one.id for one in gone]))
        )


def tag_json(known: VisionDataset, name: str, actions: list[FilmAction]) -> dict[str, Any]:
    """Return a tag of actions, with how often and how long it is seen."""
    return {
        "_id": named_id("action", known.id, name),
        "dataset_id": library_id(known.id),
        "name": name,
        "total_tag_count": len(actions),
        "total_duration": round(sum(one.end_s - one.start_s for one in actions), 3),
    }


def action_json(found: FilmAction) -> dict[str, Any]:
    """Return an action; times are seconds of its film."""
    return {
        "_id": library_id(found.id),
        "dataset_id": library_id(found.dataset),
        "file_id": library_id(found.film),
        "tag_id": named_id("action", found.dataset, found.label),
        "name": found.label,
        "start_time": found.start_s,
        "end_time": found.end_s,
        "generate_type": "auto" if found.confidence is not None else "manual",
        "confidence": found.confidence if found.confidence is not None else 1.0,
        "model_id": found.model,
        "created_at": found.created_ms,
    }


def chosen(found: list[FilmAction], request: Request) -> list[dict[str, Any]]:
    """Return those actions that `file_ids` and `tag_ids` of a query let through."""
    query = request.query_params
    files, tags = ids_of(query.get("file_ids", "")), ids_of(query.get("tag_ids", ""))
    return [
        one
        for one in map(action_json, found)
        if (not files or one["file_id"] in files)
        and (not tags or one["tag_id"] in tags or one["name"] in tags)
    ]


def seconds(body: dict[str, Any], *names: str) -> float:
    """Return a moment of a body."""
    given = next((body[name] for name in names if name in body), None)
    try:
        return float(given if given is not None else "none")
    except (TypeError, ValueError):
        raise DoorError("bad", f"{names[0]} must be seconds of the film, got {given!r}") from None
