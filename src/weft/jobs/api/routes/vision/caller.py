"""The caller of a request as the library knows users: by name; administrators see everything."""

from __future__ import annotations

from weft.jobs.api.state import ApiCall
from weft.jobs.vision.parts import VisionParts


def user_of(call: ApiCall) -> str | None:
    """Return the user whose data sets are meant; None: all."""
    return None if call.identity.is_admin else call.identity.name


def vision_of(call: ApiCall) -> VisionParts:
    return call.state.jobs.vision


def admin_of(call: ApiCall) -> dict[str, bool]:
    """Return what a task keeps of who asked for it, beside the name."""
    return {"admin": True} if call.identity.is_admin else {}
