"""The fan-out of new points to those who watch."""

from __future__ import annotations

import asyncio
import json
import math

from weft.jobs.reports.fanout import BATCH_S, MOST_WAITING, PointBatch, PointFanout


def test_points_come_at_once_and_then_four_times_a_second_at_most() -> None:
    async def watch() -> list[tuple[float, PointBatch]]:
        loop, fanout = asyncio.get_running_loop(), PointFanout()
        seen: list[tuple[float, PointBatch]] = []

        async def listen() -> None:
            async for batch in fanout.subscribe(7):
                seen.append((loop.time(), batch))

        task = asyncio.create_task(listen())
        await asyncio.sleep(0)
        began = loop.time()
        fanout.publish(8, {"loss": [[0, 0, 9.0]]})  # another job's
        for step in range(10):
            fanout.publish(7, {"loss": [[step, 1000, 0.5]], "acc": [[step, 1000, 0.1]]})
            await asyncio.sleep(0.01)
        while sum(len(batch["loss"]) for _, batch in seen) < 10:
            await asyncio.sleep(0.01)
        task.cancel()
        assert seen[0][0] - began < BATCH_S
        assert seen[1][0] - seen[0][0] >= BATCH_S * 0.9
        return seen

    seen = asyncio.run(watch())
    assert [row[0] for _, batch in seen for row in batch["loss"]] == list(range(10))


def test_watchers_share_one_encoding() -> None:
    async def watch() -> list[PointBatch]:
        fanout = PointFanout()
        watchers = [fanout.subscribe(1) for _ in range(3)]
        waiting = [asyncio.ensure_future(anext(watcher)) for watcher in watchers]
        await asyncio.sleep(0)
        assert fanout.watched(1)
        fanout.publish(1, {"loss": [[1, 2, math.nan], [2, 3, -math.inf]]})
        found = await asyncio.gather(*waiting)
        for watcher in watchers:
            await watcher.aclose()  # type: ignore[attr-defined]
        assert not fanout.watched(1)
        return found

    first, second, third = asyncio.run(watch())
    assert first.encoded is second.encoded is third.encoded
    assert json.loads(first.encoded) == {"loss": [[1, 2, "NaN"], [2, 3, "-Infinity"]]}


def test_a_watcher_too_slow_is_told_to_read_again() -> None:
    async def watch() -> list[PointBatch]:
        fanout = PointFanout()
        slow, quick = fanout.subscribe(1), fanout.subscribe(1)
        seen: list[PointBatch] = []

        async def listen() -> None:
            async for batch in quick:
                seen.append(batch)

        task = asyncio.create_task(listen())
        first = asyncio.ensure_future(anext(slow))
        await asyncio.sleep(0)
        for step in range(MOST_WAITING + 2):
            fanout.publish(1, {"loss": [[step, 0, 0.0]]})
            fanout._send(1)
            fanout._sent_at.clear()
            await asyncio.sleep(0)
        await first
        told = await anext(slow)
        assert told.resync
        assert not told
        fanout.publish(1, {"loss": [[99, 0, 0.0]]})
        assert [row[0] for row in (await anext(slow))["loss"]] == [99]
        task.cancel()
        return seen

    assert not any(batch.resync for batch in asyncio.run(watch()))
