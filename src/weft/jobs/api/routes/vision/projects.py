"""Projects: data sets and models of pictures that belong together."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.routes.vision.trainings import trainings_of
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.trainings import PictureProjectsAnswer, PictureProjectView
from weft.jobs.vision import projects
from weft.jobs.vision.projects import PictureProject


async def _view(call: ApiCall, found: PictureProject) -> PictureProjectView:
    models = await trainings_of(call).models.all(project_id=found.id)
    names = ("id", "name", "description", "enforce", "auto_deploy", "datasets", "created_ms", "changed_ms")
    fields = {name: getattr(found, name) for name in names}
    return PictureProjectView(
        **fields, models=len(models), user=found.user_name, mine=_may_change(call, found)
    )


def _may_change(call: ApiCall, found: PictureProject) -> bool:
    who = call.identity
    return "write" in who.scopes and (who.is_admin or found.user_id == who.user_id)


async def _found(call: ApiCall, *, own: bool = False) -> PictureProject:
    found = await call.database.read(lambda c: projects.find_project(c, int(call.path["project"])))
    if own and not _may_change(call, found):
        raise ApiRefusal(403, f"{found.name} must be your own to be changed, got one of {found.user_name}")
    return found


async def _list(call: ApiCall) -> PictureProjectsAnswer:
    found = await call.database.read(projects.list_projects)
    return PictureProjectsAnswer(tuple([await _view(call, one) for one in found]))


async def _add(call: ApiCall) -> PictureProjectView:
    given = msgspec.structs.asdict(call.body)
    who = call.identity
    made = await call.database.write(
        lambda c: projects.add_project(c, given.pop("name"), who.user_id, **given)
    )
    return await _view(call, made)


async def _show(call: ApiCall) -> PictureProjectView:
    return await _view(call, await _found(call))


async def _change(call: ApiCall) -> PictureProjectView:
    found, given = await _found(call, own=True), msgspec.structs.asdict(call.body)
    changed = await call.database.write(lambda c: projects.change_project(c, found.id, **given))
    return await _view(call, changed)


async def _remove(call: ApiCall) -> None:
    found = await _found(call, own=True)
    await call.database.write(lambda c: projects.remove_project(c, found.id))


HANDLERS: Mapping[str, Handler] = {
    "list_picture_projects": _list,
    "add_picture_project": _add,
    "show_picture_project": _show,
    "change_picture_project": _change,
    "remove_picture_project": _remove,
}
