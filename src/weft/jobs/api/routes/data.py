"""Data sets and models: registered, listed, traced from data to model, removed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.api.access import Identity
from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal, not_found
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.common import scalar
from weft.jobs.api.types.data import (
    DataFileView,
    DatasetsAnswer,
    DatasetVersionDetail,
    DatasetVersionView,
    DatasetView,
    LineageData,
    ModelLineage,
    ModelsAnswer,
    ModelVersionDetail,
    ModelVersionView,
    ModelView,
    NewModel,
)
from weft.jobs.data.datasets import (
    Dataset,
    RegisteredVersion,
    add_version,
    find_dataset,
    find_version,
    jobs_reading,
    list_datasets,
    remove_version,
)
from weft.jobs.data.models import Origin, deployments_of, models_of_job, origins
from weft.jobs.spec.model import ExportSpec
from weft.jobs.store.events import add_audit
from weft.jobs.store.jobs import need_job
from weft.jobs.store.tables import job
from weft.serve.store import Entry

MOST_LISTED = 1000


# -- data sets --------------------------------------------------------------------------------------------------------


def _version(found: RegisteredVersion) -> dict[str, Any]:
    fields = asdict(found)
    fields["user"] = fields.pop("user_name")
    return fields


def _dataset(found: Dataset, identity: Identity) -> DatasetView:
    versions = [_version(one) for one in found.versions]
    for one in versions:
        del one["name"]
    return DatasetView(
        name=found.name,
        description=found.description,
        user=found.user_name,
        created_ms=found.created_ms,
        versions=tuple(DatasetVersionView(**one) for one in versions),
        mine=_may_remove(found, identity),
    )


def _may_remove(found: Dataset, identity: Identity) -> bool:
    return "write" in identity.scopes and (identity.is_admin or found.user_id == identity.user_id)


async def _list_datasets(call: ApiCall) -> DatasetsAnswer:
    found = await call.database.read(list_datasets)
    return DatasetsAnswer(tuple(_dataset(one, call.identity) for one in found))


async def _show_dataset(call: ApiCall) -> DatasetView:
    found = await call.database.read(lambda c: find_dataset(c, call.path["dataset"]))
    return _dataset(found, call.identity)


async def _add_dataset(call: ApiCall) -> DatasetView:
    asked, identity = call.body, call.identity
    manifest = await call.state.jobs.data.staging.scan(asked.source, identity.user_id)
    values: dict[str, Any] = {"source": asked.source, "manifest": manifest, "note": asked.note}
    values |= {"description": asked.description, "user_id": identity.user_id, "user_name": identity.name}
    await call.database.write(lambda c: add_version(c, asked.name, **values))
    return _dataset(await call.database.read(lambda c: find_dataset(c, asked.name)), identity)


async def _show_dataset_version(call: ApiCall) -> DatasetVersionDetail:
    reference, visible_to = f"{call.path['dataset']}@{call.path['version']}", call.identity.visible_to

    def read(connection: sa.Connection) -> DatasetVersionDetail:
        found, manifest = find_version(connection, reference)
        jobs = jobs_reading(connection, found.digest)
        if visible_to is not None:
            mine = sa.select(job.c.id).where(job.c.id.in_(jobs), job.c.user_id == visible_to)
            jobs = tuple(sorted(connection.scalars(mine), reverse=True))
        models = [model for number in jobs for model in models_of_job(connection, number)]
        files = tuple(
            DataFileView(file.path, file.size, file.digest) for file in manifest.files[:MOST_LISTED]
        )
        return DatasetVersionDetail(**_version(found), listing=files, jobs=jobs, models=tuple(models))

    return await call.database.read(read)


async def _remove_dataset(call: ApiCall) -> None:
    name, version = call.path["dataset"], call.path.get("version")

    def remove(connection: sa.Connection) -> None:
        found = find_dataset(connection, name)
        if not _may_remove(found, call.identity):
            raise ApiRefusal(403, f"{name} must be your own to be removed, got one of {found.user_name}")
        reference = name if version is None else f"{name}@{version}"
        remove_version(connection, reference, user_name=call.identity.name)

    await call.database.write(remove)


# -- models -----------------------------------------------------------------------------------------------------------


def _model_version(entry: Entry, origin: Origin | None, deployments: list[str]) -> dict[str, Any]:
    return {
        "version": entry.version,
        "aliases": entry.aliases,
        "sha256": entry.sha256,
        "bytes": entry.size,
        "created": entry.created,
        "job": origin.job_id if origin is not None else None,
        "deployments": tuple(deployments),
    }


async def _views(call: ApiCall, entries: tuple[Entry, ...]) -> tuple[ModelView, ...]:
    def read(connection: sa.Connection) -> dict[str, list[ModelVersionView]]:
        known = origins(connection)
        found: dict[str, list[ModelVersionView]] = {}
        for entry in entries:
            serving = deployments_of(connection, entry.name, entry.version)
            fields = _model_version(entry, known.get((entry.name, entry.version)), serving)
            found.setdefault(entry.name, []).insert(0, ModelVersionView(**fields))
        return found

    return tuple(ModelView(name, tuple(one)) for name, one in (await call.database.read(read)).items())


async def _list_models(call: ApiCall) -> ModelsAnswer:
    shelf = call.state.jobs.data.models
    return ModelsAnswer(await _views(call, await asyncio.to_thread(shelf.entries)))


async def _show_model(call: ApiCall) -> ModelView:
    shelf, name = call.state.jobs.data.models, call.path["model"]
    if name not in await asyncio.to_thread(shelf.store.names):
        raise not_found(f"the model {name[:80]!r}")
    return (await _views(call, await asyncio.to_thread(shelf.store.list, name)))[0]


async def _entry(call: ApiCall) -> Entry:
    """Return the version that a path names."""
    shelf, name, number = call.state.jobs.data.models, call.path["model"], call.path["version"]
    if name in await asyncio.to_thread(shelf.store.names):
        for entry in await asyncio.to_thread(shelf.store.list, name):
            if entry.version == number:
                return entry
    raise not_found(f"version {number} of the model {name[:80]!r}")


async def _show_model_version(call: ApiCall) -> ModelVersionDetail:
    entry = await _entry(call)
    card = await asyncio.to_thread(lambda: entry.card)

    def read(connection: sa.Connection) -> ModelVersionDetail:
        origin = origins(connection, entry.name).get((entry.name, entry.version))
        fields = _model_version(entry, origin, deployments_of(connection, entry.name, entry.version))
        lineage = _lineage(origin) if origin is not None else None
        return ModelVersionDetail(**fields, name=entry.name, card=_plain(asdict(card)), lineage=lineage)

    return await call.database.read(read)


def _plain(value: Any) -> Any:
    """Return a card with numbers that JSON can hold."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _lineage(origin: Origin) -> ModelLineage:
    kept = origin.lineage
    return ModelLineage(
        job=origin.job_id,
        job_name=kept.get("name", ""),
        project=kept.get("project", ""),
        user=kept.get("user", ""),
        code=kept.get("code"),
        git_commit=kept.get("git_commit"),
        data=tuple(LineageData(**one) for one in kept.get("data", ())),
        params=kept.get("params", {}),
        metrics={
            name: found
            for name, value in kept.get("metrics", {}).items()
            if (found := scalar(value)) is not None
        },
        ledger=kept.get("ledger"),
    )


