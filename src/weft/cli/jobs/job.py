"""`weft job`: look at one job, act on it, fetch its files, compare it with another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.jobs.options import (
    JOB,
    PRIORITY,
    confirm,
    json_option,
    open_client,
    print_data,
    print_removed,
    url_option,
    yes_option,
)
from weft.cli.jobs.printing import (
    attempt_table,
    job_facts,
    metric_table,
    moment,
    plain,
    print_facts,
    said_of,
)
from weft.cli.paths import OutputFolder
from weft.cli.values import WORKERS, NameValue, Text
from weft.text import format_size, plural

if TYPE_CHECKING:
    from weft.jobs.api.types.files import DiffAnswer
    from weft.jobs.api.types.jobs import JobDetail, JobView
    from weft.jobs.api.types.reports import EventView
    from weft.jobs.client.job import JobHandle

SHOWN_METRICS = 20
ACTIONS = {
    "stop": "Stop jobs; those that run are asked to end.",
    "pause": "Give back the workers of running jobs at their last checkpoint.",
    "resume": "Queue paused jobs again.",
    "retry": "Run jobs that have ended again, with the same code.",
    "hold": "Keep waiting jobs from starting.",
    "release": "Let held jobs start.",
}


@click.group("job")
def command() -> None:
    """Look at one job, act on it, fetch its files, compare it with another."""


@command.command("show")
@click.argument("job", type=JOB)
@url_option
@json_option
def show(job: int, url: str | None, as_json: bool) -> None:
    """Print what is known of JOB: state, reason, attempts, metrics, findings."""
    with open_client(url) as client:
        found = client.job(job).refresh()
    if as_json:
        print_data(found)
        return
    print_facts(job_facts(found))
    if found.attempts:
        click.echo("\n" + "\n".join(attempt_table(found)))
    if found.metrics:
        click.echo("\n" + "\n".join(metric_table(found)[: SHOWN_METRICS + 1]))
        if len(found.metrics) > SHOWN_METRICS:
            click.echo(f"and {plural(len(found.metrics) - SHOWN_METRICS, 'more metric')}; --json shows all")
    for finding in found.findings:
        click.echo(f"\n{finding.severity}: {plain(finding.text)} ({plain(finding.rule)})")
    click.echo(f"\nweft: {_next(found)}", err=True)


def _next(job: JobDetail) -> str:
    """Return what to do with a job."""
    if job.state == "failed":
        return f"weft logs {job.id} --tail 50 shows why, weft job retry {job.id} tries again"
    if job.state in ("completed", "stopped"):
        return f"weft job pull {job.id} fetches its outputs, weft job clone {job.id} runs it again"
    return f"weft logs -f {job.id} follows it"


def _add_action(name: str, text: str) -> None:
    """Add a verb that asks for one action on some jobs."""

    @command.command(name, help=text)
    @click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
    @url_option
    @json_option
    def act(jobs: tuple[int, ...], url: str | None, as_json: bool) -> None:
        with open_client(url) as client:
            _print([getattr(client.job(job), name)() for job in jobs], as_json)


for _name, _text in ACTIONS.items():
    _add_action(_name, _text)


def _add_pin(name: str, pinned: bool, text: str) -> None:
    """Add a verb that keeps jobs from being removed, or no longer does."""

    @command.command(name, help=text)
    @click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
    @url_option
    @json_option
    def pin(jobs: tuple[int, ...], url: str | None, as_json: bool) -> None:
        with open_client(url) as client:
            _print([client.job(job).change(pinned=pinned) for job in jobs], as_json)


_add_pin("pin", True, "Keep jobs for good: neither retention nor `weft job rm` removes them.")
_add_pin("unpin", False, "Let jobs be removed again.")


def _print(jobs: list[JobView], as_json: bool) -> None:
    if as_json:
        print_data(jobs)
        return
    for job in jobs:
        click.echo(said_of(job))


@command.command("scale")
@click.argument("job", type=JOB)
@click.argument("workers", type=WORKERS)
@url_option
@json_option
def scale(job: int, workers: int, url: str | None, as_json: bool) -> None:
    """Give the elastic JOB another number of WORKERS while it goes on."""
    with open_client(url) as client:
        _print([client.job(job).scale(workers)], as_json)


@command.command("priority")
@click.argument("job", type=JOB)
@click.argument("value", type=PRIORITY, metavar="0-100")
@url_option
@json_option
def priority(job: int, value: int, url: str | None, as_json: bool) -> None:
    """Change the priority of JOB among those that wait."""
    with open_client(url) as client:
        _print([client.job(job).change(priority=value)], as_json)


@command.command("clone")
@click.argument("job", type=JOB)
@click.option("--set", "changes", type=NameValue("FIELD=VALUE", "queue.priority=80", empty=True), multiple=True,
              metavar="FIELD=VALUE", help="A field of the specification to change: workers=2:4.")  # fmt: skip
@url_option
@json_option
def clone(job: int, changes: tuple[tuple[str, str], ...], url: str | None, as_json: bool) -> None:
    """Queue JOB again: the same code and specification, but for what --set changes."""
    with open_client(url) as client:
        made = client.job(job).clone({name: _value(text) for name, text in changes})
        _print([one.view for one in made], as_json)


def _value(text: str) -> Any:
    """Return a value as YAML has it: 3 is a number, true a truth value, [a, b] a list, 2:8 text."""
    import yaml

    from weft.documents import parse_yaml

    try:
        return parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError, TypeError):
        return text


@command.command("rm")
@click.argument("jobs", type=JOB, nargs=-1, required=True, metavar="JOB...")
@yes_option
@url_option
@json_option
def remove(jobs: tuple[int, ...], yes: bool, url: str | None, as_json: bool) -> None:
    """Remove jobs that have ended, with their logs, metrics and files."""
    named = ", ".join(map(str, jobs))
    confirm(f"remove {plural(len(jobs), 'job')} ({named}) with all files?", yes)
    with open_client(url) as client:
        for job in jobs:
            client.job(job).remove()
    print_removed(list(jobs), as_json, named)


@command.command("pull")
@click.argument("job", type=JOB)
@click.argument("path", type=Text("a path among the job's outputs", "model.pt"), required=False)
@click.option("-o", "--output", type=OutputFolder(), metavar="DIR", help="Where to (weft-jobs/ID).")
@click.option("--code", is_flag=True, help="The code that it ran in place of its outputs.")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Checkpoints, artifacts and earlier attempts, too; PATH begins above them.",
)
@click.option("--list", "listed", is_flag=True, help="Print the paths, copy nothing.")
@url_option
@json_option
def pull(
    job: int, path: str | None, output: Path | None, url: str | None, as_json: bool, **what: bool
) -> None:
    """Copy the outputs of JOB here, or what lies at PATH among them."""
    target = output if output is not None else Path("weft-jobs") / str(job)
    with open_client(url) as client:
        handle = client.job(job)
        if what["code"]:
            found = [str(place) for _, place in handle.pull_code(target)]
        else:
            root = "" if what["every"] else handle.outputs()
            wanted = f"{root}/{path}".strip("/") if path else root
            found = (
                _paths_below(handle, wanted)
                if what["listed"]
                else _pull_files(handle, target, wanted, as_json)
            )
    if as_json:
        click.echo(json.dumps(found))
    elif not found:
        click.echo(f"weft: job {job} has no files there; --all --list shows all that it has", err=True)
    else:
        click.echo(
            "\n".join(map(plain, found)) if what["listed"] else f"{plural(len(found), 'file')} in {target}"
        )


def _paths_below(handle: JobHandle, path: str) -> list[str]:
    return [entry.path for entry in handle.all_files(path)]


def _pull_files(handle: JobHandle, target: Path, path: str, as_json: bool) -> list[str]:
    return [str(_print_pulled(place, entry.size, as_json)) for entry, place in handle.pull(target, path)]


def _print_pulled(place: Path, size: int, as_json: bool) -> Path:
    if not as_json:
        click.echo(f"weft: {plain(str(place))}, {format_size(size)}", err=True)
    return place


@command.command("events")
@click.argument("job", type=JOB)
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on until the job has ended.")
@url_option
@json_option
def events(job: int, follows: bool, url: str | None, as_json: bool) -> None:
    """Print what happened to JOB: states, attempts, resizes, findings, who did what."""
    tell: Callable[[EventView], None] = print_data if as_json else lambda one: click.echo(_event(one))
    with open_client(url) as client:
        handle = client.job(job)
        last = 0
        for event in handle.events():
            tell(event)
            last = event.id
        if not follows:
            return
        from weft.jobs.lifecycle import ENDED

        for _ in handle.changes():
            for event in handle.events(after=last):
                tell(event)
                last = event.id
            if handle.state in ENDED:
                return


def _event(event: EventView) -> str:
    data = {name: value for name, value in event.data.items() if name != "job" and value is not None}
    said = []
    if event.kind == "state":
        before, after = data.pop("before", None), data.pop("state", "")
        said = [f"{before} -> {after}" if before else str(after)]
    elif event.kind == "note":
        said = [str(data.pop("text", ""))]
    said += [f"{name} {_shown(value)}" for name, value in data.items()]
    return f"{moment(event.time_ms)}  {plain(event.kind)}  {plain(', '.join(said))}".rstrip()


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@command.command("diff")
@click.argument("job", type=JOB)
@click.argument("other", type=JOB)
@url_option
@json_option
def diff(job: int, other: int, url: str | None, as_json: bool) -> None:
    """Print how OTHER differs from JOB: specification, code, environment."""
    with open_client(url) as client:
        found = client.job(job).diff(other)
    if as_json:
        print_data(found)
        return
    lines = _diff_lines(found)
    click.echo("\n".join(lines) if lines else f"jobs {job} and {other} are the same")


def _diff_lines(found: DiffAnswer) -> list[str]:
    lines = []
    for title, values in (("spec", found.spec), ("environment", found.environment)):
        for one in values:
            before, after = (plain("nothing" if text is None else text) for text in (one.before, one.after))
            lines.append(f"{title}  {plain(one.path)}: {before} -> {after}")
    for file in found.code:
        lines.append(f"code  {plain(file.path)} {file.change}")
        lines += [f"    {plain(line)}" for line in (file.diff or "").splitlines()]
    if found.truncated:
        lines.append("and more files; --json shows as many as the service tells")
    return lines
