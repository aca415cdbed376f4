"""Models that change under load: aliases that move, loads, unloads, canaries, shadows, broken versions."""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from testing.serving import small_models
from testing.serving.server import Server, Starter

from weft.serve.client import Client, ServerError
from weft.serve.store import Store

ROW = np.ones((1, 4), np.float32)


@dataclass
class Load:
    """Clients that ask without a pause; what they were told, and what went wrong."""

    server: Server
    model: str
    seen: Counter[float] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)

    def work(self, number: int) -> None:
        with self.server.client() as client:
            while not self._ending.is_set():
                try:
                    answer = client.infer(self.model, {"x": ROW}, binary=bool(number % 2))
                    self.seen[float(answer["y"][0, 0])] += 1
                except ServerError as error:
                    self.failures.append(f"{error.status} {error}")

    @contextmanager
    def running(self, clients: int = 3) -> Iterator[Load]:
        threads = [threading.Thread(target=self.work, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._ending.set()
            for thread in threads:
                thread.join()

    def wait(self, answer: float) -> None:
        """Until requests are answered so, again."""
        before = self.seen[answer]
        until(lambda: self.seen[answer] > before + 10 or bool(self.failures))


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def store(tmp_path: Path, onnx_models: Path) -> Store:
    """`m`: version 1 doubles and is in production, version 2 triples."""
    made = Store(tmp_path / "store")
    made.push(onnx_models / "double.onnx", "m", ["production"])
    made.push(onnx_models / "triple.onnx", "m", ["staging"])
    return made


def test_an_alias_moves_and_models_come_and_go_with_no_failed_request(
    store: Store, start: Starter, onnx_models: Path
) -> None:
    server = start("--store", str(store.folder), "--poll-s", "0.05")
    with server.client() as client, Load(server, "m").running() as load:
        load.wait(2)
        for round_ in range(3):
            store.tag("m@2", "production")
            load.wait(3)
            client.load("m")
            store.push(onnx_models / "double.onnx", f"other{round_}")
            until(lambda name=f"other{round_}": client.ready(name))  # type: ignore[misc]
            store.tag("m@1", "production")
            load.wait(2)
            client.unload(f"other{round_}")
        with pytest.raises(ServerError, match="must be one of"):
            client.infer("other0", {"x": ROW})
    assert load.failures == []
    assert set(load.seen) == {2.0, 3.0}
    assert server.stop() == 0


def test_counters_of_a_version_stay_when_another_takes_its_place_and_go_on_when_it_is_back(
    store: Store, start: Starter
) -> None:
    server = start("m@production", "--store", str(store.folder), "--poll-s", "0.05")

    def answered() -> dict[str, float]:
        text = server.call("GET", "/metrics").body.decode()
        return {
            v: float(n) for v, n in re.findall(r'weft_requests_total{model="m",version="(.)"} (.*)', text)
        }

    with server.client() as client:
        for version, times in ((1, 2), (2, 3), (1, 4)):
            store.tag(f"m@{version}", "production")
            until(lambda number=str(version): client.metadata("m")["versions"] == [number])  # type: ignore[misc]
            for _ in range(times):
                assert client.infer("m", {"x": ROW})["y"][0, 0] == version + 1
    assert answered() == {"1": 6.0, "2": 3.0}
    assert server.stop() == 0


def test_versions_and_names_of_a_store(store: Store, start: Starter) -> None:
    server = start("m@1", "m@staging", "--store", str(store.folder))
    with server.client() as client:
        assert client.infer("m", {"x": ROW})["y"][0, 0] == 2
        assert client.infer("m", {"x": ROW}, version=2)["y"][0, 0] == 3
        assert client.metadata("m")["versions"] == ["1", "2"]
        client.load("m", version=2)
        assert client.infer("m", {"x": ROW})["y"][0, 0] == 3
        with pytest.raises(ServerError, match="must be a version"):
            client.load("m", version=7)


@pytest.mark.long
def test_a_canary_gets_its_share_and_a_shadow_gets_everything(store: Store, start: Starter) -> None:
    server = start("m@production", "--store", str(store.folder), "--canary", "m=staging:25")
    with server.client() as client:
        found = Counter(float(client.infer("m", {"x": ROW})["y"][0, 0]) for _ in range(400))
        assert 50 < found[3.0] < 160  # of 400 by a quarter: six standard deviations either way
        client.set_traffic("m", canary="staging", percent=100)
        assert client.infer("m", {"x": ROW})["y"][0, 0] == 3
        client.set_traffic("m", shadow="2")
        before = rows(server, "2")
        for _ in range(20):
            assert client.infer("m", {"x": ROW})["y"][0, 0] == 2
        until(lambda: rows(server, "2") == before + 20)
        with pytest.raises(ServerError, match="must be a version or an alias"):
            client.set_traffic("m", canary="nobody", percent=1)
        client.set_traffic("m")
        assert client.metadata("m")["versions"] == ["1"]


def rows(server: Server, version: str) -> int:
    with server.client() as client:
        return sum(one["inference_count"] for one in client.statistics("m") if one["version"] == version)


def test_a_broken_version_takes_nobody_down(
    store: Store, start: Starter, onnx_models: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    server = start(str(broken), str(onnx_models / "double.onnx"), f"m={onnx_models / 'triple.onnx'}")
    with server.client() as client:
        assert not client.ready()  # which means all models, as V2 has it
        assert client.ready("double")
        assert client.infer("double", {"x": ROW})["y"][0, 0] == 2
        with pytest.raises(ServerError, match="not ready") as caught:
            client.infer("broken", {"x": ROW})
        assert caught.value.status == 503
        states = {entry["name"]: entry for entry in client.index()}
        assert states["broken"]["state"] == "UNAVAILABLE"
        assert "ONNX" in states["broken"]["reason"]
        shutil.copy(onnx_models / "double.onnx", broken)
        client.load("broken")
        assert client.infer("broken", {"x": ROW})["y"][0, 0] == 2


def test_a_push_that_does_not_load_leaves_the_old_version_in_place(
    store: Store, start: Starter, tmp_path: Path
) -> None:
    server = start("m@latest", "--store", str(store.folder), "--poll-s", "0.05")
    with server.client() as client:
        assert client.infer("m", {"x": ROW})["y"][0, 0] == 3
        odd = small_models.times(tmp_path / "odd.onnx", 1)
        odd.write_bytes(odd.read_bytes().replace(b"Mul", b"Mxl"))  # an operator that nobody has
        store.push(odd, "m")
        server.logged(event="not loaded", model="m")
        assert client.infer("m", {"x": ROW})["y"][0, 0] == 3


def test_a_version_that_is_no_longer_what_was_pushed_is_not_served(
    store: Store, start: Starter, onnx_models: Path
) -> None:
    shutil.copy(onnx_models / "double.onnx", store.resolve("m@2").path)
    server = start("m@production", "--store", str(store.folder), "--poll-s", "0.05")
    with server.client() as client:
        store.tag("m@2", "production")
        told = server.logged(event="not loaded", model="m")
        assert "must be what was pushed" in told["error"]
        assert client.infer("m", {"x": ROW})["y"][0, 0] == 2


@pytest.mark.long
def test_sigterm_answers_what_was_taken(start: Starter, onnx_models: Path) -> None:
    server = start(
        str(onnx_models / "busy.onnx"), "--delay-ms", "0.01", "--timeout-s", "200", "--drain-s", "200"
    )
    answers: list[float] = []

    def ask(client: Client, n: int) -> None:
        answers.append(float(client.infer("busy", {"n": np.array([n])})["y"]))

    with ExitStack() as stack:
        clients = [stack.enter_context(server.client(timeout_s=200)) for _ in range(3)]
        threads = []
        for client, n in zip(clients, (60_000, 60_000, 1), strict=True):  # the quick one last: it waits
            threads.append(threading.Thread(target=ask, args=(client, n)))
            threads[-1].start()
            expected = f"weft_in_flight {len(threads) + 1}.0".encode()  # those asked so far, and this one
            until(lambda: expected in server.call("GET", "/metrics").body)  # noqa: B023
        code = server.stop()
        for thread in threads:
            thread.join()
    assert len(answers) == 3
    assert code == 0
    assert server.logged(event="ended")


def test_what_was_acknowledged_survives_kill_9(
    store: Store, start: Starter, onnx_models: Path, tmp_path: Path
) -> None:
    store.push(onnx_models / "double.onnx", "gone")
    args = ("--store", str(store.folder), "--state", str(tmp_path / "state.json"))
    server = start(*args)
    with server.client() as client:
        client.unload("gone")
        client.load("m", version=2)
        client.set_traffic("m", canary="1", percent=0, shadow="1")
    server.process.kill()
    server.process.wait()
    again = start(*args)
    with again.client() as client:
        assert not client.ready("gone")
        assert client.infer("m", {"x": ROW})["y"][0, 0] == 3
        assert client.metadata("m")["versions"] == ["2", "1"]


@pytest.mark.long
def test_a_client_that_leaves_the_queue_is_not_computed(start: Starter, onnx_models: Path) -> None:
    server = start(
        str(onnx_models / "busy.onnx"), "--delay-ms", "0.01", "--timeout-s", "100", "--drain-s", "100"
    )
    first = threading.Thread(target=lambda: _ask_quietly(server, 60_000))
    first.start()

    def metrics() -> str:
        return server.call("GET", "/metrics").body.decode()

    until(lambda: "weft_in_flight 2.0" in metrics())  # the one at work, and this one
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as leaving:
        body = b'{"inputs":[{"name":"n","shape":[1],"datatype":"INT64","data":[30000]}]}'
        head = b"POST /v2/models/busy/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(
            body
        )
        leaving.sendall(head + body)
        until(lambda: 'weft_waiting{model="busy",version="1"} 1.0' in metrics() or not first.is_alive())
    until(lambda: 'weft_cancelled_total{model="busy",version="1"} 1.0' in metrics())
    first.join()
    assert server.logged(event="request", status=499)


def _ask_quietly(server: Server, n: int) -> None:
    with server.client() as client:
        client.infer("busy", {"n": np.array([n])})
