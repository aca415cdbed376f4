"""The caller of a request as the library knows users: by name; administrators see everything."""

from __future__ import annotations

from weft.jobs.api.state import ApiCall
from weft.jobs.vision.models import PictureModel, PictureModelNotFound
from weft.jobs.vision.parts import VisionParts


def user_of(call: ApiCall) -> str | None:
    """Return the user whose data sets are meant; None: all."""
    return None if call.identity.is_admin else call.identity.name


def vision_of(call: ApiCall) -> VisionParts:
    return call.state.jobs.vision


def admin_of(call: ApiCall) -> dict[str, bool]:
    """Return what a task keeps of who asked for it, beside the name."""
    return {"admin": True} if call.identity.is_admin else {}


async def may_look(call: ApiCall, dataset: str, owner_id: int) -> bool:
    """Return whether a caller may see pictures of a training: it is the caller's, or of a data set that is seen."""
    if owner_id == call.identity.user_id:
        return True
    return await call.state.jobs.trainings.shows_pictures(dataset, user_of(call))


async def seen_model(call: ApiCall, reference: str) -> PictureModel:
    """Return a trained model that the caller may see."""
    found = await call.state.jobs.trainings.models.find(reference)
    who = call.identity
    if not await call.state.jobs.trainings.seen([found], who.visible_to, who.name):
        raise PictureModelNotFound(
            f"a trained model must be there, got {reference[:100]!r}; list them to see names"
        )
    return found
