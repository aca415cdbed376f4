"""Following a job at a terminal: why it waits, its log lines as they come, and how it ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from weft.cli.failures import INTERRUPTED
from weft.cli.jobs.printing import plain, said_of, waits

if TYPE_CHECKING:
    from weft.jobs.api.types.jobs import JobView
    from weft.jobs.api.types.reports import LogLineView
    from weft.jobs.client.job import JobHandle

LAUNCHER = -1  # the rank of the launcher's own lines
LOOK_EVERY_S = 0.5  # at a job that waits


def log_line(line: LogLineView) -> str:
    """Return a log line as `weft run` prints it: with its rank."""
    return f"[{'launcher' if line.rank == LAUNCHER else line.rank}] {plain(line.text)}"


def follow(
    job: JobHandle, *, rank: int | None = None, grep: str | None = None, tail: int | None = None
) -> int:
    """Print a job's lines until it has ended, over retries and restarts of the service; return the exit code."""
    try:
        return _follow(job, rank, grep, tail)
    except KeyboardInterrupt:
        click.echo(
            f"weft: job {job.id} goes on; weft logs -f {job.id} shows it again, weft job stop {job.id} ends it",
            err=True,
        )
        return INTERRUPTED


def _follow(job: JobHandle, rank: int | None, grep: str | None, tail: int | None) -> int:
    from weft.jobs.lifecycle import ENDED

    while True:
        found = wait_for_start(job)
        for line in job.logs(follow=True, rank=rank, grep=grep, tail=tail, attempt=found.attempt or None):
            click.echo(log_line(line))
        ended = job.refresh()
        if ended.state in ENDED:
            click.echo(f"weft: {said_of(ended)}", err=True)
            return 0 if ended.state == "completed" else 1
        if ended.attempt == found.attempt:
            time.sleep(LOOK_EVERY_S)  # storing, or about to be tried again
            tail = 0


def wait_for_start(job: JobHandle) -> JobView:
    """Wait until a job has started once, and say on the way why it waits."""
    from weft.jobs.client.address import ServiceMissingError
    from weft.jobs.lifecycle import WAITING

    printed = ""
    while True:
        try:
            found = job.refresh()
        except ServiceMissingError:  # it may be about to be started again; reading the log says so otherwise
            time.sleep(LOOK_EVERY_S)
            found = job.refresh()
        if found.state not in WAITING:
            return found
        if found.reason is not None and found.reason.text != printed:
            click.echo(f"weft: job {job.id} waits: {waits(found.reason, time.time() * 1000)}", err=True)
            printed = found.reason.text
        time.sleep(LOOK_EVERY_S)
