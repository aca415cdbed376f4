"""The parts that handlers of requests work with: the service, who may ask, secrets' key, the stream, caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from weft.jobs.accounts.sealing import Sealer
from weft.jobs.api.access import Authenticator, Identity
from weft.jobs.api.headlines import Headlines
from weft.jobs.api.stream.hub import StreamHub
from weft.jobs.service.service import JobService
from weft.jobs.store.database import Database


@dataclass(frozen=True, kw_only=True)
class ApiState:
    """One running web interface."""

    jobs: JobService
    authenticator: Authenticator
    sealer: Sealer
    headlines: Headlines
    hub: StreamHub
    shared: bool = True
    secure: bool = False  # reached by TLS: cookies may not travel otherwise
    root_url: str = ""
    private_webhooks: tuple[str, ...] = ()  # networks that webhooks may go to though they are private

    @property
    def database(self) -> Database:
        return self.jobs.database


@dataclass(frozen=True)
class ApiCall:
    """One request, read and checked."""

    state: ApiState
    identity: Identity
    request: Request
    path: Mapping[str, Any] = field(default_factory=dict)
    query: Any = None
    body: Any = None

    @property
    def database(self) -> Database:
        return self.state.jobs.database
