"""Handlers of requests about data sets of pictures, their files, labels and background work."""

from __future__ import annotations

from collections.abc import Mapping

from weft.jobs.api.binding import Handler
from weft.jobs.api.routes.vision import datasets, files, media, tasks, uploads

HANDLERS: Mapping[str, Handler] = {
    **datasets.HANDLERS,
    **files.HANDLERS,
    **media.HANDLERS,
    **tasks.HANDLERS,
    **uploads.HANDLERS,
}
