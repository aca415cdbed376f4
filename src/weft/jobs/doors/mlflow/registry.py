"""MLflow's model registry: names, versions, aliases, stages and tags of models that runs have logged.

A registered model is one document in the store; its versions point at artifacts of runs. The models that the service
itself serves are checked ONNX files in a store of their own: `export` of a job, or `weft models add`, puts them there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from starlette.datastructures import QueryParams

from weft.jobs.doors.access import Caller, DoorError, DoorService, visible_job
from weft.jobs.doors.mlflow.filters import (
    MODEL_ATTRIBUTES,
    VERSION_ATTRIBUTES,
    Attributes,
    FilterComparison,
    Order,
    parse_filter,
    parse_orders,
)
from weft.jobs.doors.mlflow.memory_search import Record, Searchable, count_of, in_order, page_of
from weft.jobs.doors.mlflow.registry_records import (
    RegistryModel,
    RegistryRequest,
    RegistryVersion,
    checked_key,
    checked_name,
    checked_text,
    latest_versions,
    model_to_json,
    owner_of_tag,
    searchable_model,
    searchable_version,
    tags_from,
    version_of,
    version_to_json,
)
from weft.jobs.doors.mlflow.runs import job_id_of
from weft.jobs.store.data_tables import mlflow_model
from weft.jobs.store.events import add_audit, now_ms

STAGES = ("None", "Staging", "Production", "Archived")
MOST_VERSIONS = 10_000
MOST_FOUND = 200_000  # of one page


Change = Callable[[RegistryModel, RegistryRequest], Any]


@dataclass(frozen=True)
class RegistrySearch:
    """A search for models or versions: what they must fulfil, their order, and which page of them is asked for."""

    wanted: tuple[FilterComparison, ...]
    orders: tuple[Order, ...]
    count: int
    token: str

    @classmethod
    def of(cls, asked: QueryParams, attributes: Attributes) -> RegistrySearch:
        """Read the parameters of a request; `order_by` may be there several times."""
        return cls(
            parse_filter(asked.get("filter", ""), attributes),
            parse_orders(asked.getlist("order_by"), attributes),
            count_of(asked.get("max_results") or 100, MOST_FOUND),
            asked.get("page_token", ""),
        )

    def page(self, candidates: Iterable[Searchable[Record]]) -> tuple[Sequence[Record], dict[str, str]]:
        """Return one page of the records that are found, and the field that names the page after it."""
        found = in_order((one for one in candidates if one.fulfils(self.wanted)), self.orders)
        return page_of(found, count=self.count, token=self.token)


class Registry:
    """Answers the requests of MLflow's registry client."""

    def __init__(self, service: DoorService) -> None:
        self._database = service.database

    # -- models -------------------------------------------------------------------------------------------------------

    async def create(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        _check_writer(caller)
        name, at = checked_name(asked.name), now_ms()
        made = RegistryModel(
            name=name, user_id=caller.user_id, user=caller.user_name, description=checked_text(asked.description),
            created_ms=at, changed_ms=at, tags=tags_from(asked.tags),
        )  # fmt: skip

        def write(connection: sa.Connection) -> None:
            if _load(connection, name) is not None:
                raise DoorError("exists", f"the name of a registered model must be new, got {name!r}")
            _save(connection, made, new=True)
            add_audit(connection, caller.user_name, "register model", name)

        await self._database.write(write)
        return {"registered_model": model_to_json(made)}

    async def get(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        return {"registered_model": model_to_json(await self._found(asked.get("name", "")))}

    async def search(self, caller: Caller, asked: QueryParams) -> dict[str, Any]:
        wanted = RegistrySearch.of(asked, MODEL_ATTRIBUTES)
        shown, following = wanted.page(map(searchable_model, await self._all()))
        return {"registered_models": [model_to_json(model) for model in shown], **following}

    async def update(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            model.description = checked_text(asked.description)

        return {"registered_model": model_to_json(await self._change(caller, asked, change))}

    async def rename(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        new = checked_name(asked.new_name)

        def write(connection: sa.Connection) -> RegistryModel:
            model = _mine(connection, caller, asked.name)
            if _load(connection, new) is not None:
                raise DoorError("exists", f"the name of a registered model must be new, got {new!r}")
            _forget(connection, model.name)
            model.name, model.changed_ms = new, now_ms()
            _save(connection, model, new=True)
            return model

        return {"registered_model": model_to_json(await self._database.write(write))}

    async def delete(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def write(connection: sa.Connection) -> None:
            _forget(connection, _mine(connection, caller, asked.name).name)
            add_audit(connection, caller.user_name, "remove registered model", asked.name)

        await self._database.write(write)
        return {}

    async def latest(self, caller: Caller, asked: Any) -> dict[str, Any]:
        """Return the newest version of each stage."""
        name = asked.name if isinstance(asked, RegistryRequest) else asked.get("name", "")
        stages = asked.stages if isinstance(asked, RegistryRequest) else ()
        model = await self._found(name)
        return {"model_versions": latest_versions(model, stages)}

    async def set_tag(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            owner_of_tag(model, asked).tags[checked_key(asked.key)] = checked_text(asked.value)

        await self._change(caller, asked, change)
        return {}

    async def delete_tag(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            owner_of_tag(model, asked).tags.pop(asked.key, None)

        await self._change(caller, asked, change)
        return {}

    # -- aliases ------------------------------------------------------------------------------------------------------

    async def set_alias(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            model.aliases[checked_key(asked.alias)] = version_of(model, asked.version).version

        await self._change(caller, asked, change)
        return {}

    async def delete_alias(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            model.aliases.pop(asked.alias, None)

        await self._change(caller, asked, change)
        return {}

    async def by_alias(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        model, alias = await self._found(asked.get("name", "")), asked.get("alias", "")
        if alias not in model.aliases:
            raise DoorError("not-found", f"an alias of {model.name} must be known, got {alias[:80]!r}")
        return {"model_version": version_to_json(model, version_of(model, model.aliases[alias]))}

    # -- versions -----------------------------------------------------------------------------------------------------

    async def create_version(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        _check_writer(caller)
        source = checked_text(asked.source)
        if not source:
            raise DoorError("bad", "a version must have a source, got none; name an artifact of a run")
        if asked.run_id:
            job_id = job_id_of(asked.run_id)
            await self._database.read(lambda c: visible_job(c, caller, job_id))

        def change(model: RegistryModel, asked: RegistryRequest) -> RegistryVersion:
            if len(model.versions) >= MOST_VERSIONS:
                raise DoorError(
                    "bad", f"a model must have at most {MOST_VERSIONS} versions, got more; delete some"
                )
            model.last += 1
            made = RegistryVersion(
                version=model.last, source=source, run_id=asked.run_id, user=caller.user_name,
                description=checked_text(asked.description), created_ms=now_ms(), changed_ms=now_ms(),
                tags=tags_from(asked.tags),
            )  # fmt: skip
            model.versions.append(made)
            return made

        model = await self._change(caller, asked, change)
        return {"model_version": version_to_json(model, model.versions[-1])}

    async def version(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        model = await self._found(asked.get("name", ""))
        return {"model_version": version_to_json(model, version_of(model, asked.get("version", "")))}

    async def download(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        model = await self._found(asked.get("name", ""))
        return {"artifact_uri": version_of(model, asked.get("version", "")).source}

    async def search_versions(self, caller: Caller, asked: QueryParams) -> dict[str, Any]:
        wanted = RegistrySearch.of(asked, VERSION_ATTRIBUTES)
        newest_first = (
            searchable_version(model, one) for model in await self._all() for one in reversed(model.versions)
        )
        shown, following = wanted.page(newest_first)
        return {"model_versions": [version_to_json(*one) for one in shown], **following}

    async def update_version(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            one = version_of(model, asked.version)
            one.description, one.changed_ms = checked_text(asked.description), now_ms()

        model = await self._change(caller, asked, change)
        return {"model_version": version_to_json(model, version_of(model, asked.version))}

    async def transition(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        stage = next((name for name in STAGES if name.lower() == asked.stage.lower()), None)
        if stage is None:
            raise DoorError("bad", f"a stage must be one of {', '.join(STAGES)}, got {asked.stage[:40]!r}")
        wanted = stage

        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            chosen = version_of(model, asked.version)
            for other in model.versions if asked.archive_existing_versions else ():
                if other.stage == wanted and other is not chosen:
                    other.stage, other.changed_ms = "Archived", now_ms()
            chosen.stage, chosen.changed_ms = wanted, now_ms()

        model = await self._change(caller, asked, change)
        return {"model_version": version_to_json(model, version_of(model, asked.version))}

    async def delete_version(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            gone = version_of(model, asked.version)
            model.versions.remove(gone)
            model.aliases = {name: number for name, number in model.aliases.items() if number != gone.version}

        await self._change(caller, asked, change)
        return {}

    # -- the store ----------------------------------------------------------------------------------------------------

    async def _found(self, name: str) -> RegistryModel:
        found = await self._database.read(lambda c: _load(c, name))
        if found is None:
            raise _unknown(name)
        return found

    async def _all(self) -> list[RegistryModel]:
        rows = sa.select(mlflow_model.c.document).order_by(mlflow_model.c.name)
        found = await self._database.read(lambda c: list(c.scalars(rows)))
        return [msgspec.json.decode(text, type=RegistryModel) for text in found]

    async def _change(self, caller: Caller, asked: RegistryRequest, change: Change) -> RegistryModel:
        _check_writer(caller)

        def write(connection: sa.Connection) -> RegistryModel:
            model = _known(connection, asked.name)
            change(model, asked)
            model.changed_ms = now_ms()
            _save(connection, model)
            return model

        return await self._database.write(write)


def _load(connection: sa.Connection, name: str) -> RegistryModel | None:
    text = connection.scalar(sa.select(mlflow_model.c.document).where(mlflow_model.c.name == name))
    return msgspec.json.decode(text, type=RegistryModel) if text is not None else None


def _save(connection: sa.Connection, model: RegistryModel, *, new: bool = False) -> None:
    text = msgspec.json.encode(model).decode()
    if new:
        row = {"name": model.name, "user_id": model.user_id, "document": text}
        connection.execute(sa.insert(mlflow_model).values(row))
    else:
        mine = sa.update(mlflow_model).where(mlflow_model.c.name == model.name)
        connection.execute(mine.values(document=text))


def _forget(connection: sa.Connection, name: str) -> None:
    connection.execute(sa.delete(mlflow_model).where(mlflow_model.c.name == name))


def _known(connection: sa.Connection, name: str) -> RegistryModel:
    found = _load(connection, name)
    if found is None:
        raise _unknown(name)
    return found


def _mine(connection: sa.Connection, caller: Caller, name: str) -> RegistryModel:
    """Return a model that the caller may rename and remove: one of their own, or any for an administrator."""
    found = _known(connection, name)
    if caller.job_id is not None or (caller.role != "admin" and found.user_id != caller.user_id):
        raise DoorError(
            "forbidden", f"{name} must be your own to be renamed or removed, got one of {found.user}"
        )
    return found


def _check_writer(caller: Caller) -> None:
    """Refuse viewers; members and the scripts of their jobs may register models and versions."""
    if caller.role == "viewer":
        raise DoorError(
            "forbidden", "who registers models must be a member or an admin, got a viewer; ask an admin"
        )


def _unknown(name: str) -> DoorError:
    return DoorError("not-found", f"a registered model must exist, got {name[:80]!r}; register it first")
