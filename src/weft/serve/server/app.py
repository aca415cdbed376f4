"""The application: the door, and the routes behind it."""

from __future__ import annotations

from starlette.routing import Router

from weft.serve.server.door import Door
from weft.serve.server.keys import KeyRing
from weft.serve.server.pictures.routes import Pictures
from weft.serve.server.protocols import pages
from weft.serve.server.protocols.rest import V2
from weft.serve.server.protocols.v1 import V1
from weft.serve.server.state import ServerState
from weft.serve.server.tracing import Tracing


def make_app(state: ServerState, keys: KeyRing | None, tracing: Tracing) -> Door:
    # A bare router: what a handler raises reaches the door, which answers for all of them.
    routes = [*V1(state).routes(), *Pictures(state).routes(), *pages.routes(state), *V2(state).routes()]
    return Door(state, Router(routes, redirect_slashes=False), keys, tracing)
