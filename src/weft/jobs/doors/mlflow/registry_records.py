"""Registered models and their versions: what is stored, what is asked, what is answered. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from weft.jobs.doors.access import DoorError
from weft.jobs.doors.mlflow.memory_search import Searchable
from weft.jobs.doors.mlflow.messages import pairs

LONGEST_NAME, LONGEST_TEXT = 250, 5000  # characters


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


def version_of(model: RegistryModel, given: str | int) -> RegistryVersion:
    for one in model.versions:
        if str(one.version) == str(given):
            return one
    raise DoorError("not-found", f"a version of {model.name} must exist, got {str(given)[:20]!r}")


def owner_of_tag(model: RegistryModel, asked: RegistryRequest) -> RegistryModel | RegistryVersion:
    """Return what a tag belongs to: a version if one is named."""
    return version_of(model, asked.version) if asked.version != "" else model


def latest_versions(model: RegistryModel, stages: Iterable[str] = ()) -> list[dict[str, Any]]:
    wanted = {stage.lower() for stage in stages}
    newest = {one.stage: one for one in model.versions if not wanted or one.stage.lower() in wanted}
    return [version_to_json(model, one) for one in newest.values()]


def model_to_json(model: RegistryModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "creation_timestamp": model.created_ms,
        "last_updated_timestamp": model.changed_ms,
        "user_id": model.user,
        "description": model.description,
        "latest_versions": latest_versions(model),
        "tags": pairs(model.tags),
        "aliases": [
            {"alias": name, "version": str(number)} for name, number in sorted(model.aliases.items())
        ],
    }


def version_to_json(model: RegistryModel, one: RegistryVersion) -> dict[str, Any]:
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
        "tags": pairs(one.tags),
        "aliases": sorted(name for name, number in model.aliases.items() if number == one.version),
    }


def tags_from(given: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {checked_key(tag.get("key", "")): checked_text(tag.get("value", "")) for tag in given}


def checked_name(name: str) -> str:
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or set(name) & set("/:"):
        raise DoorError(
            "bad", f"the name of a registered model must be short and without / and :, got {name[:80]!r}"
        )
    return name


def checked_key(key: str) -> str:
    if not key or len(key) > LONGEST_NAME or not key.isprintable():
        raise DoorError("bad", f"the name of a tag or alias must be short and printable, got {key[:80]!r}")
    return key


def checked_text(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise DoorError(
            "bad", f"a text must have at most {LONGEST_TEXT} characters, got {len(text)}; shorten it"
        )
    return text


def searchable_model(model: RegistryModel) -> Searchable[RegistryModel]:
    """Return a model with what it can be found by."""
    attributes = {
        "name": model.name,
        "creation_timestamp": model.created_ms,
        "last_updated_timestamp": model.changed_ms,
    }
    return Searchable(model, attributes, model.tags)


def searchable_version(
    model: RegistryModel, one: RegistryVersion
) -> Searchable[tuple[RegistryModel, RegistryVersion]]:
    """Return a version with what it can be found by."""
    attributes = {
        "name": model.name,
        "run_id": one.run_id,
        "source_path": one.source,
        "version_number": one.version,
        "creation_timestamp": one.created_ms,
        "last_updated_timestamp": one.changed_ms,
    }
    return Searchable((model, one), attributes, one.tags)
