"""Files of data sets: pages of them, one with its labels, changes of labels and of many files at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.responses import Response

from weft.jobs.api.binding import Handler, json_response
from weft.jobs.api.routes.vision.caller import user_of, vision_of
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.vision import VisionChangeAnswer, VisionFilesQuery
from weft.vision.library.files import FileFilter
from weft.vision.refusals import LabelsChangedError
from weft.vision.views import VisionFileDetail, VisionFiles


def _filter(query: VisionFilesQuery) -> FileFilter:
    return FileFilter(
        state=query.state,
        label=query.label,
        category=query.category,
        kind=query.kind,
        parent=query.parent,
        query=query.query,
        sort=query.sort,
    )


async def _list(call: ApiCall) -> VisionFiles:
    user, reference, query = user_of(call), call.path["dataset"], call.query
    return await vision_of(call).call(
        lambda library: library.files(
            reference, _filter(query), after=query.after, limit=query.limit, user=user
        )
    )


async def _show(call: ApiCall) -> VisionFileDetail:
    user, file_id = user_of(call), call.path["file"]
    return await vision_of(call).call(lambda library: library.file(file_id, user))


async def _save(call: ApiCall) -> VisionFileDetail | Response:
    """Save labels; if another user was quicker, the answer has the present state beside the error."""
    user, file_id, asked = user_of(call), call.path["file"], call.body
    try:
        found = await vision_of(call).call(
            lambda library: library.save_labels(
                file_id,
                asked.revision,
                asked.shapes,
                asked.category,
                category_confidence=asked.category_confidence,
                review=asked.review,
                user=user,
                by=call.identity.name,
            )
        )
    except LabelsChangedError as error:
        problem = {"code": "changed", "text": str(error), "problems": []}
        return await json_response({"error": problem, "present": error.present}, 409, call.request)
    await asyncio.to_thread(
        vision_of(call).changed, found.dataset, file=found.id, revision=found.revision, by=call.identity.name
    )
    return found


async def _save_metadata(call: ApiCall) -> VisionFileDetail:
    user, file_id, given = user_of(call), call.path["file"], call.body.metadata
    found = await vision_of(call).call(lambda library: library.save_metadata(file_id, given, user))
    await asyncio.to_thread(vision_of(call).changed, found.dataset, file=found.id)
    return found


async def _remove(call: ApiCall) -> None:
    user, file_id = user_of(call), call.path["file"]
    found = await vision_of(call).call(lambda library: library.file(file_id, user))
    await vision_of(call).call(lambda library: library.remove_file(file_id, user))
    await asyncio.to_thread(vision_of(call).changed, found.dataset)


async def _change(call: ApiCall) -> VisionChangeAnswer:
    user, reference, asked = user_of(call), call.path["dataset"], call.body
    wanted = _filter(asked.filter) if asked.filter is not None else None
    found = await vision_of(call).call(lambda library: library.dataset(reference, user))
    changed, left = await vision_of(call).call(
        lambda library: library.change_files(
            found.id,
            asked.action,
            ids=asked.files,
            wanted=wanted,
            target=asked.target,
            category=asked.category,
            confidence=asked.confidence,
            user=user,
            by=call.identity.name,
        )
    )
    await asyncio.to_thread(vision_of(call).changed, found.id)
    if asked.target is not None and changed:
        target = await vision_of(call).call(lambda library: library.dataset(asked.target, user))
        await asyncio.to_thread(vision_of(call).changed, target.id)
    return VisionChangeAnswer(changed=changed, left=left)


async def _fill_track(call: ApiCall) -> VisionChangeAnswer:
    user, file_id, track = user_of(call), call.path["file"], call.body.track
    count = await vision_of(call).call(lambda library: library.fill_track(file_id, track, user))
    return VisionChangeAnswer(changed=count, left=0)


HANDLERS: Mapping[str, Handler] = {
    "list_vision_files": _list,
    "show_vision_file": _show,
    "save_vision_labels": _save,
    "change_vision_metadata": _save_metadata,
    "remove_vision_file": _remove,
    "change_vision_files": _change,
    "interpolate_vision_track": _fill_track,
}
