"""Several services on one database: one decides, another takes over, and the former changes nothing any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from testing.jobs.desk import PATIENCE_S, Desk, add_users, desk_on

from weft.jobs.service.attempts.processes import boot_id
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.lease import LeaseLost, give_up, new_holder, take
from weft.jobs.service.service import JobService
from weft.jobs.store.database import Database
from weft.jobs.store.tables import lease

pytestmark = pytest.mark.xdist_group("databases")  # a server is started for them
ELSEWHERE = "other-machine:1:1:x"  # of whom nobody here can tell whether it lives


def test_the_lease_has_one_holder_and_a_new_epoch_for_each(database: Database) -> None:
    first = database.submit(lambda c: take(c, ELSEWHERE)).result()
    assert first is not None
    assert database.submit(lambda c: take(c, new_holder())).result() is None
    assert database.submit(lambda c: take(c, ELSEWHERE)).result() == first
    database.submit(first.check).result()
    database.submit(lambda c: give_up(c, ELSEWHERE)).result()
    second = database.submit(lambda c: take(c, new_holder())).result()
    assert second is not None
    assert second.epoch == first.epoch + 1
    with pytest.raises(LeaseLost):
        database.submit(first.check).result()
    database.submit(second.check).result()


def test_a_lease_ends_by_the_databases_clock_or_with_its_process(database: Database) -> None:
    database.submit(lambda c: take(c, ELSEWHERE, lease_ms=1)).result()
    assert database.submit(lambda c: take(c, "third-machine:1:1:y")).result() is not None
    dead = f"{boot_id()}:4194399:7:z"  # of this machine, and gone
    database.submit(lambda c: c.execute(sa.update(lease).values(holder=dead, until_ms=1 << 60))).result()
    assert database.submit(lambda c: take(c, new_holder())).result() is not None


def test_of_two_services_one_decides_and_the_other_takes_over(address: str, tmp_path: Path) -> None:
    async def story(one: Database, other: Database) -> None:
        # Leases that a busy machine renews in time: the first one's is ended by the test alone.
        async with desk_on(one, tmp_path, lease_s=60.0) as desk:
            await desk.reach(await desk.submit())
            standby = JobService(ServiceConfig(folder=tmp_path / "data", tick_s=0.1, lease_s=60.0), other)
            async with standby.running():
                number = await desk.submit("import time; time.sleep(1)")
                await desk.reach(number, {"running"})
                assert (desk.service.dispatcher.leading, standby.dispatcher.leading) == (True, False)
                former = desk.service.attempts.lease
                assert former is not None
                # The first one's lease runs out, each time that it is renewed, until the other one has it.
                async with asyncio.timeout(PATIENCE_S):
                    while not standby.dispatcher.leading:
                        await one.write(lambda c: give_up(c, former.holder))
                        await asyncio.sleep(0.02)
                seen = Desk(standby, tmp_path, scripts=10)
                assert (await seen.reach(number)).state == "completed"
                later = await seen.submit()
                job = await seen.reach(later)
                assert (job.state, job.attempt) == ("completed", 1)
                with pytest.raises(LeaseLost):
                    await one.write(former.check)

    one, other = Database.open(address), Database.open(address)
    try:
        add_users(one)
        asyncio.run(story(one, other))
    finally:
        one.close()
        other.close()
