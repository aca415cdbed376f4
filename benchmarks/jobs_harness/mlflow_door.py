"""Points a second through MLflow's log-batch: our door against a real MLflow server, on the same kind of database.

    python -m venv /tmp/rival && /tmp/rival/bin/pip install mlflow 'psycopg[binary]'
    python benchmarks/jobs.py mlflow --rival /tmp/rival/bin/python
    python benchmarks/jobs.py mlflow --rival /tmp/rival/bin/python --database postgresql

Both servers are up at once, each on a database of its own, and take turns, round by round, under the same load: clients
in a process of their own send batches over connections that stay open. No two batches are equal. Points that a server
has acknowledged count. MLflow's server runs with its own defaults (four processes).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from benchmarks import claims

NAMES = ("loss", "accuracy", "grad_norm", "lr", "step_s")
START_S = 300.0
ROOT = "/api/2.0/mlflow"


@dataclass
class TrackingServer:
    """A server that is up, its run to log to, and what its rounds gave."""

    name: str
    url: str
    token: str | None
    run_id: str = ""
    pid: int = 0
    points_s: list[float] = field(default_factory=list)
    points_cpu_s: list[float] = field(default_factory=list)  # in a second of the server's processor time

    def post(self, path: str, body: dict[str, Any]) -> Any:
        connection = connect(self.url)
        connection.request("POST", f"{ROOT}/{path}", json.dumps(body), headers_of(self.token))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{self.name}: {answer.status} {data[:300]!r}")
        return json.loads(data)

    def begin(self) -> None:
        deadline = time.monotonic() + START_S
        while not self.run_id:
            try:
                made = self.post("runs/create", {"experiment_id": "0", "start_time": 1})
                self.run_id = str(made["run"]["info"]["run_id"])
            except OSError:  # one of its processes was just replaced
                if time.monotonic() > deadline:
                    raise


def connect(url: str, timeout_s: float = 120.0) -> http.client.HTTPConnection:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def headers_of(token: str | None) -> dict[str, str]:
    return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})


def body_of(run_id: str, first_step: int, points: int) -> bytes:
    metrics = [
        {"key": NAMES[index % len(NAMES)], "value": 1.0 / (index + 1), "timestamp": 1_700_000_000_000 + index,
         "step": first_step + index // len(NAMES)}
        for index in range(points)
    ]  # fmt: skip
    return json.dumps({"run_id": run_id, "metrics": metrics}).encode()


def load(url: str, token: str | None, run_id: str, first_step: int, clients: int, points: int, seconds: float,
         ready: int) -> tuple[int, float]:  # fmt: skip
    """Send batches for a while from several threads; return how many points were taken, in how many seconds."""
    bodies = [
        [body_of(run_id, first_step + (client * ready + number) * points, points) for number in range(ready)]
        for client in range(clients)
    ]
    start = threading.Barrier(clients + 1)
    taken, errors = [0] * clients, []

    def send(client: int) -> None:
        connection = connect(url)
        start.wait()
        deadline = time.perf_counter() + seconds
        for body in bodies[client]:
            if time.perf_counter() > deadline:
                break
            try:
                connection.request("POST", f"{ROOT}/runs/log-batch", body, headers_of(token))
                answer = connection.getresponse()
                data = answer.read()
            except OSError:  # nothing was acknowledged
                connection = connect(url)
                continue
            if answer.status != 200:
                errors.append(data[:300])
                break
            taken[client] += points
        connection.close()

    threads = [threading.Thread(target=send, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    start.wait()
    begun = time.perf_counter()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError(f"{url}: {errors[0]!r}")
    return sum(taken), time.perf_counter() - begun


# -- servers ----------------------------------------------------------------------------------------------------------


@contextmanager
def process(command: Sequence[str], folder: Path, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "output.txt").open("wb") as output:
        started = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, start_new_session=True, **more
        )
        try:
            yield started
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(started.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    started.wait(20)


def await_url(url: str, path: str, process_: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process_.poll() is None:
        try:
            connection = connect(url, timeout_s=2.0)
            connection.request("GET", path)
            if connection.getresponse().status < 500:
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not start:\n{(folder / 'output.txt').read_text()[-2000:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def weft_server(folder: Path, database: str | None) -> Iterator[TrackingServer]:
    folder.mkdir()
    port = free_port()
    script = (
        "import sys; from pathlib import Path; from weft.jobs.api.process import ServiceOptions, run_service; "
        f"run_service(ServiceOptions(data=Path({str(folder / 'data')!r}), port={port}, database={database!r}), print)"
    )
    with process([sys.executable, "-c", script], folder) as started:
        url = f"http://127.0.0.1:{port}"
        await_url(url, "/version", started, folder)
        token = json.loads((folder / "data" / "service.json").read_text())["token"]
        yield TrackingServer("weft", url, token, pid=started.pid)


@contextmanager
def mlflow_server(python: str, folder: Path, database: str | None) -> Iterator[TrackingServer]:
    folder.mkdir()
    port = free_port()
    store = database or f"sqlite:///{folder}/mlflow.db"
    options = ["--backend-store-uri", store, "--default-artifact-root", str(folder), "--port", str(port)]
    # Its processes are ended when they do not answer for 5 s, as they do not while they start on a busy machine.
    options += ["--uvicorn-opts", "--timeout-worker-healthcheck 300"]
    command = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", *options]
    env = {
        **os.environ,
        "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    with process(command, folder, env=env) as started:
        url = f"http://127.0.0.1:{port}"
        await_url(url, "/version", started, folder)
        yield TrackingServer("mlflow", url, None, pid=started.pid)


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A server that listens on a socket alone, with durable commits, as both systems would have it."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    folder.mkdir()
    account: dict[str, Any] = {}
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        account = {"user": "postgres", "group": "postgres", "extra_groups": ()}
    quiet: Any = {"cwd": "/", "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **account}
    subprocess.run([programs / "initdb", "-D", folder, "-U", "weft", "--auth=trust"], check=True, **quiet)
    server = subprocess.Popen(
        [programs / "postgres", "-D", folder, "-k", folder, "-c", "listen_addresses="], **quiet
    )
    try:
        ask = [str(programs / "psql"), "-h", str(folder), "-U", "weft", "-d", "postgres", "-c"]
        deadline = time.monotonic() + START_S
        while subprocess.run([*ask, "CREATE DATABASE weft"], check=False, **quiet).returncode:
            if time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL did not start")
            time.sleep(0.2)
        subprocess.run([*ask, "CREATE DATABASE mlflow"], check=True, **quiet)
        yield str(folder)
    finally:
        server.terminate()
        server.wait(30)


# -- the measurement --------------------------------------------------------------------------------------------------


def measure(rival: str | None, *, database: str = "sqlite", rounds: int = 5, seconds: float = 4.0, clients: int = 8,
            points: int = 500, ready: int = 300) -> list[TrackingServer]:  # fmt: skip
    """Return the servers with their points a second, round by round."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-bench-", dir="/var/tmp")))
        folder.chmod(0o755)
        ours = theirs = None
        if database == "postgresql":
            home = stack.enter_context(postgres(folder / "postgres"))
            ours, theirs = (f"postgresql://weft@/{name}?host={home}" for name in ("weft", "mlflow"))
        servers = [stack.enter_context(weft_server(folder / "weft", ours))]
        if rival:
            servers.append(stack.enter_context(mlflow_server(rival, folder / "mlflow", theirs)))
        for server in servers:
            server.begin()
        with get_context("spawn").Pool(1) as pool:
            for number in range(rounds + 1):
                for server in servers:
                    first = number * clients * ready * points
                    asked = (server.url, server.token, server.run_id, first, clients, points, seconds, ready)
                    before_s = used_s(server.pid)
                    taken, elapsed = pool.apply(load, asked)
                    used = used_s(server.pid) - before_s
                    if number:  # the first round warms up
                        server.points_s.append(taken / elapsed)
                        server.points_cpu_s.append(taken / used)
                        rates = (
                            f"{taken / elapsed:12,.0f} points/s {taken / used:12,.0f} in a processor second"
                        )
                        print(f"round {number} {server.name:7s} {rates}", flush=True)
        return servers


def used_s(pid: int) -> float:
    """Return the processor seconds of a server with all of its processes; the database's are not among them."""
    first = psutil.Process(pid)
    total = 0.0
    for one in (first, *first.children(recursive=True)):
        with suppress(psutil.Error):
            times = one.cpu_times()
            total += times.user + times.system
    return total


def main(words: list[str]) -> None:
    """Print the points a second of each server, and their ratio beside the claims."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rival", help="python of an environment that has mlflow")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--points", type=int, default=500, help="in a batch")
    given = vars(parser.parse_args(words))
    found = {server.name: server for server in measure(given.pop("rival"), **given)}
    medians = {name: statistics.median(server.points_s) for name, server in found.items()}
    used = {name: statistics.median(server.points_cpu_s) for name, server in found.items()}
    load_ = f"{given['database']}, {given['clients']} clients, batches of {given['points']}"
    print(f"{load_}: " + ", ".join(f"{name} {value:,.0f} points/s" for name, value in medians.items()))
    if "mlflow" in medians:
        measured = {
            f"mlflow-{given['database']}": medians["weft"] / medians["mlflow"],
            f"mlflow-{given['database']}-cpu": used["weft"] / used["mlflow"],
        }
        print(claims.report("jobs_doors", measured))
