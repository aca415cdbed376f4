"""Following run directories: every line counts once, whatever happens to the service."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from testing.cluster.waiting import wait_until
from tests.jobs.reports.test_foreign_metrics import EVENTS

from weft.jobs.reports.fanout import PointFanout
from weft.jobs.reports.tailer import Tailer
from weft.jobs.reports.tails import NewPieces
from weft.jobs.spec.model import JobSpec, JsonLinesSource, MetricSource, RegexSource, TensorboardSource
from weft.jobs.store import tables
from weft.jobs.store.database import Database
from weft.jobs.store.events import events_after
from weft.jobs.store.metrics import history, summaries

pytestmark = pytest.mark.xdist_group("databases")


def spec(*sources: MetricSource) -> JobSpec:
    return JobSpec(run="train.py", metrics=sources)


def append(path: Path, *lines: object) -> None:
    with path.open("a") as file:
        for line in lines:
            file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")


def points_of(database: Database, name: str) -> list[tuple[int, float]]:
    columns = database.ask(lambda c: history(c, 1, name, most=10**6))
    return list(zip(columns.steps.tolist(), columns.values.tolist(), strict=True))


async def follow(database: Database, run_dir: Path, wanted: JobSpec, *, attempt: int = 1) -> None:
    """Follow a run directory that is complete already, to its end."""
    tailer = Tailer(database, PointFanout())
    async with tailer.running():
        tailer.follow(1, attempt, run_dir, wanted)
        await tailer.stop(1)


def test_what_ranks_log_is_stored_and_told(job_store: Database, run_dir: Path) -> None:
    async def watch() -> list[Any]:
        points = PointFanout()
        tailer = Tailer(job_store, points)
        async with tailer.running():
            watcher = points.subscribe(1)
            waiting = asyncio.ensure_future(anext(watcher))
            tailer.follow(1, 1, run_dir, spec())
            tailer.follow(1, 1, run_dir, spec())
            await asyncio.sleep(0)
            append(run_dir / "metrics" / "rank-0.jsonl", [5, 0, {"loss": 0.5}], [6, 1, {"loss": "NaN"}])
            batch = await asyncio.wait_for(waiting, 30)
            append(run_dir / "metrics" / "rank-3.jsonl", [7, 1, {"loss": 9.0}], [8, 2, {"loss": 3}, 0])
            append(run_dir / "metrics" / "rank-0.jsonl", [9, None, {"progress": 0.25, "text": "epoch 1"}])
            await tailer.stop(1)
            await watcher.aclose()  # type: ignore[attr-defined]
        return batch["loss"]

    told = asyncio.run(watch())
    assert told[0] == (0, 5, 0.5)
    assert str(points_of(job_store, "loss")) == "[(0, 0.5), (1, nan), (2, 3.0)]"
    assert points_of(job_store, "loss@3") == [(1, 9.0)]
    assert job_store.ask(lambda c: c.scalar(sa.select(tables.job.c.progress))) == 0.25
    events = job_store.ask(lambda c: events_after(c, 0))
    assert [(event.topic, event.kind) for event in events] == [("jobs", "changed"), ("job:1", "note")]
    assert events[1].data["text"] == "epoch 1"


def test_lines_that_cannot_be_read_cost_only_themselves(job_store: Database, run_dir: Path) -> None:
    append(
        run_dir / "metrics" / "rank-0.jsonl",
        [1, 0, {"loss": 1.0}],
        '[1,2,{"lo',
        "[]",
        [1, 2**70, {"loss": 1.0}],
        [1, 1, {"loss": "high", "rate": 0.1}],
        "",
        [2, 2, {"loss": 2.0}],
    )
    with (run_dir / "metrics" / "rank-0.jsonl").open("ab") as file:
        file.write(b'[3,3,{"loss":3.0}]\n\xff\xfe\n[4,4,{"loss":4.0}]\n[5,5,{"loss"')
    asyncio.run(follow(job_store, run_dir, spec()))
    assert points_of(job_store, "loss") == [(0, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert points_of(job_store, "rate") == [(1, 0.1)]


def test_a_line_is_read_when_it_is_whole(job_store: Database, run_dir: Path) -> None:
    path = run_dir / "metrics" / "rank-0.jsonl"

    async def watch() -> None:
        tailer = Tailer(job_store, PointFanout())
        async with tailer.running():
            tailer.follow(1, 1, run_dir, spec())
            for piece in ('[1,0,{"loss":1.0}]\n[2,1,{"l', 'oss":2.0}', "]\n"):
                with path.open("a") as file:
                    file.write(piece)
                await asyncio.sleep(0.15)
            await tailer.stop(1)

    asyncio.run(watch())
    assert points_of(job_store, "loss") == [(0, 1.0), (1, 2.0)]


def test_following_again_adds_nothing(job_store: Database, run_dir: Path) -> None:
    path = run_dir / "metrics" / "rank-0.jsonl"
    for turn in range(3):
        append(path, *([turn, turn * 10 + step, {"loss": float(step)}] for step in range(10)))
        asyncio.run(follow(job_store, run_dir, spec()))
    assert [step for step, _ in points_of(job_store, "loss")] == list(range(30))
    # Another attempt has files of its own.
    asyncio.run(follow(job_store, run_dir, spec(), attempt=2))
    assert len(points_of(job_store, "loss")) == 60


def test_two_services_that_follow_one_job_store_it_once(job_store: Database, run_dir: Path) -> None:
    async def both() -> None:
        tailers = [Tailer(job_store, PointFanout()) for _ in range(2)]
        async with tailers[0].running(), tailers[1].running():
            for tailer in tailers:
                tailer.follow(1, 1, run_dir, spec())
            for step in range(60):
                append(run_dir / "metrics" / "rank-0.jsonl", [step, step, {"loss": 1.0}])
                await asyncio.sleep(0.01)
            for tailer in tailers:
                await tailer.stop(1)

    asyncio.run(both())
    assert sorted(step for step, _ in points_of(job_store, "loss")) == list(range(60))


def test_a_database_that_is_away_costs_time_alone(
    job_store: Database, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.jobs.reports import tailer as module

    calls = []

    def failing(*given: Any) -> Callable[..., Any]:
        def work(connection: sa.Connection) -> Any:
            calls.append(given)
            if len(calls) < 3:
                raise sa.exc.OperationalError("", {}, Exception("away"))
            return NewPieces(*given)(connection)

        return work

    monkeypatch.setattr(module, "NewPieces", failing)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    append(run_dir / "metrics" / "rank-0.jsonl", *([0, step, {"loss": 1.0}] for step in range(5)))

    async def watch() -> None:
        tailer = Tailer(job_store, PointFanout())
        async with tailer.running():
            tailer.follow(1, 1, run_dir, spec())
            while len(calls) < 3:
                await asyncio.sleep(0.01)
            await tailer.stop(1)

    asyncio.run(watch())
    assert [step for step, _ in points_of(job_store, "loss")] == list(range(5))


def test_output_lines_that_match_are_points(job_store: Database, run_dir: Path) -> None:
    pattern = RegexSource(pattern=r"(?:step (?P<step>\d+) )?loss=(?P<loss>\S+)(?: acc=(?P<acc>[\d.]+)%)?")
    append(run_dir / "rank-0.log", "hello", "step 10 loss=0.5 acc=12%", "loss=nan", "loss=high")
    with (run_dir / "rank-0.log").open("ab") as file:
        file.write(b"\xff 10%\rstep 12 loss=0.25,\r\nstep 14 loss=0.125")  # a bar, and no end of line
    append(run_dir / "rank-1.log", "step 10 loss=7")
    asyncio.run(follow(job_store, run_dir, spec(pattern)))
    assert str(points_of(job_store, "loss")) == "[(10, 0.5), (1, nan), (12, 0.25), (14, 0.125)]"
    assert points_of(job_store, "acc") == [(10, 12.0)]
    assert points_of(job_store, "loss@1") == [(10, 7.0)]


def test_files_of_json_lines_are_points(job_store: Database, run_dir: Path) -> None:
    path = run_dir.parent / "code" / "out" / "log.jsonl"
    path.parent.mkdir()
    append(path, {"step": 3, "train": {"loss": 0.5}, "name": "x", "done": True, "timestamp": 1700000000.5})
    append(path, {"loss": "NaN"}, [1])
    asyncio.run(follow(job_store, run_dir, spec(JsonLinesSource(path="out/log.jsonl"))))
    assert [one.name for one in job_store.ask(lambda c: summaries(c, 1))] == ["loss", "train/loss"]
    assert job_store.ask(lambda c: history(c, 1, "train/loss")).times_ms.tolist() == [1700000000500]
    path.write_text(json.dumps({"step": 1, "train": {"loss": 0.1}}) + "\n")  # written anew, and shorter
    asyncio.run(follow(job_store, run_dir, spec(JsonLinesSource(path="out/log.jsonl"))))
    assert points_of(job_store, "train/loss") == [(3, 0.5), (1, 0.1)]


def test_event_files_of_tensorboard_are_followed(job_store: Database, run_dir: Path) -> None:
    data = zlib.decompress(base64.b85decode(EVENTS))
    for group in ("", "val"):
        folder = run_dir.parent / "code" / "runs" / group
        folder.mkdir(exist_ok=True)
        (folder / "events.out.tfevents.1.host").write_bytes(data)
    asyncio.run(follow(job_store, run_dir, spec(TensorboardSource(folder="runs"))))
    assert points_of(job_store, "loss") == [(0, 0.5), (1, 0.25)]
    assert points_of(job_store, "val/loss") == [(0, 0.5), (1, 0.25)]


def test_what_a_run_uses_of_its_hosts_is_kept(job_store: Database, run_dir: Path) -> None:
    path = run_dir / "metrics" / "system.jsonl"
    append(path, [5000, {"a": {"cpu": 0.5, "memory_bytes": 100.0}}])
    append(path, [7000, {"a": {"cpu": 0.5, "memory_bytes": 100.0}, "b": {"cpu": 1.0, "memory_bytes": 50.0}}])
    append(path, "[7000]")
    asyncio.run(follow(job_store, run_dir, spec()))
    assert points_of(job_store, "system/cpu") == [(5, 0.5), (7, 0.75)]
    assert points_of(job_store, "system/memory_bytes") == [(5, 100.0), (7, 150.0)]
    assert points_of(job_store, "system/cpu@b") == [(7, 1.0)]


SERVICE = """
import asyncio, sys
from pathlib import Path
from weft.jobs.reports.fanout import PointFanout
from weft.jobs.reports.tailer import Tailer
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.database import Database

