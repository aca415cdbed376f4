"""The state that all handlers share."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.serve.server.models.metrics import Tallies
from weft.serve.server.models.repository import Repository
from weft.serve.server.options import ServerOptions


@dataclass
class ServerState:
    """The models, the options, and whether requests are welcome."""

    repository: Repository
    options: ServerOptions
    ready: bool = False
    in_flight: int = 0
    tallies: Tallies = field(init=False)

    def __post_init__(self) -> None:
        self.tallies = Tallies(self.repository, lambda: self.in_flight)
