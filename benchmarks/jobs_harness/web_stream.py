"""From `weft.log` to those who watch: how late points arrive, and what the service takes meanwhile.

    python benchmarks/jobs.py stream --viewers 100 --seconds 20
    python benchmarks/jobs.py stream --viewers 500 --seconds 20

A real job logs 1,000 points a second; the value of each is the time at which it was logged. Viewers, in a process of
their own, read the stream of the job's metrics, and compare each value with the time at which it arrived. The figures
of the service are those of its process: processor time over the time of the measurement, and resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
from benchmarks import claims
from benchmarks.jobs_harness.service import BenchService, quantile, service

from weft.jobs.client.client import JobsClient

SCRIPT = """
import time, weft
began, sent = time.perf_counter(), 0
while True:
    due = int((time.perf_counter() - began) * {rate})
    while sent < due:
        weft.log({{"sent": time.time()}}, step=sent)
        sent += 1
    time.sleep(0.001)
"""


def submit(running: BenchService, folder: Path, rate: int) -> int:
    """Start the job that logs, and wait until it does."""
    code = folder / "code"
    code.mkdir()
    (code / "log.py").write_text(SCRIPT.format(rate=rate))
    with JobsClient(running.url, running.token) as client:
        number = int(client.submit({"run": "log.py"}, code=code)[0].id)
    until = time.monotonic() + 120
    while time.monotonic() < until:
        answer = httpx.get(f"{running.url}/api/v1/jobs/{number}/metrics", headers=running.headers).json()
        if any(one["name"] == "sent" for one in answer["metrics"]):
            return number
        time.sleep(0.2)
    raise SystemExit("the job did not log")


def watch(url: str, token: str, job: int, viewers: int, seconds: float, answer: Connection) -> None:
    """Read the stream as so many viewers; send the delays of all points, in seconds."""
    answer.send(asyncio.run(_watch(url, token, job, viewers, seconds, answer)))


async def _watch(
    url: str, token: str, job: int, viewers: int, seconds: float, answer: Connection
) -> tuple[list[float], int]:
    place = urlsplit(url)
    delays: list[float] = []
    ready = asyncio.Semaphore(0)
    resyncs = 0

    async def view(number: int) -> None:
        nonlocal resyncs
        reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 24)
        writer.write(
            f"GET /api/v1/stream?topics=job:{job}:metrics HTTP/1.1\r\nHost: {place.netloc}\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        try:
            while True:
                line = await reader.readline()
                if line.startswith(b"event: hello"):
                    ready.release()
                elif line.startswith(b"event: resync"):
                    resyncs += 1
                elif line.startswith(b"data: ") and b'"points"' in line:
                    now = time.time()
                    told = msgspec.json.decode(line[6:])
                    delays.extend([now - point[2] for point in told["points"]["sent"]])
        finally:
            writer.close()

    tasks = []
    for number in range(viewers):
        tasks.append(asyncio.create_task(view(number)))
        if number % 20 == 19:
            await asyncio.sleep(0.05)
    for _ in range(viewers):
        await ready.acquire()
    await asyncio.sleep(2)
    delays.clear()
    answer.send("ready")
    await asyncio.sleep(seconds)
    found = list(delays)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found, resyncs


def measure(viewers: int, rate: int, seconds: float) -> tuple[Sequence[float], float, int, int]:
    """Return the delays, the service's share of a core, its memory in bytes, and how many viewers began anew."""
    with tempfile.TemporaryDirectory() as folder, service(Path(folder) / "data") as running:
        job = submit(running, Path(folder), rate)
        ours, theirs = get_context("spawn").Pipe()
        arguments = (running.url, running.token, job, viewers, seconds, theirs)
        process = get_context("spawn").Process(target=watch, args=arguments)
        process.start()
        try:
            assert ours.recv() == "ready"
            before, began = running.process.cpu_times(), time.monotonic()
            delays, resyncs = ours.recv()
            after, took = running.process.cpu_times(), time.monotonic() - began
            memory = running.process.memory_info().rss
        finally:
            httpx.post(f"{running.url}/api/v1/jobs/{job}/stop", headers=running.headers)
            process.join(30)
            _await_end(running, job)
        share = (after.user + after.system - before.user - before.system) / took
        return delays, share, memory, resyncs


def _await_end(running: BenchService, job: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = httpx.get(f"{running.url}/api/v1/jobs/{job}", headers=running.headers).json()
        if found["state"] in ("stopped", "failed", "completed"):
            return
        time.sleep(0.2)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="jobs.py stream")
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--rate", type=int, default=1000, help="points a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args(words)
    delays, share, memory, resyncs = measure(given.viewers, given.rate, given.seconds)
    per_viewer = len(delays) / given.viewers / given.seconds
    p50, p95 = (1000 * quantile(delays, part) for part in (0.5, 0.95))
    print(
        f"{given.viewers} viewers, {per_viewer:.0f} points/s each: median {p50:.0f} ms, p95 {p95:.0f} ms late; "
        f"the service took {share:.2f} of a core and {memory >> 20} MiB; {resyncs} resyncs"
    )
    if given.viewers >= 500:
        print(claims.report("jobs_web", {"viewers-core": share, "viewers-mib": memory / (1 << 20)}))
    else:
        print(claims.report("jobs_web", {"stream-p95-ms": p95}))
