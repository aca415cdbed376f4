"""All doors as routes at the root of the server."""

from __future__ import annotations

from starlette.routing import BaseRoute

from weft.jobs.doors.access import Authenticate, DoorService
from weft.jobs.doors.mlflow.routes import mlflow_routes


def routes(service: DoorService, authenticate: Authenticate) -> list[BaseRoute]:
    """Return the routes of every door."""
    return [*mlflow_routes(service, authenticate)]
