"""Refusals of a library that callers tell apart: not there, not theirs, changed by another user meanwhile."""

from __future__ import annotations

from weft.errors import PictureError
from weft.vision.views import VisionFileDetail


class PicturesNotFoundError(PictureError):
    """A data set, a file, a version or a task is not there, or not for this user."""


class PicturesForbiddenError(PictureError):
    """A data set is shared with this user, but its owner alone may do this."""


class PicturesConflictError(PictureError):
    """A name is taken already."""


class LabelsChangedError(PictureError):
    """The labels of a file were changed by another user since they were read; nothing was saved."""

    def __init__(self, present: VisionFileDetail) -> None:
        who = f" by {present.updated_by}" if present.updated_by else ""
        super().__init__(
            f"labels must be saved over the revision that they were made from, got a newer one, {present.revision}, "
            f"made{who}; look at it and save again"
        )
        self.present = present
