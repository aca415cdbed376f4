"""All routes of the door, in an order in which fixed words come before ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

from weft.jobs.doors.access import Authenticate
from weft.jobs.doors.powerai.data_routes import DataPart
from weft.jobs.doors.powerai.labels.action_routes import ActionPart
from weft.jobs.doors.powerai.labels.collection_routes import CollectionPart
from weft.jobs.doors.powerai.labels.label_routes import LabelPart
from weft.jobs.doors.powerai.script_routes import ScriptPart
from weft.jobs.doors.powerai.serving_routes import ServingPart
from weft.jobs.doors.powerai.session_routes import SessionPart
from weft.jobs.doors.powerai.training_routes import TrainingPart

if TYPE_CHECKING:
    from weft.jobs.service.service import JobService

PARTS = (SessionPart, CollectionPart, ActionPart, DataPart, LabelPart, ScriptPart, TrainingPart, ServingPart)


def powerai_routes(service: JobService, authenticate: Authenticate) -> list[BaseRoute]:
    """Return the routes; they belong at the root of the server."""
    return [route for part in PARTS for route in part(service, authenticate).routes()]
