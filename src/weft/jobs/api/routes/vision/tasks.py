"""Background work on data sets: what there is, how far it is, and its stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from weft.jobs.api.binding import Handler
from weft.jobs.api.routes.vision.caller import admin_of, user_of, vision_of
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.vision import VisionTasks
from weft.vision.views import VisionTask


async def _list(call: ApiCall) -> VisionTasks:
    user, query = user_of(call), call.query
    return VisionTasks(
        await vision_of(call).call(lambda library: library.tasks(user, query.dataset, query.limit))
    )


async def _show(call: ApiCall) -> VisionTask:
    user, task_id = user_of(call), call.path["task"]
    return await vision_of(call).call(lambda library: library.task(task_id, user))


async def _stop(call: ApiCall) -> None:
    from weft.vision.library.tasks import stop_task

    found = await _show(call)

    def stop(library: Any) -> None:
        stop_task(library.store, found.id)

    await vision_of(call).call(stop)
    await asyncio.to_thread(vision_of(call).changed, found.dataset, task=found.id)


async def _frames(call: ApiCall) -> VisionTask:
    user, file_id, asked = user_of(call), call.path["file"], call.body
    found = await vision_of(call).call(lambda library: library.file(file_id, user))
    request = {"film": found.id, "times_s": list(asked.times_s), "every_s": asked.every_s}
    return await vision_of(call).begin(found.dataset, "frames", call.identity.name, request | admin_of(call))


async def _fetch(call: ApiCall) -> VisionTask:
    user, reference, asked = user_of(call), call.path["dataset"], call.body
    found = await vision_of(call).call(lambda library: library.dataset(reference, user))
    request = {"urls": list(asked.urls), "skip_duplicates": asked.skip_duplicates}
    return await vision_of(call).begin(found.id, "fetch", call.identity.name, request | admin_of(call))


HANDLERS: Mapping[str, Handler] = {
    "list_vision_tasks": _list,
    "show_vision_task": _show,
    "stop_vision_task": _stop,
    "capture_vision_frames": _frames,
    "import_vision_urls": _fetch,
}
