"""Logging in, keys, and what the system says of itself: tokens, api-keys, system, bgtasks, events."""

from __future__ import annotations

import asyncio
import base64
import platform
from collections.abc import AsyncIterator

import msgspec
import sqlalchemy as sa
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

import weft
from weft.jobs.accounts.tokens import make_token
from weft.jobs.doors.access import Caller, DoorError
from weft.jobs.doors.powerai.answers import job_task_json, task_json
from weft.jobs.doors.powerai.base import PowerAiPart, body_of, both, json_answer, seen_as, success, text_of
from weft.jobs.doors.powerai.identities import plain_id
from weft.jobs.store.events import events_after, newest_event, now_ms
from weft.jobs.store.listing import JobFilter, list_jobs
from weft.jobs.store.tables import token
from weft.jobs.vision.trainings import LABELLING, TAG

LOGIN_MS = 24 * 3600 * 1000  # for which a login's token is valid
KEY_NAME = "powerai api key"
POLL_S = 0.5  # between two looks for events
BEAT_S = 15.0
_OPEN = ("waiting", "preparing", "working")


class SessionPart(PowerAiPart):
    """Tokens and the state of the system."""

    def routes(self) -> list[BaseRoute]:
        return [
            *both("/tokens", {"POST": self.log_in}),
            *both("/api-keys", {"GET": self.show_key, "POST": self.make_key, "DELETE": self.drop_key}),
            *both("/system", {"GET": self.system}),
            *both("/system/device-info", {"GET": self.devices}),
            *both("/version-info", {"GET": self.version}),
            *both("/connections/devices", {"GET": self.connections}),
            *both("/bgtasks", {"GET": self.tasks}),
            *both("/bgtasks/{task}", {"GET": self.task, "DELETE": self.stop_task}),
            *both("/events", {"GET": self.events}),
        ]

    async def log_in(self, request: Request) -> Response:
        """Give a token for a name and a password."""
        body = await body_of(request)
        if body.get("grant_type", "password") != "password":
            raise DoorError("bad", "grant_type must be password, got another")
        name, password = text_of(body, "username"), text_of(body, "password")
        scope = {**request.scope, "headers": [(b"authorization", _basic(name, password))]}
        scope["headers"] += [one for one in request.scope["headers"] if one[0] != b"authorization"]
        caller = await self._ask(HTTPConnection(scope))
        text = await self._token(caller, "powerai login", now_ms() + LOGIN_MS)
        return success(token=text)

    async def _token(self, caller: Caller, name: str, expires_ms: int | None) -> str:
        scopes = ("read",) if caller.role == "viewer" else ("read", "write")
        return await self._database.write(
            lambda c: make_token(
                c, caller.user_id, kind="api", name=name, scopes=scopes, expires_ms=expires_ms
            )
        )

    async def show_key(self, request: Request) -> Response:
        """Tell whether there is a key; its text was shown once."""
        caller = await self.caller(request)
        found = await self._database.read(
            lambda c: c.execute(sa.select(token.c.id).where(_keys(caller))).all()
        )
        return success(api_key="*" * 8 if found else None, created=bool(found))

    async def make_key(self, request: Request) -> Response:
        """Make the caller's key; one that was there is revoked."""
        caller = await self.caller(request)
        await self._database.write(lambda c: c.execute(sa.delete(token).where(_keys(caller))))
        return success(201, api_key=await self._token(caller, KEY_NAME, None))

    async def drop_key(self, request: Request) -> Response:
        caller = await self.caller(request)
        await self._database.write(lambda c: c.execute(sa.delete(token).where(_keys(caller))))
        return success()

    async def system(self, request: Request) -> Response:
        await self.caller(request)
        hosts = self.service.dispatcher.cluster.hosts
        gpus = sum(host.total.gpus for host in hosts.values())
        return success(system_name="weft", total_gpus=gpus, platform=platform.machine())

    async def devices(self, request: Request) -> Response:
        """Tell the accelerators of all hosts."""
        await self.caller(request)
        hosts = self.service.dispatcher.cluster.hosts
        shown = [{"host": name, "gpus": host.total.gpus} for name, host in sorted(hosts.items())]
        return success(totalGPUs=sum(host.total.gpus for host in hosts.values()), devices=shown)

    async def connections(self, request: Request) -> Response:
        """List the devices that models are sent to: none, for there is no service for them here."""
        await self.caller(request)
        return json_answer([])

    async def version(self, request: Request) -> Response:
        return json_answer({"version": weft.__version__, "product": "weft", "result": "success"})

    # -- background work ----------------------------------------------------------------------------------------------

    async def tasks(self, request: Request) -> Response:
        """List background work: on data sets, and automatic labellings."""
        caller = await self.caller(request)
        found = await self.library(lambda library: library.tasks(seen_as(caller)))
        wanted = JobFilter(text=f"{TAG}={LABELLING}", visible_to=caller.visible_to)
        jobs = (await self._database.read(lambda c: list_jobs(c, wanted, most=200))).jobs
        listed = [*map(task_json, found), *map(job_task_json, jobs)]
        if request.query_params.get("status") == "active":
            listed = [one for one in listed if one["status"] in _OPEN]
        return json_answer(
            {"task_list": sorted(listed, key=lambda one: -one["created_at"]), "result": "success"}
        )

    async def task(self, request: Request) -> Response:
        caller, number = await self.caller(request), plain_id(request.path_params["task"])
        return json_answer(
            task_json(await self.library(lambda library: library.task(number, seen_as(caller))))
        )

    async def stop_task(self, request: Request) -> Response:
        caller, number = await self.caller(request, writes=True), plain_id(request.path_params["task"])

        def stop(library: object) -> None:
            from weft.vision.library.tasks import stop_task

            known = self.service.trainings.library.task(number, seen_as(caller))
            stop_task(self.service.trainings.library.store, known.id)

        await self.library(stop)
        return success()

    # -- events -------------------------------------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        """Tell of changes as they happen: server-sent events with JSON."""
        caller = await self.caller(request)
        last = await self._database.read(newest_event)
        return StreamingResponse(self._stream(caller, last), media_type="text/event-stream")

    async def _stream(self, caller: Caller, last: int) -> AsyncIterator[bytes]:
        quiet_s = 0.0
        topics = [f"vision:{caller.user_name}", "vision:*"]
        if caller.visible_to is None:  # else events would tell of others' jobs
            topics += ["jobs", "models", "deployments"]
        yield b": weft\n"  # one line: these clients take all that an empty line ends for an event
        while True:
            after = last
            found = await self._database.read(lambda c: events_after(c, after, topics))  # noqa: B023
            for one in found:
                last = one.id
                kind = "dltask" if one.topic == "jobs" else one.topic.partition(":")[0]
                data = msgspec.json.encode({"event_type": one.kind, "time": one.time_ms, **one.data})
                yield b"id: %d\nevent: %s\ndata: %s\n\n" % (one.id, kind.encode(), data)
            quiet_s = 0.0 if found else quiet_s + POLL_S
            if quiet_s >= BEAT_S:
                quiet_s = 0.0
                yield b": beat\n"
            await asyncio.sleep(POLL_S)


def _basic(name: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{name}:{password}".encode())


def _keys(caller: Caller) -> sa.ColumnElement[bool]:
    return (token.c.user_id == caller.user_id) & (token.c.name == KEY_NAME)
