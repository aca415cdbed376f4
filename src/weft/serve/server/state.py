"""The state that all handlers share."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.serve.server.models.metrics import Tallies
from weft.serve.server.models.repository import Repository
from weft.serve.server.options import ServerOptions
from weft.serve.server.protocols.grpc_drain import GrpcCallers
from weft.serve.server.refusal import RefusalError


@dataclass
class ServerState:
    """The models, the options, and whether requests are welcome."""

    repository: Repository
    options: ServerOptions
    ready: bool = False
    draining: bool = False  # the server ends: everybody gets one more answer
    in_flight: int = 0
    callers: GrpcCallers = field(default_factory=GrpcCallers)
    tallies: Tallies = field(init=False)

    def check_ready(self) -> None:
        """Refuse, with the reason, while the server or one of its models is not ready."""
        if not self.ready:
            raise RefusalError(503, "the server is not ready: it is starting, or draining")
        if missing := self.repository.missing():
            raise RefusalError(503, f"the server is not ready: {', '.join(missing)} did not load")

    def is_ready(self) -> bool:
        return self.ready and not self.repository.missing()

    def __post_init__(self) -> None:
        self.tallies = Tallies(self.repository, lambda: self.in_flight)
