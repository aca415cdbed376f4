"""`weft jobs`: what runs, what waits and why, what has ended."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from weft.cli.jobs.options import NAME_OF_JOB, USER_NAME, json_option, open_client, print_data, url_option
from weft.cli.jobs.printing import job_table
from weft.cli.values import Text, Whole, Words
from weft.text import plural

if TYPE_CHECKING:
    from weft.jobs.api.types.jobs import JobsAnswer
    from weft.jobs.client.client import JobsClient

STATES = (
    "held",
    "queued",
    "staging",
    "starting",
    "running",
    "storing",
    "paused",
    "completed",
    "failed",
    "stopped",
)
GROUPS = {"waiting": ("held", "queued", "paused"), "active": ("staging", "starting", "running", "storing"),
          "ended": ("completed", "failed", "stopped")}  # fmt: skip
SORTS = ("id", "-id", "name", "-name", "priority", "-priority", "created", "-created", "ended", "-ended")
REDRAW_EVERY_S = 2.0


@click.command("jobs")
@click.option("--state", type=Words((*STATES, *GROUPS)), default=(), metavar="STATE,...",
              help=f"Only jobs in these states; also {', '.join(GROUPS)}.")  # fmt: skip
@click.option("--project", type=NAME_OF_JOB, help="Only jobs of a project.")
@click.option("--user", type=USER_NAME, help="Only jobs of a user.")
@click.option("-q", "--search", type=Text("a text to search for", "digits"), metavar="TEXT",
              help="Only jobs with this in their name, or with a tag NAME=VALUE.")  # fmt: skip
@click.option("--sort", type=click.Choice(SORTS), default="-id", show_default=True, help="The order.")
@click.option(
    "-n", "--limit", type=Whole(1, 1000, example=50), default=50, show_default=True, help="Most rows."
)
@click.option("-w", "--watch", is_flag=True, help="Go on showing what changes, until Ctrl-C.")
@url_option
@json_option
def command(url: str | None, watch: bool, as_json: bool, **filters: Any) -> None:
    """List jobs: each that waits says why, its place, and its earliest start."""
    with open_client(url) as client:
        query = _query(filters)
        if not watch:
            _print(client.jobs_page(query), as_json)
        elif as_json or not sys.stdout.isatty():
            _print_changes(client, query, as_json)
        else:
            _redraw(client, query)


def _query(filters: dict[str, Any]) -> dict[str, Any]:
    states = [state for word in filters["state"] for state in GROUPS.get(word, (word,))]
    return {
        "state": states,
        "project": filters["project"],
        "user": filters["user"],
        "q": filters["search"],
        "sort": filters["sort"],
        "limit": filters["limit"],
    }


def _print(page: JobsAnswer, as_json: bool) -> None:
    if as_json:
        print_data(page)
        return
    for line in _lines(page):
        click.echo(line)


def _lines(page: JobsAnswer) -> list[str]:
    if not page.jobs:
        return ["no jobs; submit one with weft submit train.py"]
    lines = job_table(page.jobs)
    more = page.total - len(page.jobs)
    return [*lines, f"and {plural(more, 'more job')}; --limit shows more"] if more > 0 else lines


def _redraw(client: JobsClient, query: dict[str, Any]) -> None:
    from weft.jobs.client.address import ServiceMissingError

    while True:
        try:
            lines = _lines(client.jobs_page(query))
        except ServiceMissingError as error:  # it may come back
            lines = [str(error)]
        width, height = _terminal()
        click.clear()
        shown = [line[:width] for line in lines[: height - 2]]
        click.echo("\n".join([*shown, "", time.strftime("%H:%M:%S")]), nl=False)
        time.sleep(REDRAW_EVERY_S)


def _terminal() -> tuple[int, int]:
    import shutil

    size = shutil.get_terminal_size()
    return size.columns, max(4, size.lines)


def _print_changes(client: JobsClient, query: dict[str, Any], as_json: bool) -> None:
    """Print each job once, and again whenever it changes, for programs that read us."""
    from weft.cli.jobs.printing import said_of

    printed: dict[int, str] = {}
    for _ in client.events(["jobs"]):
        for job in reversed(client.jobs_page(query).jobs):
            said = f"{job.state} {job.workers} {job.wanted} {job.priority} {job.attempt}"
            if printed.get(job.id) != said:
                printed[job.id] = said
                print_data(job) if as_json else click.echo(said_of(job))
        sys.stdout.flush()
