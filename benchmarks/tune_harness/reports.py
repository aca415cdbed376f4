"""10,000 reports a second from 64 trials: reports that never arrive, and how late the study's page shows the others.

A real service runs a study of 64 trials at once, each a job of its own whose script reports so many times a second;
the value of each report is the time at which it was made. A viewer does what the page does: it reads the stream of
the study, and asks for the trials that changed, with what is new of their curves, every 100 ms, or after twice as long
as the last answer took. Reports count from the moment when all trials report. At the end every step of every trial must
be among the events of the study, once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from benchmarks import claims
from benchmarks.jobs_harness.service import BenchService, quantile, service

from weft.jobs.client.client import JobsClient
from weft.tune.study.state import SearchState

LEAST_PACE_S = 0.1  # from one question for trials to the next, as the page has it
PACE_FACTOR = 2  # times that an answer took, until the next question
SCRIPT = """
import sys, time, weft
rate, count, go = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
import os
weft.report(1, sent=time.time())
while not os.path.exists(go):
    time.sleep(0.05)
began, sent = time.perf_counter(), 1
while sent < count:
    due = min(count, 1 + int((time.perf_counter() - began) * rate))
    while sent < due:
        sent += 1
        weft.report(sent, sent=time.time())
    time.sleep(0.02)
"""


def begin(running: BenchService, folder: Path, trials: int, rate: float, count: int) -> int:
    """Begin the study; return its number."""
    code = folder / "code"
    code.mkdir()
    (code / "log.py").write_text(SCRIPT)
    config = {
        "name": "reports",
        "run": ["log.py", str(rate), str(count), str(folder / "go"), "{k}"],
        "space": {"k": f"int:1:{trials}"},
        "minimize": "sent",
        "search": {"name": "grid", "points": trials},
        "budget": {"trials": trials},
        "parallel": trials,
        "job": {"resources": {"cpus": 0.01}},
    }
    with JobsClient(running.url, running.token) as client:
        view = client.studies.begin(config, code)
    assert view.id is not None
    return view.id


class Page:
    """The study's page, as far as the service can tell."""

    def __init__(self, running: BenchService, study: int) -> None:
        self._client = httpx.Client(base_url=running.url, headers=running.headers, timeout=60)
        self._path = f"/api/v1/studies/{study}/trials"
        self.events = 0
        self.seen: dict[int, tuple[int, float]] = {}  # the last step and its time, by trial
        self.states: Counter[str] = Counter()
        self.trials: dict[int, dict[str, Any]] = {}
        self.delays_s: list[float] = []

    def look(self) -> None:
        """Ask for what changed, and note how late each new report is."""
        answer = self._client.get(
            self._path, params={"since": self.events, "curves": "true", "tails": "true"}
        ).json()
        now_s = time.time()
        self.events = answer["events"]
        for trial in answer["trials"]:
            self.trials[trial["number"]] = trial
            value = trial["values"].get("sent")
            if not isinstance(value, float):
                continue
            step, sent_s = self.seen.get(trial["number"], (0, value))
            new = trial["step"] - step
            # Reports between two looks were made at even distances.
            self.delays_s += [now_s - value + (value - sent_s) * k / new for k in range(new)]
            self.seen[trial["number"]] = (trial["step"], value)

    def close(self) -> None:
        self._client.close()


def measure(trials: int, rate: float, seconds: float) -> dict[str, float]:
    """Return reports a second, how many were lost, and the 95th percentile of how late they were shown."""
    count = int(rate / trials * seconds)
    with tempfile.TemporaryDirectory() as name, service(Path(name) / "data") as running:
        folder = Path(name)
        study = begin(running, folder, trials, rate / trials, count)
        page = Page(running, study)
        try:
            _await(page, lambda: len(page.seen) == trials, 500, "trials that report")
            (folder / "go").touch()
            page.delays_s.clear()
            began = time.monotonic()
            used = running.process.cpu_times()
            _await(
                page,
                lambda: all(step == count for step, _ in page.seen.values()),
                60 + 4 * seconds,
                "all reports",
            )
            took_s = time.monotonic() - began
            now = running.process.cpu_times()
            share = (now.user + now.system - used.user - used.system) / took_s
            with JobsClient(running.url, running.token) as client:
                state = client.studies.state(study)
        finally:
            page.close()
        lost = sum(len(set(range(1, count + 1)) - set(trial.steps)) for trial in state)
        twice = twice_of(state)
    late_s = quantile(page.delays_s, 0.95)
    print(
        f"{trials} trials, {count} reports each, {trials * (count - 1) / took_s:.0f} a second: {lost} lost, "
        f"{twice} twice; p50 {quantile(page.delays_s, 0.5):.2f} s, p95 {late_s:.2f} s late on the page; "
        f"the service took {share:.2f} of a core"
    )
    return {
        "reports-rate": trials * (count - 1) / took_s,
        "reports-lost": float(lost),
        "reports-late": late_s,
    }


def twice_of(state: SearchState) -> int:
    """Return how many steps stand twice in a curve."""
    return sum(len(trial.steps) - len(set(trial.steps)) for trial in state)


def _await(page: Page, done: Any, most_s: float, what: str) -> None:
    until = time.monotonic() + most_s
    while time.monotonic() < until:
        began = time.monotonic()
        page.look()
        if done():
            return
        took_s = time.monotonic() - began
        time.sleep(max(LEAST_PACE_S, PACE_FACTOR * took_s) - took_s)
    found = {number: trial["state"] for number, trial in page.trials.items()}
    raise SystemExit(f"{what} must come within {most_s:g} s, got {json.dumps(found)[:500]}")


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tune.py reports")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rate", type=float, default=10_000.0, help="reports a second of all trials")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(words)
    found = measure(options.trials, options.rate, options.seconds)
    known = {claim.name for part in claims.parts(["tune"]) for claim in part.claims}
    print(claims.report("tune", {name: figure for name, figure in found.items() if name in known}), end="")
