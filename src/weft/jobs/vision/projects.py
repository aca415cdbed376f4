"""Projects: data sets and models of pictures that belong together, with a work flow from untested to production."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.store.events import now_ms
from weft.jobs.store.tables import user as user_table
from weft.jobs.store.vision_tables import vision_project
from weft.jobs.vision.models import PictureModel, PictureModelNotFound

ALIASES = ("latest", "production", "untested")


class PictureProjectNotFound(UsageError, LookupError):  # noqa: N818  (the name of the answer: 404)
    """A project that is not there."""


@dataclass(frozen=True, kw_only=True)
class PictureProject:
    """One project."""

    id: int
    name: str
    description: str
    enforce: bool  # only production models are deployed
    auto_deploy: bool  # the newest model is served under the project's name
    datasets: tuple[str, ...]
    user_id: int
    user_name: str
    created_ms: int
    changed_ms: int


def list_projects(connection: sa.Connection) -> tuple[PictureProject, ...]:
    """Return all projects by name."""
    found = sa.select(vision_project, user_table.c.name.label("user_name")).join(
        user_table, user_table.c.id == vision_project.c.user_id
    )
    return tuple(_project(row) for row in connection.execute(found.order_by(vision_project.c.name)))


def find_project(connection: sa.Connection, reference: str | int) -> PictureProject:
    """Return a project by its number or its name."""
    known = list_projects(connection)
    found = next((one for one in known if reference in (one.id, str(one.id))), None)
    found = found or next((one for one in known if one.name == reference), None)
    if found is None:
        raise PictureProjectNotFound(
            f"a project must be there, got {str(reference)[:80]!r}; list them to see names"
        )
    return found


def add_project(connection: sa.Connection, name: str, user_id: int, **more: Any) -> PictureProject:
    """Make a project."""
    if not name.strip() or len(name) > 100:
        raise UsageError(
            f"a project's name must have 1 to 100 characters, got {name[:120]!r}; choose another"
        )
    if any(one.name == name for one in list_projects(connection)):
        raise UsageError(f"a project's name must be new, got {name!r}, which is taken; choose another")
    row = {"name": name, "user_id": user_id, "created_ms": now_ms(), "changed_ms": now_ms(), **_encoded(more)}
    made = connection.execute(
        sa.insert(vision_project).values(row).returning(vision_project.c.id)
    ).scalar_one()
    return find_project(connection, int(made))


def change_project(connection: sa.Connection, project_id: int, **changes: Any) -> PictureProject:
    """Change name, description, work flow or data sets of a project."""
    known = find_project(connection, project_id)
    name = changes.get("name")
    if name is not None and name != known.name and any(one.name == name for one in list_projects(connection)):
        raise UsageError(f"a project's name must be new, got {name!r}, which is taken; choose another")
    values = {**_encoded(changes), "changed_ms": now_ms()}
    connection.execute(sa.update(vision_project).where(vision_project.c.id == project_id).values(values))
    return find_project(connection, project_id)


def remove_project(connection: sa.Connection, project_id: int) -> None:
    """Forget a project; its models and data sets stay."""
    find_project(connection, project_id)
    connection.execute(sa.delete(vision_project).where(vision_project.c.id == project_id))


def choose_model(models: tuple[PictureModel, ...], which: str) -> PictureModel:
    """Return the model of a project that an alias or NAME@VERSION means; `models` are the project's, newest first."""
    for one in models:
        alias = which == "latest" or (which in ALIASES and one.status == which)
        if alias or which in (one.reference, one.model):
            return one
    raise PictureModelNotFound(
        f"the project must have a model that is {', '.join(ALIASES)} or NAME@VERSION, got {which[:80]!r} and none"
    )


def may_deploy(project: PictureProject | None, model: PictureModel) -> bool:
    """Return whether the work flow of a project lets a model be served."""
    return project is None or not project.enforce or model.status == "production"


def _project(row: Any) -> PictureProject:
    found = dict(row._mapping)
    found["datasets"] = tuple(msgspec.json.decode(found["datasets"]))
    found["enforce"], found["auto_deploy"] = bool(found["enforce"]), bool(found["auto_deploy"])
    return PictureProject(**found)


def _encoded(values: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in values.items() if value is not None}
    if "datasets" in kept:
        kept["datasets"] = msgspec.json.encode(list(kept["datasets"])).decode()
    return kept
