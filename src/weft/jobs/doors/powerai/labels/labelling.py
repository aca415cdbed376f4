"""Automatic labels as these clients ask for them: by a deployed model, on a data set."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from weft.jobs.doors.access import Caller, DoorError
from weft.jobs.doors.powerai.answers import model_id
from weft.jobs.doors.powerai.base import PowerAiPart, seen_as, share, success
from weft.jobs.doors.powerai.identities import library_id, missing, number_of, numbered_id, plain_id
from weft.jobs.vision.autolabel import LabellingRequest, labelling_document, labelling_spec
from weft.jobs.vision.models import PictureModel

if TYPE_CHECKING:
    from weft.vision.views import VisionDataset


async def begin_labelling(
    part: PowerAiPart, caller: Caller, known: VisionDataset, body: dict[str, Any]
) -> Response:
    """Queue a job that labels what nobody has labelled; answer it as background work."""
    service, trainings = part.service, part.service.trainings
    model = await chosen_model(part, caller, body)
    data = await trainings.pictures.frozen(known.id, None, seen_as(caller))
    files = body.get("file_ids") or await asyncio.to_thread(trainings.unlabelled, data)
    if not isinstance(files, (list, tuple)) or not files:
        raise DoorError("bad", f"{known.name} must have files without labels, got none")
    asked = LabellingRequest(
        data=data,
        files=tuple(plain_id(str(one)) for one in files),
        model=model,
        confidence=share(
            str(body.get("confidence_threshold", body.get("confthre", ""))), "confidence_threshold", 0.5
        ),
    )
    snapshot = await trainings.snapshot(labelling_document(asked), model)
    (number,) = await service.submit(
        labelling_spec(asked), user_id=caller.user_id, user_name=caller.user_name, snapshot=snapshot
    )
    return success(202, task_id=numbered_id("dltask", number), dataset_id=library_id(known.id))


async def chosen_model(part: PowerAiPart, caller: Caller, body: dict[str, Any]) -> PictureModel:
    """Return the model that a body names: deployed, or trained."""
    models = part.service.trainings.models
    if deployed := body.get("webapi_id") or body.get("deployed_model_id"):
        number = number_of("webapi", str(deployed))
        for one in await part.service.data.deployments.all():
            if one.id == number:
                return await models.find(f"{one.model}@{one.version}")
        raise missing("webapi", str(deployed))
    wanted = str(body.get("trained_model_id") or body.get("model_id") or "")
    for found in await part.service.trainings.seen(await models.all(), caller.visible_to, caller.user_name):
        if wanted in (model_id(found), found.reference, found.model):
            return found
    raise missing("trained model", wanted)
