"""A jobs service for benchmarks: `weft up` in a process of its own, on fresh or prepared data."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil

START_S = 120.0
LOOK_S = 0.005


@dataclass(frozen=True)
class BenchService:
    """A running service."""

    url: str
    token: str
    process: psutil.Process
    to_page_s: float  # from its start to the first page
    to_page_cpu_s: float  # processor time that it took until then

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}


@contextmanager
def service(data: Path, *options: str) -> Iterator[BenchService]:
    """Run `weft up` on a data folder until the block ends."""
    port = free_port()
    command = [sys.executable, "-m", "weft", "up", "--data", str(data), "--port", str(port), *options]
    began = time.perf_counter()
    with Path(f"{data}.log").open("wb") as log:
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        await_page(url, started, Path(f"{data}.log"))
        to_page_s = time.perf_counter() - began
        token = json.loads((data / "service.json").read_text())["token"]
        process = psutil.Process(started.pid)
        used = process.cpu_times()
        yield BenchService(url, token, process, to_page_s, used.user + used.system)
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def await_page(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the first page."""
    until = time.perf_counter() + START_S
    while time.perf_counter() < until:
        try:
            with urlopen(f"{url}/", timeout=10) as answer:
                answer.read()
                return
        except (URLError, ConnectionError):
            if process.poll() is not None:
                raise SystemExit(f"weft up ended: {log.read_text()}") from None
            time.sleep(LOOK_S)
    raise SystemExit("weft up did not answer")


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values: Sequence[float]) -> str:
    """Return median, p95 and the largest, in ms."""
    return (
        f"median {1000 * statistics.median(values):.1f} ms, p95 {1000 * quantile(values, 0.95):.1f} ms, "
        f"largest {1000 * max(values):.1f} ms"
    )
