"""Deployments: models that the service serves, each by a `weft serve` of its own on a port of this machine.

A deployment is an alias in the model store, `deployment-NAME`, and a server that follows it. Another version, or the
one before, is another meaning of the alias, which the server takes up without losing a request. A server that ends is
started again, later after each time; servers go on while the service is away, and are found again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.errors import ModelError, UsageError
from weft.files import write_whole
from weft.jobs.data.deployment_records import (
    Deployment,
    DeploymentCanary,
    add_deployment,
    all_deployments,
    change_deployment,
)
from weft.jobs.data.servers import DeploymentServers
from weft.jobs.data.serving import ServingFigures, figures_by_version, parse_figures
from weft.jobs.service.attempts.processes import started_ticks
from weft.jobs.service.attempts.system_user import SystemUser
from weft.jobs.store.data_tables import deployment
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_audit, add_event, now_ms
from weft.serve.store import Store

LONGEST_WAIT_S = 60.0  # between two starts of a server that ends
READY_S = 60.0  # in which a server must answer
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")


RunAs = Callable[[int, str], Awaitable[SystemUser | None]]  # of an account: its number and name


async def _as_the_service(user_id: int, user_name: str) -> SystemUser | None:
    return None


class DeploymentNotFound(UsageError, LookupError):  # noqa: N818  (the name of the answer: 404)
    """A deployment that is not there."""


class Deployments:
    """The deployments of a service; `look` keeps their servers as they should be."""

    def __init__(self, database: Database, folder: Path, store: Store) -> None:
        self._database, self._folder, self._store = database, folder, store
        self.run_as: RunAs = _as_the_service  # whom a user's own code runs as
        self._failures: dict[int, int] = {}
        self._not_before: dict[int, float] = {}
        self._servers = DeploymentServers(folder, store)
        self._changing = asyncio.Lock()

    # -- what people ask for ------------------------------------------------------------------------------------------

    async def deploy(self, name: str, reference: str, *, user_id: int, user_name: str) -> Deployment:
        """Serve a version of a model under a name, or another version under a name that is there."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"a deployment's name must be letters, digits, dashes and underscores, got {name[:60]!r}"
            )
        entry = await asyncio.to_thread(self._store.resolve, reference)
        async with self._changing:
            known = await self._find(name)
            if known is not None and known.model != entry.name:
                raise UsageError(
                    f"{name} must stay with the model {known.model}, got {entry.name}; use another name"
                )
            await asyncio.to_thread(self._store.tag, f"{entry.name}@{entry.version}", f"deployment-{name}")
            if known is None:
                await self._database.write(
                    lambda c: add_deployment(c, name, entry.name, entry.version, user_id)
                )
            else:
                await self._turn_to(known, entry.version, (*known.previous, known.version))
        await self._note(user_name, "deploy", name, f"{entry.name}@{entry.version}")
        return await self.find(name)

    async def roll_back(self, name: str, *, user_name: str) -> Deployment:
        """Serve the version that was served before."""
        async with self._changing:
            known = await self.find(name)
            if not known.previous:
                raise UsageError(f"{name} must have served another version before, got none; deploy one")
            version = known.previous[-1]
            await asyncio.to_thread(self._store.tag, f"{known.model}@{version}", known.alias)
            await self._turn_to(known, version, known.previous[:-1])
        await self._note(user_name, "roll back", name, f"{known.model}@{version}")
        return await self.find(name)

    async def set_canary(
        self, name: str, version: int | None, percent: float, *, user_name: str
    ) -> Deployment:
        """Let another version answer a share of the requests, or none; the server must run."""
        async with self._changing:
            known = await self.find(name)
            if version is not None:
                await asyncio.to_thread(self._store.resolve, f"{known.model}@{version}")
            wanted = DeploymentCanary(version, percent) if version is not None else None
            await self._send_canary(known, wanted)
            if wanted is None:
                self._canary_file(known).unlink(missing_ok=True)
            else:
                write_whole(self._canary_file(known), msgspec.json.encode(wanted))
        shown = f"{percent:g} % to version {version}" if version is not None else "none"
        await self._note(user_name, "canary", name, shown)
        return await self.find(name)

    async def _send_canary(self, known: Deployment, wanted: DeploymentCanary | None) -> None:
        body = {"canary": str(wanted.version), "percent": wanted.percent} if wanted is not None else {}
        path = f"/v2/repository/models/{known.model}/traffic"
        answer = await self.forward(known, "POST", path, msgspec.json.encode(body))
        if answer is None:
            raise UsageError(f"{known.name} must be running to have a canary, got one that is {known.state}")
        if answer[0] != 200:
            raise UsageError(
                f"{known.name} must take the canary, got: {answer[1][:300].decode(errors='replace')}"
            )

    async def _turn_to(self, known: Deployment, version: int, previous: tuple[int, ...]) -> None:
        if version == known.version and known.state in ("starting", "running"):
            return
        follows = known.state == "running" and known.is_alive
        if follows and any(self._is_custom(known, one) for one in (known.version, version)):
            follows = False  # such a server has one version for its life
            await self._servers.end(known)
            await self._change(known.id, port=None, pid=None, pid_started=None)
        state = "running" if follows else "starting"
        kept = msgspec.json.encode([one for one in previous if one != version][-50:]).decode()
        self._not_before.pop(known.id, None)
        await self._change(known.id, version=version, previous=kept, state=state, message=None)

    async def stop(self, name: str, *, user_name: str) -> Deployment:
        """End the server of a deployment; `deploy` starts it again."""
        async with self._changing:
            known = await self.find(name)
            await self._servers.end(known)
            await self._change(known.id, state="stopped", message=None, port=None, pid=None, pid_started=None)
        await self._note(user_name, "stop deployment", name, "")
        return await self.find(name)

    async def remove(self, name: str, *, user_name: str) -> None:
        """End a deployment and forget it."""
        async with self._changing:
            known = await self.find(name)
            await self._servers.end(known)
            with suppress(ModelError):
                await asyncio.to_thread(self._store.untag, f"{known.model}@{known.alias}")
            await self._database.write(
                lambda c: c.execute(sa.delete(deployment).where(deployment.c.id == known.id))
            )
        await self._note(user_name, "remove deployment", name, "")

    async def _note(self, user_name: str, action: str, name: str, detail: str) -> None:
        def write(connection: sa.Connection) -> None:
            add_event(connection, "deployments", "changed", name=name)
            add_audit(connection, user_name, action, name, model=detail)

        await self._database.write(write)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def all(self) -> tuple[Deployment, ...]:
        return await self._database.read(all_deployments)

    async def _find(self, name: str) -> Deployment | None:
        return next((one for one in await self.all() if one.name == name), None)

    async def find(self, name: str) -> Deployment:
        found = await self._find(name)
        if found is None:
            raise DeploymentNotFound(f"a deployment must be there, got {name[:80]!r}; see GET /deployments")
        return found

    async def figures(self, known: Deployment) -> tuple[ServingFigures | None, dict[int, ServingFigures]]:
        """Return load and latency of a deployment, and of each version it has loaded; None while it does not answer."""
        answer = await self.ask(known, "GET", "/metrics")
        if answer is None:
            return None, {}
        return parse_figures(answer.decode()), figures_by_version(answer.decode())

    def canary(self, known: Deployment) -> DeploymentCanary | None:
        """Return the canary of a deployment; None if it has none."""
        try:
            return msgspec.json.decode(self._canary_file(known).read_bytes(), type=DeploymentCanary)
        except (OSError, msgspec.MsgspecError):
            return None

    async def ask(self, known: Deployment, method: str, path: str, body: bytes = b"") -> bytes | None:
        """Return the server's answer to a request; None where there is no server."""
        found = await self.forward(known, method, path, body)
        return found[1] if found is not None and found[0] == 200 else None

    async def forward(
        self, known: Deployment, method: str, path: str, body: bytes = b"", *, kind: str = "application/json"
    ) -> tuple[int, bytes] | None:
        """Hand a request to the server, and return its status and answer; `kind` is the body's media type."""
        import httpx

        if known.port is None:
            return None
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
                answer = await client.request(
                    method, f"http://127.0.0.1:{known.port}{path}", content=body,
                    headers={"Content-Type": kind},
                )  # fmt: skip
        except httpx.HTTPError:
            return None
        return answer.status_code, answer.content

    # -- keeping servers ----------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Start servers that should run and do not, and see which ones answer."""
        async with self._changing:
            for known in await self.all():
                if known.state in ("starting", "running", "failed"):
                    await self._look_at(known)

    async def _look_at(self, known: Deployment) -> None:
        self._servers.reap(known)
        if not known.is_alive:
            await self._start(known)
        elif known.state == "starting":
            port = await self._servers.port(known)
            if port is not None:
                self._failures.pop(known.id, None)
                if (canary := self.canary(known)) is not None:  # the server before had one
                    with suppress(UsageError):
                        await self._send_canary(replace(known, port=port), canary)
                await self._change(known.id, state="running", port=port, message=None)
            elif now_ms() - known.changed_ms > READY_S * 1000:
                await self._servers.end(known)

    async def _start(self, known: Deployment) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._not_before.get(known.id, 0.0):
            return
        if known.pid is not None:  # it ran and has ended
            failures = self._failures[known.id] = self._failures.get(known.id, 0) + 1
            self._not_before[known.id] = now + min(LONGEST_WAIT_S, 2.0**failures)
            words = await self._servers.last_words(known)
            message = f"its server ended: {words}" if words else "its server ended; it is started again"
            await self._change(
                known.id, state="failed", message=message, port=None, pid=None, pid_started=None
            )
            return
        try:
            user = await self.run_as(known.user_id, known.user_name)
            pid = await self._servers.start(known, user)
        except (UsageError, ModelError) as error:
            self._not_before[known.id] = now + LONGEST_WAIT_S
            await self._change(known.id, state="failed", message=str(error))
            return
        await self._change(known.id, state="starting", pid=pid, pid_started=started_ticks(pid), port=None)

    def _is_custom(self, known: Deployment, version: int) -> bool:
        """Return whether a version is a user's own code."""
        try:
            return self._store.resolve(f"{known.model}@{version}").is_custom
        except ModelError:
            return False

    def _canary_file(self, known: Deployment) -> Path:
        return self._folder / str(known.id) / "canary.json"

    async def _change(self, number: int, **values: Any) -> None:
        await self._database.write(lambda c: change_deployment(c, number, **values))
