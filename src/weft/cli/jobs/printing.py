"""Jobs and their times as text: rows of tables, reasons why they wait, sentences about how they ended."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from weft.text import format_table, plural

if TYPE_CHECKING:
    from weft.jobs.api.types.common import Scalar
    from weft.jobs.api.types.jobs import JobDetail, JobView, ReasonView

SYSTEM = "system/"  # begins the names of metrics that hosts report
LONGEST_ABOUT = 100  # characters of the last column
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Return text that others wrote so that it cannot change the terminal."""
    return _CONTROL.sub("?", text)


def duration(ms: float) -> str:
    """Return a time in its two largest units: `45s`, `3m12s`, `2h05m`, `3d04h`."""
    seconds = max(0, int(ms / 1000))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < 86400:
        return f"{seconds // 3600}h{seconds // 60 % 60:02}m"
    return f"{seconds // 86400}d{seconds // 3600 % 24:02}h"


def moment(ms: int | None, now_ms: float | None = None) -> str:
    """Return a time of day, with its date if it is not today."""
    if ms is None:
        return "-"
    then, now = time.localtime(ms / 1000), time.localtime(now_ms / 1000 if now_ms is not None else None)
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


def number(value: Scalar | None) -> str:
    """Return a value of a metric."""
    return "-" if value is None else value if isinstance(value, str) else f"{value:.5g}"


def waits(reason: ReasonView, now_ms: float) -> str:
    """Return why a job waits, its place and its earliest start."""
    parts = [] if reason.place is None else [f"place {reason.place}"]
    if reason.earliest_ms is not None:
        ahead_ms = reason.earliest_ms - now_ms
        parts.append("any moment" if ahead_ms <= 1000 else f"in {duration(ahead_ms)} at the earliest")
    return f"{', '.join(parts)}: {plain(reason.text)}" if parts else plain(reason.text)


def workers(job: JobView) -> str:
    """Return how many workers a job has, and may have: `2 of 2:8`, `4`."""
    wanted = (
        str(job.max_workers) if job.min_workers == job.max_workers else f"{job.min_workers}:{job.max_workers}"
    )
    return f"{job.workers} of {wanted}" if job.workers else wanted


def about(job: JobView, now_ms: float) -> str:
    """Return the most useful sentence about a job: why it waits, how far it is, how it ended."""
    parts = []
    if job.wanted:
        parts.append(f"{job.wanted} asked for")
    if job.reason is not None and job.state in ("held", "queued", "paused"):
        parts.append(waits(job.reason, now_ms))
    elif job.state in ("failed", "stopped", "paused") and job.message:
        parts.append(plain(f"{job.cause}: {job.message}" if job.cause else job.message))
    else:
        if job.progress is not None and job.state == "running":
            parts.append(f"{job.progress:.0%}")
        if job.headline is not None:
            parts.append(f"{plain(job.headline.name)} {number(job.headline.last)}")
    return ", ".join(parts)


def since(job: JobView, now_ms: float) -> str:
    """Return for how long a job has waited, run, or ran."""
    if job.started_ms is None:
        return duration((job.ended_ms or now_ms) - job.queued_ms)
    return duration((job.ended_ms or now_ms) - job.started_ms)


def job_table(jobs: Iterable[JobView], now_ms: float | None = None) -> list[str]:
    """Return the lines of a table of jobs."""
    now_ms = time.time() * 1000 if now_ms is None else now_ms
    rows = [("id", "name", "project", "user", "state", "workers", "priority", "time", "about")]
    for job in jobs:
        said = " ".join(about(job, now_ms).split())
        rows.append(
            (
                str(job.id),
                plain(job.name),
                plain(job.project),
                plain(job.user),
                job.state,
                workers(job),
                str(job.priority),
                since(job, now_ms),
                said if len(said) <= LONGEST_ABOUT else f"{said[: LONGEST_ABOUT - 3]}...",
            )
        )
    return format_table(rows, left=("name", "project", "user", "state", "about"))


def said_of(job: JobView) -> str:
    """Return one sentence about a job and its state."""
    text = about(job, time.time() * 1000)
    return f"job {job.id} ({plain(job.name)}) is {job.state}{f': {text}' if text else ''}"


def job_facts(job: JobDetail) -> list[tuple[str, str]]:
    """Return what is known of a job, as names and values; those that say nothing are left out."""
    now_ms = time.time() * 1000
    facts = [
        ("job", f"{job.id} {plain(job.name)}"),
        ("state", job.state + (f", {job.wanted} asked for" if job.wanted else "")),
        ("waits", waits(job.reason, now_ms) if job.reason is not None else ""),
        ("message", plain(f"{job.cause}: {job.message}" if job.cause else job.message or "")),
        ("runs", plain(job.command)),
        ("user", f"{plain(job.user)}, project {plain(job.project)}"),
        ("queue", f"{plain(job.queue)}, priority {job.priority}"),
        ("workers", workers(job) + _on(job)),
        ("needs", _needs(job)),
        ("after", ", ".join(f"job {other}" for other in job.after)),
        ("submitted", moment(job.created_ms)),
        ("started", moment(job.started_ms) if job.started_ms else ""),
        ("ended", f"{moment(job.ended_ms)}, after {since(job, now_ms)}" if job.ended_ms else ""),
        ("progress", f"{job.progress:.0%}" if job.progress is not None else ""),
        ("code", (job.snapshot or "")[:12]),
        ("copy of", f"job {job.parent_id}" if job.parent_id else ""),
        ("tags", plain(", ".join(f"{name}={value}" for name, value in job.tags.items()))),
    ]
    return [(name, value) for name, value in facts if value]


def _on(job: JobDetail) -> str:
    shares = ", ".join(f"{plain(share.host)}:{share.workers}" for share in job.hosts)
    return f" on {shares}" if shares else ""


def _needs(job: JobDetail) -> str:
    resources = job.spec.resources
    labels = [resources.hosts] if isinstance(resources.hosts, str) else list(resources.hosts)
    parts = [plural(resources.gpus, "GPU")] if resources.gpus else []
    parts.append(plural(resources.cpus, "core"))
    parts += [f"{resources.memory} of memory"] if resources.memory else []
    return plain(", ".join(parts) + " a worker" + (f", hosts with {', '.join(labels)}" if labels else ""))


def attempt_table(job: JobDetail) -> list[str]:
    """Return the lines of a table of a job's attempts."""
    rows = [("attempt", "started", "took", "hosts", "exit", "message")]
    for one in job.attempts:
        took = duration((one.ended_ms or time.time() * 1000) - one.started_ms)
        shares = ",".join(f"{plain(share.host)}:{share.workers}" for share in one.hosts)
        code = "-" if one.code is None else str(one.code)
        rows.append((str(one.number), moment(one.started_ms), took, shares, code, plain(one.message or "")))
    return format_table(rows, left=("started", "hosts", "message"))


def metric_table(job: JobDetail) -> list[str]:
    """Return the lines of a table of a job's metrics: its own first, then those of its hosts, which have no steps."""
    rows = [("metric", "last", "step", "lowest", "highest", "points")]
    for one in sorted(job.metrics, key=lambda metric: (metric.name.startswith(SYSTEM), metric.name)):
        step = "-" if one.last_step is None or one.name.startswith(SYSTEM) else str(one.last_step)
        values = (number(one.last), step, number(one.lowest), number(one.highest))
        rows.append((plain(one.name), *values, str(one.points)))
    return format_table(rows, left=("metric",))


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one a line."""
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        click.echo(f"{name.ljust(width)}  {value}")