async def main():
    tailer = Tailer(Database.open(sys.argv[1]), PointFanout())
    async with tailer.running():
        tailer.follow(1, 1, Path(sys.argv[2]), JobSpec(run="x"))
        print("follows", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_service_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, run_dir: Path) -> None:
    from tests.jobs.reports.conftest import make_job

    address = f"sqlite:///{tmp_path}/weft.db"
    database = Database.open(address)
    database.submit(make_job).result()
    chance = random.Random(1)
    written = 0
    for _ in range(4):
        service = subprocess.Popen(
            [sys.executable, "-c", SERVICE, address, str(run_dir)], stdout=subprocess.PIPE
        )
        assert service.stdout is not None
        service.stdout.readline()
        for _ in range(chance.randrange(20, 60)):
            for rank in (0, 1):
                append(run_dir / "metrics" / f"rank-{rank}.jsonl", [written, written, {"loss": 1.0}])
            written += 1
            os.sched_yield()
        reached = chance.randrange(max(1, written // 2), written)
        wait_until(lambda low=reached: len(points_of(database, "loss")) >= low, "points", 30)  # type: ignore[misc]
        service.send_signal(signal.SIGKILL)
        service.wait()
        service.stdout.close()
    asyncio.run(follow(database, run_dir, spec()))
    for name in ("loss", "loss@1"):
        assert [step for step, _ in points_of(database, name)] == list(range(written))
    database.close()
