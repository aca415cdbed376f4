from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from testing.jobs.desk import Desk, Tell

from weft.jobs.store.database import Database

WAITS = """
import os, time
from pathlib import Path
outputs = Path(os.environ["WEFT_OUTPUTS"])
(outputs / "there").write_text("yes")
while not (outputs / "go").exists():
    time.sleep(0.02)
"""


def test_jobs_go_on_while_the_disk_is_full_and_the_service_says_so(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = False
    write = Database._write

    def on_a_disk(self: Database, batch: Any) -> None:
        if not full:
            write(self, batch)
            return
        for _, result in batch:
            result.set_exception(sa.exc.OperationalError("COMMIT", None, OSError("database or disk is full")))

    monkeypatch.setattr(Database, "_write", on_a_disk)

    async def story(desk: Desk) -> None:
        nonlocal full
        number = await desk.submit(WAITS)
        await desk.appears(desk.path(number, "outputs", "there"))
        await desk.reach(number, {"running"})
        assert desk.service.troubles() == ()
        full = True
        async with asyncio.timeout(20):
            while not any("database or disk is full" in text for text in desk.service.troubles()):
                await asyncio.sleep(0.02)
        desk.path(number, "outputs", "go").touch()
        await desk.appears(desk.path(number, "run", "outcome.json"))
        full = False
        job = await desk.reach(number)
        assert (job.state, job.attempt) == ("completed", 1)
        assert await desk.states(number) == ["staging", "starting", "running", "storing", "completed"]
        await desk.until(number, lambda _: desk.service.troubles() == ())

    tell(story)


def test_a_disk_with_little_room_is_said(tell: Tell) -> None:
    async def story(desk: Desk) -> None:
        (text,) = desk.service.troubles()
        assert "is almost full" in text

    tell(story, low_disk_bytes=1 << 60)
