from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from testing.jobs.desk import Desk, Tell

from weft.errors import ConnectError
from weft.jobs.lifecycle import StateError
from weft.jobs.service import hosts as service_hosts
from weft.jobs.service import service as service_module
from weft.jobs.store.hosts import HostNotFound, StoredHost, list_hosts
from weft.topology.detect import detect
from weft.topology.host import Host


async def host(desk: Desk, name: str) -> StoredHost:
    (found,) = [found for found in await desk.service.database.read(list_hosts) if found.name == name]
    return found


async def until_state(desk: Desk, name: str, state: str) -> StoredHost:
    async with asyncio.timeout(20):
        while (found := await host(desk, name)).state != state:
            await asyncio.sleep(0.02)
    return found


def test_a_host_that_does_not_answer_is_lost_until_it_does(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    reachable = True

    def survey(name: str) -> Host:
        if not reachable:
            raise ConnectError(f"{name}: no route to host")
        return replace(detect(), name=name)

    monkeypatch.setattr(service_module, "survey_host", survey)
    monkeypatch.setattr(service_hosts, "survey_host", survey)

    async def story(desk: Desk) -> None:
        nonlocal reachable
        await desk.service.add_host("far", labels=["fast"], rack="r1")
        found = await host(desk, "far")
        assert (found.state, found.labels, found.rack) == ("up", frozenset({"fast"}), "r1")
        reachable = False
        found = await until_state(desk, "far", "lost")
        assert found.message == "far: no route to host"
        waiting = await desk.submit(spec="resources: {hosts: fast}")  # it may come back
        await desk.until(waiting, lambda _: desk.service.reason(waiting) is not None)
        reason = desk.service.reason(waiting)
        assert reason is not None
        assert "none is open with fast" in reason.text
        await desk.act(waiting, "stop")
        reachable = True
        assert (await until_state(desk, "far", "up")).message is None
        await desk.service.set_labels("far", ["slow"])
        assert (await host(desk, "far")).labels == {"slow"}
        await desk.service.remove_host("far")
        with pytest.raises(HostNotFound, match=r"got 'far'; there is "):
            await desk.service.drain("far")

    tell(story, look_at_hosts_s=0.1)


def test_this_machine_is_one_host_whatever_it_is_called(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        await desk.service.add_host("localhost", labels=["here"])
        (only,) = await desk.service.database.read(list_hosts)
        assert (only.name, set(only.labels)) == (desk.service.host, {"here"})

    tell(story)


def test_a_drained_host_takes_nothing_new_and_one_with_jobs_stays(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        here = desk.service.host
        running = await desk.submit("import time; time.sleep(600)")
        await desk.reach(running, {"running"})
        await desk.service.drain(here)
        waiting = await desk.submit()
        with pytest.raises(StateError, match="drain it first"):
            await desk.service.remove_host(here)
        await desk.until(waiting, lambda _: desk.service.reason(waiting) is not None)
        assert (await desk.job(waiting)).state == "queued"
        await desk.service.undrain(here)
        assert (await desk.reach(waiting)).state == "completed"
        await desk.act(running, "stop")
        await desk.reach(running)

    tell(story)


def test_what_users_hold_is_added_up_for_the_fair_share(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        number = await desk.submit("import time; time.sleep(600)")
        scheduler = desk.service.dispatcher.cluster.scheduler
        async with asyncio.timeout(30):
            while scheduler.usage.get("ann", 0.0) <= 0.0:
                await asyncio.sleep(0.02)
        assert scheduler.usage["ann"] < 1.0
        assert "bob" not in scheduler.usage
        await desk.act(number, "stop")
        await desk.reach(number)

    tell(story, account_s=0.1)
