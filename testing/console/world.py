"""A made-up team and its jobs, in the types of the API: what the pages show before there is a real service.

The same number of jobs gives the same world every time, but for the clock, which is the real one.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.jobs.api.types.cluster import HostJob, HostView, ResourceView
from weft.jobs.api.types.jobs import Headline, HostShare, JobView, ReasonView
from weft.jobs.api.types.reports import CurveView, FindingView, MetricView, OddValue
from weft.jobs.lifecycle import ACTIVE, ENDED, JobState

USERS = ("mara", "jonas", "ines", "tomek")
PROJECTS = ("vision", "speech", "tabular", "forecast")
MODELS = ("resnet50", "vit-small", "unet", "conformer", "whisper-ft", "tft", "xdeepfm", "tabnet", "digits")
WAYS = ("baseline", "cosine", "mixup", "large-batch", "no-warmup", "ema", "distill", "adamw", "seed")
MINUTE_MS, HOUR_MS, GIB = 60_000, 3_600_000, 1 << 30
METRICS = ("loss", "val_loss", "accuracy", "learning_rate", "grad_norm", "samples_per_s")
SYSTEM = ("system/cpu", "system/memory_bytes", "system/net_bytes_s", "system/gpu", "system/gpu_memory_bytes")


def now_ms() -> int:
    return int(time.time() * 1000)


@dataclass
class World:
    """All that the made-up service knows; actions change it."""

    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)  # that each job has done
    studies: dict[int, Any] = field(default_factory=dict)  # MadeUpStudy, by number
    vision: Any = None  # VisionWorld
    tables: Any = None  # TablesWorld

    def view(self, job_id: int) -> JobView:
        return JobView(**self.jobs[job_id] | {"headline": _headline(job_id, self.steps[job_id])})

    def host(self, name: str) -> HostView:
        """Return a host with what runs on it."""
        found, jobs = self.hosts[name], []
        cpus = gpus = memory = 0.0
        for job in self.jobs.values():
            for share in job_hosts(job):
                if share.host == name:
                    jobs.append(HostJob(job["id"], job["name"], share.workers))
                    gpus += share.workers * (1 if found["total"].gpus else 0)
                    cpus += share.workers * 4
                    memory += share.workers * 14.0 * GIB
        used = ResourceView(min(cpus, found["total"].cpus), memory, min(gpus, found["total"].gpus))
        return HostView(**found, used=used, jobs=tuple(jobs))


def make_world(count: int) -> World:
    """Return a world with so many jobs: 0, 3 or thousands."""
    rng, world = random.Random(7), World()
    for index in range(1, 15 if count > 3 else 3 if count else 1):
        gpu = index <= 6
        name = f"gx{index:02d}" if gpu else f"cx{index - 6:02d}"
        state = "drained" if index == 5 else "lost" if index == 12 else "up"
        world.hosts[name] = {
            "name": name,
            "state": state,
            "labels": ("a100", "nvlink") if gpu else ("cpu", "avx512"),
            "rack": f"rack-{'ABC'[(index - 1) // 5]}",
            "message": "no answer for 4 minutes" if state == "lost" else "new disk" if index == 5 else None,
            "seen_ms": now_ms() - (240_000 if state == "lost" else 2_000),
            "total": ResourceView(64, 512.0 * GIB, 8) if gpu else ResourceView(64, 256.0 * GIB, 0),
        }
    for job_id in range(1, count + 1):
        state = _few(job_id) if count <= 3 else _many(job_id, count, rng)
        _add(world, job_id, state, count, rng)
    return world


def _few(job_id: int) -> JobState:
    states: tuple[JobState, ...] = ("failed", "queued", "running")
    return states[job_id % 3]


def _many(job_id: int, count: int, rng: random.Random) -> JobState:
    if job_id > count - 9:
        return "queued"
    if job_id > count - 26:
        return rng.choice(("running",) * 8 + ("starting", "staging", "storing", "paused"))
    if job_id > count - 28:
        return "held"
    return rng.choice(("completed",) * 15 + ("failed",) * 3 + ("stopped",))


def _add(world: World, job_id: int, state: JobState, count: int, rng: random.Random) -> None:
    model, way = rng.choice(MODELS), rng.choice(WAYS)
    name = f"{model}-{way}" + (f"-{rng.randrange(2, 9)}" if way == "seed" else "")
    age = int((count - job_id + 1) * 11 * MINUTE_MS * rng.uniform(0.9, 1.1))
    created = now_ms() - age
    waited = int(rng.expovariate(1 / 90_000)) + 900
    took = int(rng.lognormvariate(15.0, 0.7))
    low = rng.choice((1, 2, 2, 4))
    high = low * rng.choice((1, 1, 2, 4))
    started = None if state in ("queued", "held") else created + waited
    if state in ACTIVE:
        started = max(started or 0, now_ms() - int(rng.uniform(3, 170) * MINUTE_MS))
    ended = min((started or created) + took, now_ms() - MINUTE_MS) if state in ENDED else None
    workers = rng.randint(low, high) if state in ("running", "storing") else 0
    steps = 0 if started is None else min(20_000, int(((ended or now_ms()) - started) / 420))
    failed = state == "failed"
    cause = rng.choice(("error", "error", "host-lost", "out-of-memory", "time-out")) if failed else None
    project = PROJECTS[MODELS.index(model) * len(PROJECTS) // len(MODELS)]
    user = rng.choice(USERS)
    world.steps[job_id] = steps
    world.jobs[job_id] = {
        "id": job_id, "name": name, "project": project, "user": user, "kind": "run", "state": state,
        "wanted": None, "queue": rng.choice(("default", "default", "night")),
        "priority": rng.choice((30, 50, 50, 50, 70, 90)), "workers": workers, "min_workers": low,
        "max_workers": high, "attempt": 0 if started is None else 1 + (rng.random() < 0.12),
        "progress": steps / 20_000 if state in ACTIVE else 1.0 if state == "completed" else None,
        "cause": cause, "message": _message(cause, rng), "reason": _reason(state, job_id, count, rng),
        "snapshot": f"{rng.getrandbits(256):064x}", "parent_id": None,
        "tags": {"sweep": way} if rng.random() < 0.4 else {}, "pinned": rng.random() < 0.01,
        "created_ms": created, "queued_ms": created, "started_ms": started, "ended_ms": ended,
        "headline": None, "mine": True,
    }  # fmt: skip


def _message(cause: str | None, rng: random.Random) -> str | None:
    if cause is None:
        return None
    return {
        "error": "rank 3: RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x10)",
        "host-lost": f"host gx{rng.randrange(1, 7):02d} (ranks 4, 5) was lost",
        "out-of-memory": "rank 0: torch.OutOfMemoryError: tried to allocate 2.25 GiB",
        "time-out": "it ran for longer than queue.max_time; raise it, or save checkpoints",
    }[cause]


def _reason(state: JobState, job_id: int, count: int, rng: random.Random) -> ReasonView | None:
    if state == "held":
        return ReasonView("held", "held; release it to let it start", None, None)
    if state == "paused":
        return ReasonView("held", "paused at its last checkpoint", None, None)
    if state != "queued":
        return None
    place = count - job_id + 1
    why, text = [
        ("reserved", "next: hosts are kept for it as they become free"),
        ("resources", "no hosts are free that have what it needs"),
        ("priority", "others are before it"),
        ("quota", "ines has all that the quota allows"),
    ][min(place - 1, 3)]
    return ReasonView(why, text, place, now_ms() + int(place * rng.uniform(4, 9) * MINUTE_MS))


def job_hosts(job: dict[str, Any]) -> tuple[HostShare, ...]:
    """Return where a job's workers are: some hosts by its id."""
    workers = int(job["workers"])
    if not workers:
        return ()
    first = job["id"] % 4 + 1
    half = workers // 2
    shares = (HostShare(f"gx{first:02d}", workers - half), HostShare(f"gx{first % 4 + 1:02d}", half))
    return tuple(share for share in shares if share.workers)


