"""MLflow's model registry: names, versions, aliases, stages and tags of models that runs have logged.

A registered model is one document in the store; its versions point at artifacts of runs. The models that the service
itself serves are checked ONNX files in a store of their own: `export` of a job, or `weft models add`, puts them there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.doors.access import Caller, DoorError, DoorService, visible_job
from weft.jobs.doors.mlflow.runs import job_id_of
from weft.jobs.store.data_tables import mlflow_model
from weft.jobs.store.events import add_audit, now_ms

STAGES = ("None", "Staging", "Production", "Archived")
LONGEST_NAME, LONGEST_TEXT = 250, 5000
MOST_VERSIONS = 10_000
_TERM = re.compile(
    r"\s*([\w.`\"]+)\s*(=|!=|LIKE|ILIKE|IN)\s*('[^']*'|\"[^\"]*\"|\([^)]*\))\s*", re.IGNORECASE
)
_AND = re.compile(r"\s+AND\s+", re.IGNORECASE)


class RegistryVersion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One version of a registered model."""

    version: int
    source: str
    run_id: str = ""
    user: str = ""
    stage: str = "None"
    description: str = ""
    created_ms: int = 0
    changed_ms: int = 0
    tags: dict[str, str] = {}


class RegistryModel(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A registered model with all of its versions, oldest first; anybody who may submit adds to it, as in MLflow."""

    name: str
    user_id: int
    user: str
    description: str = ""
    created_ms: int = 0
    changed_ms: int = 0
    last: int = 0  # the number of the newest version that there ever was
    tags: dict[str, str] = {}
    aliases: dict[str, int] = {}
    versions: list[RegistryVersion] = []


class RegistryRequest(msgspec.Struct):
    """The fields of all requests to the registry; each request has some of them."""

    name: str = ""
    new_name: str = ""
    description: str = ""
    tags: tuple[dict[str, str], ...] = ()
    source: str = ""
    run_id: str = ""
    version: str | int = ""
    stage: str = "None"
    archive_existing_versions: bool = False
    stages: tuple[str, ...] = ()
    key: str = ""
    value: str = ""
    alias: str = ""


Change = Callable[[RegistryModel, RegistryRequest], Any]


class Registry:
    """Answers the requests of MLflow's registry client."""

    def __init__(self, service: DoorService) -> None:
        self._database = service.database

    # -- models -------------------------------------------------------------------------------------------------------

    async def create(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        _check_writer(caller)
        name, at = _checked_name(asked.name), now_ms()
        made = RegistryModel(
            name=name, user_id=caller.user_id, user=caller.user_name, description=_text(asked.description),
            created_ms=at, changed_ms=at, tags=_tags(asked.tags),
        )  # fmt: skip

        def write(connection: sa.Connection) -> None:
            if _load(connection, name) is not None:
                raise DoorError("exists", f"the name of a registered model must be new, got {name!r}")
            _save(connection, made, new=True)
            add_audit(connection, caller.user_name, "register model", name)

        await self._database.write(write)
        return {"registered_model": _model_json(made)}

    async def get(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        return {"registered_model": _model_json(await self._found(asked.get("name", "")))}

    async def search(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        terms = _terms(asked.get("filter", ""), {"name"})
        found = [
            model
            for model in await self._all()
            if _matches(terms, {"name": model.name, **_tagged(model.tags)})
        ]
        shown, following = _page(found, asked)
        return {"registered_models": [_model_json(model) for model in shown], **following}

    async def update(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            model.description = _text(asked.description)

        return {"registered_model": _model_json(await self._change(caller, asked, change))}

    async def rename(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        new = _checked_name(asked.new_name)

        def write(connection: sa.Connection) -> RegistryModel:
            model = _mine(connection, caller, asked.name)
            if _load(connection, new) is not None:
                raise DoorError("exists", f"the name of a registered model must be new, got {new!r}")
            _forget(connection, model.name)
            model.name, model.changed_ms = new, now_ms()
            _save(connection, model, new=True)
            return model

        return {"registered_model": _model_json(await self._database.write(write))}

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
        return {"model_versions": _latest(model, stages)}

    async def set_tag(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            _owner(model, asked).tags[_checked_key(asked.key)] = _text(asked.value)

        await self._change(caller, asked, change)
        return {}

    async def delete_tag(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            _owner(model, asked).tags.pop(asked.key, None)

        await self._change(caller, asked, change)
        return {}

    # -- aliases ------------------------------------------------------------------------------------------------------

    async def set_alias(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            model.aliases[_checked_key(asked.alias)] = _version(model, asked.version).version

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
        return {"model_version": _version_json(model, _version(model, model.aliases[alias]))}

    # -- versions -----------------------------------------------------------------------------------------------------

    async def create_version(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        _check_writer(caller)
        source = _text(asked.source)
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
                description=_text(asked.description), created_ms=now_ms(), changed_ms=now_ms(),
                tags=_tags(asked.tags),
            )  # fmt: skip
            model.versions.append(made)
            return made

        model = await self._change(caller, asked, change)
        return {"model_version": _version_json(model, model.versions[-1])}

    async def version(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        model = await self._found(asked.get("name", ""))
        return {"model_version": _version_json(model, _version(model, asked.get("version", "")))}

    async def download(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        model = await self._found(asked.get("name", ""))
        return {"artifact_uri": _version(model, asked.get("version", "")).source}

    async def search_versions(self, caller: Caller, asked: Mapping[str, str]) -> dict[str, Any]:
        terms = _terms(asked.get("filter", ""), {"name", "run_id", "source_path", "version_number"})
        found = []
        for model in await self._all():
            for one in reversed(model.versions):
                fields = {"name": model.name, "run_id": one.run_id, "source_path": one.source}
                if _matches(terms, {**fields, "version_number": str(one.version), **_tagged(one.tags)}):
                    found.append(_version_json(model, one))
        shown, following = _page(found, asked)
        return {"model_versions": shown, **following}

    async def update_version(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            one = _version(model, asked.version)
            one.description, one.changed_ms = _text(asked.description), now_ms()

        model = await self._change(caller, asked, change)
        return {"model_version": _version_json(model, _version(model, asked.version))}

    async def transition(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        stage = next((name for name in STAGES if name.lower() == asked.stage.lower()), None)
        if stage is None:
            raise DoorError("bad", f"a stage must be one of {', '.join(STAGES)}, got {asked.stage[:40]!r}")
        wanted = stage

        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            chosen = _version(model, asked.version)
            for other in model.versions if asked.archive_existing_versions else ():
                if other.stage == wanted and other is not chosen:
                    other.stage, other.changed_ms = "Archived", now_ms()
            chosen.stage, chosen.changed_ms = wanted, now_ms()

        model = await self._change(caller, asked, change)
        return {"model_version": _version_json(model, _version(model, asked.version))}

    async def delete_version(self, caller: Caller, asked: RegistryRequest) -> dict[str, Any]:
        def change(model: RegistryModel, asked: RegistryRequest) -> None:
            gone = _version(model, asked.version)
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


# -- forms ------------------------------------------------------------------------------------------------------------


def _version(model: RegistryModel, given: str | int) -> RegistryVersion:
    for one in model.versions:
        if str(one.version) == str(given):
            return one
    raise DoorError("not-found", f"a version of {model.name} must exist, got {str(given)[:20]!r}")


def _owner(model: RegistryModel, asked: RegistryRequest) -> RegistryModel | RegistryVersion:
    """Return what a tag belongs to: a version if one is named."""
    return _version(model, asked.version) if asked.version != "" else model


def _latest(model: RegistryModel, stages: Iterable[str] = ()) -> list[dict[str, Any]]:
    wanted = {stage.lower() for stage in stages}
    newest = {one.stage: one for one in model.versions if not wanted or one.stage.lower() in wanted}
    return [_version_json(model, one) for one in newest.values()]


def _model_json(model: RegistryModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "creation_timestamp": model.created_ms,
        "last_updated_timestamp": model.changed_ms,
        "user_id": model.user,
        "description": model.description,
        "latest_versions": _latest(model),
        "tags": _pairs(model.tags),
        "aliases": [
            {"alias": name, "version": str(number)} for name, number in sorted(model.aliases.items())
        ],
    }


def _version_json(model: RegistryModel, one: RegistryVersion) -> dict[str, Any]:
    return {
        "name": model.name,
        "version": str(one.version),
        "creation_timestamp": one.created_ms,
        "last_updated_timestamp": one.changed_ms,
        "user_id": one.user,
        "current_stage": one.stage,
        "description": one.description,
        "source": one.source,
        "run_id": one.run_id,
        "status": "READY",
        "tags": _pairs(one.tags),
        "aliases": sorted(name for name, number in model.aliases.items() if number == one.version),
    }


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _tags(given: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {_checked_key(tag.get("key", "")): _text(tag.get("value", "")) for tag in given}


def _tagged(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"tags.{key}": value for key, value in tags.items()}


def _checked_name(name: str) -> str:
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or set(name) & set("/:"):
        raise DoorError(
            "bad", f"the name of a registered model must be short and without / and :, got {name[:80]!r}"
        )
    return name


def _checked_key(key: str) -> str:
    if not key or len(key) > LONGEST_NAME or not key.isprintable():
        raise DoorError("bad", f"the name of a tag or alias must be short and printable, got {key[:80]!r}")
    return key


def _text(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise DoorError(
            "bad", f"a text must have at most {LONGEST_TEXT} characters, got {len(text)}; shorten it"
        )
    return text


Term = tuple[str, str, tuple[str, ...]]


def _terms(text: str, known: set[str]) -> list[Term]:
    """Return the terms of a filter: `name LIKE 'dig%' AND tags.team = 'blue'`."""
    found: list[Term] = []
    for part in _AND.split(text) if text.strip() else ():
        match = _TERM.fullmatch(part)
        field = re.sub(r"[`\"]", "", match[1]) if match else ""
        field = re.sub(r"^tags?\.", "tags.", field)
        if match is None or not (field in known or field.startswith("tags.")):
            names = ", ".join(sorted({*known, "tags.KEY"}))
            raise DoorError("bad", f"a filter must compare {names} with a text, got {part.strip()[:200]!r}")
        values = re.findall(r"'([^']*)'|\"([^\"]*)\"", match[3])
        found.append((field, match[2].upper(), tuple(first or second for first, second in values)))
    return found


def _matches(terms: Iterable[Term], fields: Mapping[str, str]) -> bool:
    return all(_holds(operator, values, fields.get(field)) for field, operator, values in terms)


def _holds(operator: str, values: tuple[str, ...], given: str | None) -> bool:
    if given is None:
        return operator == "!="  # clients ask for models that are not marked as prompts
    if operator in ("=", "IN"):
        return given in values
    if operator == "!=":
        return given not in values
    pattern = re.escape(values[0] if values else "").replace("%", ".*").replace("_", ".")
    return re.fullmatch(pattern, given, re.IGNORECASE if operator == "ILIKE" else 0) is not None


def _page(found: list[Any], asked: Mapping[str, str]) -> tuple[list[Any], dict[str, str]]:
    try:
        start, most = int(asked.get("page_token") or 0), int(asked.get("max_results") or 100)
    except ValueError:
        raise DoorError("bad", "max_results and page_token must be whole numbers, got others") from None
    if not 0 < most <= 200_000 or start < 0:
        raise DoorError("bad", f"max_results must be 1 to 200000, got {most}")
    following = {"next_page_token": str(start + most)} if start + most < len(found) else {}
    return found[start : start + most], following
