"""Webhooks: told of what, signed, tried again, sent once, and to public addresses alone."""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from weft.jobs.accounts.sealing import Sealer
from weft.jobs.spec.read import read_spec, resolve
from weft.jobs.store.database import Database
from weft.jobs.store.events import StoredEvent
from weft.jobs.store.jobs import move_job, submit_job
from weft.jobs.store.tables import user
from weft.jobs.store.web_tables import delivery, webhook
from weft.jobs.webhooks.messages import TRIES, event_of, wait_ms
from weft.jobs.webhooks.sender import SendResult, WebhookSender, notify_key, post


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.open(f"sqlite:///{tmp_path}/weft.db")
    rows = [{"id": 1, "name": "ann", "role": "member", "created_ms": 0},
            {"id": 2, "name": "root", "role": "admin", "created_ms": 0},
            {"id": 3, "name": "bob", "role": "member", "created_ms": 0}]  # fmt: skip
    opened.submit(lambda c: c.execute(sa.insert(user), rows)).result()
    yield opened
    opened.close()


class Receiver:
    """Takes messages and answers with the next of some statuses."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.got: list[tuple[str, dict[str, str], str]] = []

    def __call__(self, url: str, headers: dict[str, str], body: str) -> SendResult:
        self.got.append((url, headers, body))
        status = self.answers.pop(0) if self.answers else 200
        return SendResult(status, None if status < 300 else f"answered {status}")


def hook(database: Database, sealer: Sealer, user_id: int, **more: Any) -> int:
    row = {"user_id": user_id, "url": f"https://hook/{user_id}", "events": "completed,failed",
           "sealed_key": sealer.seal(f"key-{user_id}"), "created_ms": 0, **more}  # fmt: skip
    made = sa.insert(webhook).values(row).returning(webhook.c.id)
    return int(database.submit(lambda c: c.execute(made).scalar_one()).result())


def run_job(database: Database, text: str, *states: Any) -> int:
    def work(connection: sa.Connection) -> int:
        number = submit_job(connection, resolve(read_spec(text)), user_id=1, user_name="ann")
        for state in states:
            move_job(connection, number, state)
        return number

    return database.submit(work).result()


def look(sender: WebhookSender, times: int = 1) -> None:
    async def several() -> None:
        for _ in range(times):
            await sender.look()

    asyncio.run(several())


def test_owner_admin_and_specification_are_told_and_messages_are_signed(
    database: Database, tmp_path: Path
) -> None:
    sealer, receiver = Sealer(tmp_path / "key"), Receiver()
    for number in (1, 2, 3):
        hook(database, sealer, number)
    hook(database, sealer, 1, url="https://hook/other", project="other")
    hook(database, sealer, 1, url="https://hook/off", active=False)
    sender = asyncio.run(_sender(database, sealer, receiver))
    look(sender)
    spec = "run: a.py\nname: digits\nnotify: [{webhook: 'https://spec/x', on: [failed, started]}]"
    job = run_job(database, spec, "staging", "starting", "running", "failed")
    look(sender, 2)
    told = sorted((url, headers["x-weft-event"]) for url, headers, _ in receiver.got)
    assert told == [
        ("https://hook/1", "failed"),
        ("https://hook/2", "failed"),
        ("https://spec/x", "failed"),
        ("https://spec/x", "started"),
    ]
    keys = {"https://hook/1": "key-1", "https://hook/2": "key-2", "https://spec/x": notify_key(sealer, 1)}
    for url, headers, body in receiver.got:
        message = json.loads(body)
        assert (message["job"]["id"], message["job"]["user"]) == (job, "ann")
        assert message["url"] == f"http://weft/jobs/{job}"
        signed = f"{headers['x-weft-timestamp']}.{body}".encode()
        made = hmac.new(keys[url].encode(), signed, "sha256").hexdigest()
        assert headers["x-weft-signature"] == f"sha256={made}"
    look(sender)
    assert len(receiver.got) == 4  # none twice


async def _sender(database: Database, sealer: Sealer, receiver: Receiver) -> WebhookSender:
    return WebhookSender(database, sealer, root_url="http://weft", send=receiver)


def test_a_failure_is_tried_again_later_and_given_up_at_last(database: Database, tmp_path: Path) -> None:
    sealer, receiver = Sealer(tmp_path / "key"), Receiver(*[500] * 100)
    hook(database, sealer, 1)
    sender = asyncio.run(_sender(database, sealer, receiver))
    look(sender)
    run_job(database, "run: a.py", "staging", "starting", "running", "failed")
    look(sender)
    assert len(receiver.got) == 1
    look(sender)
    assert len(receiver.got) == 1  # not due yet
    for _ in range(20):
        database.submit(
            lambda c: c.execute(sa.update(delivery).where(delivery.c.state == "waiting").values(next_ms=0))
        ).result()
        look(sender)
    (row,) = database.ask(lambda c: c.execute(sa.select(delivery)).all())
    assert (row.state, row.tries, row.status, len(receiver.got)) == ("failed", TRIES, 500, TRIES)
    waits = [wait_ms(tries) for tries in range(1, TRIES)]
    assert waits == sorted(waits, key=lambda wait: wait or 0)
    assert wait_ms(TRIES) is None


def test_an_event_makes_its_deliveries_once_though_two_services_look(
    database: Database, tmp_path: Path
) -> None:
    sealer, receiver = Sealer(tmp_path / "key"), Receiver()
    hook(database, sealer, 1)

    async def both() -> None:
        senders = [await _sender(database, sealer, receiver) for _ in range(2)]
        await asyncio.gather(*(sender.look() for sender in senders))
        await asyncio.to_thread(run_job, database, "run: a.py", "staging", "starting", "running", "failed")
        for _ in range(3):
            await asyncio.gather(*(sender.look() for sender in senders))

    asyncio.run(both())
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("topic", "kind", "data", "word"),
    [
        ("jobs", "state", {"before": "running", "state": "queued"}, "retried"),
        ("jobs", "state", {"before": "held", "state": "queued"}, None),
        ("jobs", "state", {"before": "starting", "state": "running"}, "started"),
        ("job:7", "state", {"before": "starting", "state": "running"}, None),
        ("job:7", "finding", {}, "advice"),
        ("hosts", "changed", {}, None),
    ],
)
def test_words_for_events(topic: str, kind: str, data: dict[str, Any], word: str | None) -> None:
    assert event_of(StoredEvent(1, 1, topic, kind, data)) == word


@pytest.fixture
def receiving() -> Iterator[tuple[str, list[tuple[Any, bytes]]]]:
    got: list[tuple[Any, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.headers, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(302 if self.path == "/away" else 204)
            if self.path == "/away":
                self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_private_addresses_are_refused_unless_allowed(receiving: tuple[str, list[tuple[Any, bytes]]]) -> None:
    url, got = receiving
    refused = post(url, {}, "{}")
    assert refused.status is None
    assert "public address" in (refused.message or "")
    assert not got
    sent = post(url, {"x-weft-event": "hello"}, '{"a": 1}', ["127.0.0.0/8"])
    assert sent == SendResult(204, None)
    assert (got[0][0]["x-weft-event"], got[0][1]) == ("hello", b'{"a": 1}')
    away = post(f"{url}/away", {}, "{}", ["127.0.0.0/8"])
    assert (away.status, away.good) == (302, False)  # redirects are not followed
    for bad in ("http://localhost:1", "ftp://x", "http://[::1]:1", "http://169.254.169.254/", "nonsense"):
        assert not post(bad, {}, "{}").good
