"""The live stream: events as they happen, resumed after an interruption, points, beats, and slow readers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from testing.cluster.waiting import wait_until
from testing.jobs.web import WebService
from tests.jobs.api.conftest import StartWeb
from tests.jobs.api.test_jobs_routes import submit

from weft.jobs.api.stream.hub import StreamHub
from weft.jobs.api.stream.watcher import MOST_WAITING, RESYNC, Watcher
from weft.jobs.reports.fanout import PointFanout
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event


class Message(dict[str, Any]):
    """One message of the stream: id, event and data."""


@contextmanager
def listening(client: httpx.Client, topics: str, **headers: str) -> Iterator[Iterator[Message]]:
    with client.stream("GET", "/stream", params={"topics": topics}, headers=headers, timeout=120) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        yield _messages(answer)


def _messages(answer: httpx.Response) -> Iterator[Message]:
    found = Message()
    for line in answer.iter_lines():
        if not line:
            if found:
                yield found
            found = Message()
            continue
        name, _, value = line.partition(": ")
        found[name or "comment"] = json.loads(value) if name == "data" else value


def test_events_come_as_they_happen_and_go_on_after_an_interruption(web: WebService) -> None:
    client = web.user("watcher")
    with listening(client, "jobs") as messages:
        hello = next(messages)
        assert hello["event"] == "hello"
        number = submit(client)["id"]
        told = next(messages)
        assert (told["event"], told["data"]["job"], told["data"]["topic"]) == ("submitted", number, "jobs")
        assert told["data"]["time_ms"] > 0
    client.post(f"/jobs/{number}/hold")
    client.post(f"/jobs/{number}/release")
    with listening(client, f"job:{number},jobs", **{"last-event-id": told["id"]}) as messages:
        assert next(messages)["event"] == "hello"
        missed = [next(messages) for _ in range(4)]
    states = [(one["data"]["topic"], one["data"]["state"]) for one in missed]
    assert sorted(states) == sorted(
        [("jobs", "held"), (f"job:{number}", "held"), ("jobs", "queued"), (f"job:{number}", "queued")]
    )
    ids = [int(one["id"]) for one in missed]
    assert ids == sorted(ids)
    assert ids[0] > int(told["id"])


def test_points_of_a_watched_job_come_in_batches(web: WebService) -> None:
    client = web.user("points-watcher")
    number = submit(client)["id"]
    with listening(client, f"job:{number}:metrics") as messages:
        assert next(messages)["event"] == "hello"
        points = [["loss", 1, 10, 0.5], ["loss", 2, 20, "NaN"], ["acc", 1, 10, 1]]
        client.post(f"/jobs/{number}/points", json={"source": "me", "sequence": 1, "points": points})
        told = next(messages)
    assert told["event"] == "points"
    assert "id" not in told
    assert told["data"]["job"] == number
    assert told["data"]["points"] == {"loss": [[1, 10, 0.5], [2, 20, "NaN"]], "acc": [[1, 10, 1.0]]}


def test_only_what_may_be_seen_is_told(start_web: StartWeb) -> None:
    web = start_web(shared=False)
    owner, other = web.user("owner"), web.user("other")
    with listening(other, "jobs") as messages:
        next(messages)
        submit(owner)
        mine = submit(other)["id"]
        assert next(messages)["data"]["job"] == mine
    with listening(web.admin(), "jobs") as messages:
        next(messages)
        seen = submit(owner)["id"]
        assert next(messages)["data"]["job"] == seen


def test_wrong_topics_are_refused(web: WebService) -> None:
    client = web.user("topics")
    for topics in ("", "cats", "job:x", "job:1:cats", ",".join(f"job:{n}" for n in range(200))):
        assert client.get("/stream", params={"topics": topics}).status_code == 422
    assert client.get("/stream", params={"topics": "job:99999"}).status_code == 404


def test_a_viewer_that_leaves_is_forgotten(web: WebService) -> None:
    client = web.user("leaver")
    hub = web.running.state.hub
    before = hub.watchers
    with listening(client, "jobs,hosts") as messages:
        next(messages)
        assert hub.watchers == before + 1
    wait_until(lambda: hub.watchers == before, "the viewer to be forgotten")


def test_streams_end_with_the_service(start_web: StartWeb) -> None:
    web = start_web()
    client = web.user("last")
    with listening(client, "jobs") as messages:
        next(messages)
        ended = threading.Event()

        def read() -> None:
            for _ in messages:
                pass
            ended.set()

        reader = threading.Thread(target=read)
        reader.start()
        web.loop.call_soon_threadsafe(web.running.state.hub.close)
        assert ended.wait(60)
        reader.join()


def test_a_reader_that_is_too_slow_begins_anew() -> None:
    async def slow() -> bytes:
        watcher = Watcher(["jobs"], user_id=1, visible_to=None, until_s=0)
        for number in range(MOST_WAITING + 1):
            watcher.offer(b"message %d\n" % number)
        watcher.offer(b"after\n")
        assert watcher.resyncs == 1
        return await watcher.next()

    assert asyncio.run(slow()) == RESYNC + b"after\n"


def test_a_reader_far_behind_is_told_to_begin_anew(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/weft.db")

    def many(connection: Any) -> None:
        for number in range(1100):
            add_event(connection, "jobs", "state", job=number)

    async def watch() -> bytes:
        hub = StreamHub(database, PointFanout())
        async with hub.running():
            watcher = Watcher(["jobs"], user_id=1, visible_to=None, until_s=0)
            async with hub.watching(watcher, after=3):
                return await watcher.next()

    database.submit(many).result()
    assert asyncio.run(watch()).endswith(RESYNC)
    database.close()