async def _add_model(call: ApiCall) -> ModelView:
    return await add_model_of_job(call, call.body)


async def add_model_of_job(call: ApiCall, asked: NewModel) -> ModelView:
    """Put a file of a job into the model store."""
    found = await call.database.read(lambda c: need_job(c, asked.job, visible_to=call.identity.visible_to))
    call.identity.check_acts_on(found)
    if not found.attempt:
        raise ApiRefusal(
            409, f"job {asked.job} must have run to have a model, got one that has not", code="wrong-state"
        )
    folder = call.state.jobs.log_folder(found.id, found.attempt)
    wanted = ExportSpec(model=asked.model, path=asked.path, alias=asked.alias)
    entry = await call.state.jobs.data.models.add(found, wanted, folder)
    return (await _views(call, await asyncio.to_thread(call.state.jobs.data.models.store.list, entry.name)))[
        0
    ]


async def _tag_model(call: ApiCall) -> ModelView:
    store, name = call.state.jobs.data.models.store, call.path["model"]
    await asyncio.to_thread(store.tag, f"{name}@{call.body.version}", call.body.alias)
    return await _show_model(call)


async def _untag_model(call: ApiCall) -> None:
    store, name = call.state.jobs.data.models.store, call.path["model"]
    await asyncio.to_thread(store.untag, f"{name}@{call.path['alias']}")


async def _remove_model_version(call: ApiCall) -> None:
    entry = await _entry(call)
    await asyncio.to_thread(call.state.jobs.data.models.store.rm, f"{entry.name}@{entry.version}")
    named = f"{entry.name}@{entry.version}"
    await call.database.write(lambda c: add_audit(c, call.identity.name, "remove model", named))


HANDLERS: Mapping[str, Handler] = {
    "list_datasets": _list_datasets,
    "add_dataset": _add_dataset,
    "show_dataset": _show_dataset,
    "remove_dataset": _remove_dataset,
    "show_dataset_version": _show_dataset_version,
    "remove_dataset_version": _remove_dataset,
    "list_models": _list_models,
    "add_model": _add_model,
    "show_model": _show_model,
    "show_model_version": _show_model_version,
    "remove_model_version": _remove_model_version,
    "add_alias": _tag_model,
    "remove_alias": _untag_model,
}
