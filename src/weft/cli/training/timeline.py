"""`weft timeline`: what happened in an elastic run, and how long each change took."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.paths import OutputFile, write_output

if TYPE_CHECKING:
    from weft.elastic.history.timeline import Event, MembershipChange

_POLL_S = 0.2


@click.command("timeline")
@click.argument("run", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print changes and events as data.")
@click.option(
    "--plot",
    type=OutputFile(),
    metavar="FILE.svg",
    help="Draw the run: who was there, and what each change took.",
)
@click.option("--follow", is_flag=True, help="Print each change when it is over, until the run ends.")
def command(run: str, as_json: bool, plot: Path | None, follow: bool) -> None:
    """Show each change of an elastic run: detected, agreed, groups made, state healed, first step.

    RUN is a run directory, or `latest`. With --follow, --json prints one object a line.
    """
    from weft.elastic.history.timeline import changes, read_events
    from weft.elastic.history.timeline_table import render_table, summarise
    from weft.launch.control.rundir import find_run

    folder = find_run(run)
    events = _follow(folder, as_json) if follow else read_events(folder)
    found = changes(events)
    summary = summarise(found, events)
    if plot is not None:
        from weft.elastic.history.timeline_svg import render_svg

        write_output(plot, render_svg(found, events, title=folder.resolve().name))
    if follow and as_json:
        return
    if as_json:
        data = {
            "run": str(folder),
            "changes": [change.to_json() for change in found],
            "summary": summary.to_json(),
            "events": [event.to_json() for event in events],
        }
        click.echo(json.dumps(data, indent=2))
        return
    if not follow and found:
        click.echo(render_table(found, events[0].t))
    click.echo(str(summary))


def _follow(folder: Path, as_json: bool) -> tuple[Event, ...]:
    """Print rows as they become complete; the events, when the run is over."""
    from weft.elastic.history.timeline import changes, complete, ended

    shown = 0
    while True:
        # The outcome is looked for first: what agents write, they have written before it.
        over = (folder / "outcome.json").exists()
        events = _events_so_far(folder)
        over = over or ended(events)
        found = changes(events)
        ready = found if over else complete(found)
        if ready[shown:]:
            _print(ready[shown:], events[0].t, as_json, first=not shown)
        shown = max(shown, len(ready))
        if over:
            return events
        time.sleep(_POLL_S)


def _events_so_far(folder: Path) -> tuple[Event, ...]:
    """None, before the first agent has written something."""
    from weft.elastic.history.lines import EVENTS
    from weft.elastic.history.timeline import read_events

    return read_events(folder) if any((folder / "elastic").glob(f"*.{EVENTS}.jsonl")) else ()


def _print(found: tuple[MembershipChange, ...], start: float, as_json: bool, *, first: bool) -> None:
    from weft.elastic.history.timeline_table import stream_rows

    lines = (
        [json.dumps(change.to_json()) for change in found]
        if as_json
        else stream_rows(found, start, heads=first)
    )
    for line in lines:
        click.echo(line)