def series(job_id: int, name: str, steps: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    """Return the values of a metric at some steps: a formula with noise that depends on the step alone."""
    rate = 0.6 + (job_id * 37 % 17) / 17
    noise = np.sin(steps * 12.9898 + job_id) * 43758.5453
    noise = noise - np.floor(noise) - 0.5
    x = steps / 20_000 * 6 * rate
    if name == "loss":
        return 0.08 + 2.4 * np.exp(-x) * (1 + 0.35 * noise) + 0.05 * np.abs(noise)
    if name == "val_loss":
        return 0.16 + 2.3 * np.exp(-x * 0.92) + 0.03 * noise + 0.012 * np.maximum(0, x - 4)
    if name == "accuracy":
        return np.clip(0.96 - 0.9 * np.exp(-x) + 0.02 * noise, 0, 1)
    if name == "learning_rate":
        return 1e-3 * np.where(steps < 1000, steps / 1000, 0.5 * (1 + np.cos(np.pi * steps / 20_000)))
    if name == "grad_norm":
        spike = np.where((steps.astype(np.int64) % 4871) == 0, 30.0, 0.0)
        return 1.2 + 0.8 * np.exp(-x) + 0.6 * np.abs(noise) + spike
    if name == "samples_per_s":
        return 2100 + 90 * noise - np.where((steps > 7000) & (steps < 8200), 900, 0)
    if name.startswith("system/gpu_memory"):
        return (31.2 + 0.3 * noise) * GIB
    if name.startswith("system/memory"):
        return (11 + x * 0.3) * GIB
    if name.startswith("system/net"):
        return 110e6 + 20e6 * noise
    level = 0.93 if "gpu" in name else 0.41
    return np.clip(level + 0.06 * noise - np.where((steps > 7000) & (steps < 8200), 0.3, 0), 0, 1)


def _headline(job_id: int, steps: int) -> Headline | None:
    if steps < 2:
        return None
    values = series(job_id, "loss", np.linspace(1, steps, 32))
    return Headline("loss", float(values[-1]), tuple(float(value) for value in values))


def metrics_of(world: World, job_id: int) -> tuple[MetricView, ...]:
    steps = world.steps[job_id]
    if steps < 2:
        return ()
    views = []
    for name in METRICS + SYSTEM:
        values = series(job_id, name, np.linspace(1, steps, 200))
        views.append(
            MetricView(
                name, steps, float(values[-1]), steps, now_ms(), float(values.min()), float(values.max())
            )
        )
    return tuple(views)


def curve(world: World, job_id: int, name: str, first: int, last: int, points: int) -> CurveView:
    """Return a metric of a job, re-sampled to so many groups at most."""
    job, end = world.jobs[job_id], world.steps[job_id]
    first, last = max(first, 1), min(last, end)
    every = np.arange(first, last + 1, dtype=np.float64)
    values = series(job_id, name, every) if len(every) else every
    per = max(1, math.ceil(len(every) / points))
    cut = len(every) // per * per
    groups = values[:cut].reshape(-1, per)
    ends = every[:cut].reshape(-1, per)[:, -1]
    begin, per_step = job["started_ms"] or 0, 420
    return CurveView(
        name,
        tuple(int(step) for step in ends),
        tuple(int(begin + step * per_step) for step in ends),
        tuple(map(float, groups.mean(axis=1))),
        tuple(map(float, groups.min(axis=1))),
        tuple(map(float, groups.max(axis=1))),
        (OddValue(len(ends) // 2, "NaN"),) if name == "grad_norm" and len(ends) > 10 else (),
    )


def findings_of(job: dict[str, Any]) -> tuple[FindingView, ...]:
    """Return what the advice found: something for every third job."""
    if job["started_ms"] is None or job["id"] % 3:
        return ()
    then = job["started_ms"] + 20 * MINUTE_MS
    return (
        FindingView(
            "straggler", "warning", "rank 3 on gx02 takes 1.6 times as long for a step as the others",
            {"rank": 3, "ratio": 1.6, "threshold": 1.4}, None, then, then + 9 * MINUTE_MS,
        ),
        FindingView(
            "overfitting", "info", "validation loss has risen 3 times while training loss fell",
            {"gap": 0.14, "threshold": 0.1}, None, then + MINUTE_MS, then + 30 * MINUTE_MS,
        ),
    )  # fmt: skip
