"""Data sets of pictures: list, make, change, share, remove; labels, versions, health, copies and exports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import Response, StreamingResponse

from weft.jobs.api.binding import Handler
from weft.jobs.api.downloads import SAFE_HEADERS
from weft.jobs.api.routes.vision.caller import admin_of, user_of, vision_of
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.vision import VisionDatasets, VisionLabelEntry, VisionVersions
from weft.vision.views import VisionDataset, VisionHealth, VisionTask, VisionVersion

_PART_BYTES = 256 << 10


async def _list(call: ApiCall) -> VisionDatasets:
    user = user_of(call)
    return VisionDatasets(await vision_of(call).call(lambda library: library.datasets(user)))


async def _add(call: ApiCall) -> VisionDataset:
    asked, name = call.body, call.identity.name  # an administrator's own, too
    made = await vision_of(call).call(
        lambda library: library.create(asked.name, description=asked.description, user=name)
    )
    await asyncio.to_thread(vision_of(call).changed, made.id)
    return made


async def _show(call: ApiCall) -> VisionDataset:
    user, reference = user_of(call), call.path["dataset"]
    return await vision_of(call).call(lambda library: library.dataset(reference, user))


async def _change(call: ApiCall) -> VisionDataset:
    user, reference = user_of(call), call.path["dataset"]
    changes = {
        key: value for key in call.body.__struct_fields__ if (value := getattr(call.body, key)) is not None
    }
    found = await vision_of(call).call(lambda library: library.change(reference, user=user, **changes))
    await asyncio.to_thread(vision_of(call).changed, found.id)
    return found


async def _remove(call: ApiCall) -> None:
    user, reference = user_of(call), call.path["dataset"]
    found = await vision_of(call).call(lambda library: library.dataset(reference, user))
    await vision_of(call).call(lambda library: library.remove(found.id, user))
    vision_of(call).tell(found.id, "vision", [found.owner, *found.shares], removed=True)


async def _change_labels(call: ApiCall) -> VisionDataset:
    from weft.vision.library.changing import ClassEntry

    def entries(given: tuple[VisionLabelEntry, ...] | None) -> list[ClassEntry] | None:
        return None if given is None else [ClassEntry(one.name, one.colour, one.was) for one in given]

    user, reference = user_of(call), call.path["dataset"]
    labels, categories = entries(call.body.labels), entries(call.body.categories)
    found = await vision_of(call).call(
        lambda library: library.set_classes(reference, labels=labels, categories=categories, user=user)
    )
    await asyncio.to_thread(vision_of(call).changed, found.id)
    return found


async def _versions(call: ApiCall) -> VisionVersions:
    user, reference = user_of(call), call.path["dataset"]
    return VisionVersions(await vision_of(call).call(lambda library: library.versions(reference, user)))


async def _freeze(call: ApiCall) -> VisionVersion:
    user, reference, note = user_of(call), call.path["dataset"], call.body.note
    return await vision_of(call).call(lambda library: library.freeze(reference, note=note, user=user))


async def _health(call: ApiCall) -> VisionHealth:
    user, reference, near = user_of(call), call.path["dataset"], call.query.near
    return await vision_of(call).call(lambda library: library.health(reference, near=near, user=user))


async def _augment(call: ApiCall) -> VisionTask:
    return await _begin(call, "augment", msgspec.to_builtins(call.body))


async def _clone(call: ApiCall) -> VisionTask:
    return await _begin(call, "clone", {"name": call.body.name})


async def _begin(call: ApiCall, kind: str, request: dict[str, Any]) -> VisionTask:
    """Begin work that makes another data set; a name that is taken is refused at once."""
    from weft.vision.library.datasets import check_name

    user, reference = user_of(call), call.path["dataset"]
    found = await vision_of(call).call(lambda library: library.dataset(reference, user))

    def check(library: Any) -> None:
        with library.store.reading() as connection:
            check_name(connection, request["name"], call.identity.name)

    await vision_of(call).call(check)
    return await vision_of(call).begin(found.id, kind, call.identity.name, request | admin_of(call))


async def _export(call: ApiCall) -> Response:
    """Send a data set as a zip, which is made whole before its first byte is sent."""
    user, reference, query = user_of(call), call.path["dataset"], call.query
    parts = vision_of(call)
    found = await parts.call(lambda library: library.dataset(reference, user))
    text = found.id if query.version is None else f"{found.id}@{query.version}"

    def make(library: Any) -> Any:
        path = library.blobs.draft(".zip")
        return library.export(text, path, query.format, user)

    path = await parts.call(make)
    size = path.stat().st_size
    file = path.open("rb")
    path.unlink()  # it is there as long as it is open

    async def sent() -> AsyncIterator[bytes]:
        try:
            while part := await asyncio.to_thread(partial(file.read, _PART_BYTES)):
                yield part
        finally:
            file.close()

    name = quote(f"{found.name}-{query.format}.zip", safe="")
    disposition = {"content-disposition": f"attachment; filename*=UTF-8''{name}", "content-length": str(size)}
    return StreamingResponse(sent(), headers={**SAFE_HEADERS, **disposition}, media_type="application/zip")


HANDLERS: Mapping[str, Handler] = {
    "list_vision_datasets": _list,
    "add_vision_dataset": _add,
    "show_vision_dataset": _show,
    "change_vision_dataset": _change,
    "remove_vision_dataset": _remove,
    "list_vision_labels": _show,
    "change_vision_labels": _change_labels,
    "list_vision_versions": _versions,
    "add_vision_version": _freeze,
    "show_vision_health": _health,
    "augment_vision_dataset": _augment,
    "clone_vision_dataset": _clone,
    "export_vision_dataset": _export,
}
