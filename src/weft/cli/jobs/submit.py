"""`weft submit`: queue a job, from a file or from a command."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.jobs.options import (
    JOB,
    LABEL,
    NAME_OF_JOB,
    PRIORITY,
    TAG,
    VARIABLE_NAME,
    Duration,
    Variable,
    json_option,
    open_client,
    print_data,
    url_option,
)
from weft.cli.jobs.printing import plain, said_of
from weft.cli.paths import ExistingFolder
from weft.cli.values import COUNT, Real, Size, Text, Whole, WorkerLimits
from weft.errors import UsageError
from weft.text import format_size, format_table, plural

if TYPE_CHECKING:
    from weft.jobs.api.types.jobs import SubmitAnswer
    from weft.jobs.client.client import JobsClient
    from weft.jobs.client.upload import UploadState
    from weft.jobs.spec.model import JobSpec

SPEC_ENDINGS = (".yaml", ".yml", ".json")
TELL_EVERY_S = 5.0  # of a long upload, where no terminal shows its progress


class Submit(click.Command):
    """A command whose options may follow a file, but not a script: what follows a script belongs to it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before = args[: args.index("--")] if "--" in args else args
        ctx.allow_interspersed_args = False
        words = self._words(ctx, args)
        if len(words) > 1 and is_spec(words[0]) and words[0] in before:
            ctx.allow_interspersed_args = True
        return super().parse_args(ctx, args)

    def _words(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the words that are no options."""
        try:
            found = self.make_parser(ctx).parse_args(list(args))[0].get("command")
        except click.UsageError:
            return []  # the real parsing will say it
        return list(found) if isinstance(found, tuple) else []  # click has a mark of its own for nothing


def is_spec(word: str) -> bool:
    """Return whether a word names a file with a specification; - is standard input."""
    return word == "-" or word.endswith(SPEC_ENDINGS)


@click.command("submit", cls=Submit)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="job.yaml | [--] train.py ARGS...")
@click.option(
    "-n", "--workers", type=WorkerLimits(), metavar="N|MIN:MAX", help="Workers; MIN:MAX is elastic."
)
@click.option("--gpus", type=Real(0, 1024, example=1), help="Accelerators of a worker.")
@click.option("--cpus", type=Real(0, 65_536, example=4), help="Cores of a worker.")
@click.option("--memory", type=Size("16GiB"), metavar="SIZE", help="Memory of a worker.")
@click.option(
    "--on", "labels", type=LABEL, multiple=True, metavar="LABEL", help="Only on hosts with this label."
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "ssh", "mpi", "slurm", "kubernetes"]),
    help="What starts the workers.",
)
@click.option(
    "--image", type=Text("an image", "team/train:2"), metavar="IMAGE", help="With kubernetes: of the pods."
)
@click.option("--pods", type=COUNT, metavar="N", help="With kubernetes: how many pods.")
@click.option("--name", type=NAME_OF_JOB, help="The job's name; the script's by default.")
@click.option("--project", type=NAME_OF_JOB, help="The project that it belongs to.")
@click.option(
    "--env", type=Variable(), multiple=True, metavar="NAME=VALUE", help="A variable of its workers."
)
@click.option("--secret", "secrets", type=VARIABLE_NAME, multiple=True, metavar="NAME",
              help="A secret of yours that its workers get as a variable; see weft secret.")  # fmt: skip
@click.option("--tag", "tags", type=TAG, multiple=True, metavar="NAME=VALUE", help="A tag to find it by.")
@click.option("--queue", type=NAME_OF_JOB, help="The queue that it waits in.")
@click.option(
    "--priority", type=PRIORITY, metavar="0-100", help="Its rank among waiting jobs; 50 by default."
)
@click.option("--after", type=JOB, multiple=True, metavar="JOB", help="Start once this job has completed.")
@click.option("--max-time", type=Duration(), metavar="4h", help="End it after this time.")
@click.option("--retries", type=Whole(0, 1000, example=2), help="Try again so often after a failure.")
@click.option("--hold", is_flag=True, help="Wait for weft job release.")
@click.option("--code", type=ExistingFolder(), metavar="DIR", help="The folder that is sent along.")
@click.option("--dry-run", is_flag=True, help="Check it against the service, send and queue nothing.")
@click.option("-f", "--follow", "follows", is_flag=True, help="Print its log until it has ended.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of job.yaml, for editors.")
@url_option
@json_option
def command(command: tuple[str, ...], url: str | None, as_json: bool, **options: Any) -> int:
    """Queue a job: the one that job.yaml describes, or a script with its arguments.

    The folder of the job goes along, but for what .gitignore and .weftignore name; only what the service does not
    have yet is sent. Options count more than the file.
    """
    try:
        from weft.jobs.spec.read import schema
    except ModuleNotFoundError as error:
        from weft.cli.jobs.options import missing_extra

        raise missing_extra(error) from None
    if options["schema"]:
        click.echo(json.dumps(schema(), indent=2))
        return 0
    if options["follows"] and (as_json or options["dry_run"]):
        raise UsageError("--follow must be without --json and --dry-run, got both; choose one")
    spec, code = make_spec(command, options)
    with open_client(url) as client:
        return _submit(client, spec, code, as_json, options)


def make_spec(command: tuple[str, ...], options: dict[str, Any]) -> tuple[JobSpec, Path | None]:
    """Return the checked specification behind a command line, and the folder of its code on this machine."""
    from weft.jobs.client.upload import check_script
    from weft.jobs.spec.model import GitCode
    from weft.jobs.spec.read import convert_spec

    if not command or not command[0]:
        raise UsageError("weft submit must have a job.yaml or a script, got none; write weft submit train.py")
    if is_spec(command[0]):
        if len(command) > 1:
            raise UsageError(
                f"a specification must stand alone, got {command[1]!r} after it; write run: in the file"
            )
        found, home = _read(command[0])
    else:
        found, home = {"run": list(command)}, Path()
    spec = convert_spec(overridden(found, options))
    code = options["code"] or (None if isinstance(spec.code, GitCode) else home / spec.code)
    check_script(spec, code)
    return spec, code


def _read(word: str) -> tuple[dict[str, Any], Path]:
    import msgspec

    from weft.documents import read_text
    from weft.jobs.spec.read import read_spec

    if word == "-":
        return msgspec.to_builtins(read_spec(sys.stdin.read())), Path()
    text = read_text(Path(word), kind="a job's file", error=UsageError)
    found: dict[str, Any] = msgspec.to_builtins(read_spec(text))
    return found, Path(word).parent


def overridden(found: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return a specification with the options of the command line in place."""
    fewest, most = options["workers"] or (None, None)
    resources = {name: options[name] for name in ("gpus", "cpus", "memory")}
    queue = {"name": options["queue"], "priority": options["priority"], "max_time": options["max_time"]}
    changed: dict[str, Any] = {
        "name": options["name"],
        "project": options["project"],
        "engine": options.get("engine"),
        "kubernetes": {"image": options.get("image"), "pods": options.get("pods")},
        "workers": None if fewest is None else most if fewest == most else f"{fewest}:{most}",
        "resources": {**resources, "hosts": options["labels"] or None},
        "env": dict(options["env"]),
        "tags": dict(options["tags"]),
        "secrets": (*found.get("secrets", ()), *options["secrets"]) if options["secrets"] else None,
        "queue": {**queue, "hold": options["hold"] or None, "after": options["after"] or None},
        "retry": {"max": options["retries"]},
    }
    return _merged(found, changed)


def _merged(found: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """Return fields with those changes that were given; mappings are merged."""
    result = dict(found)
    for name, value in changed.items():
        if isinstance(value, dict):
            inner = result.get(name)
            value = _merged(inner if isinstance(inner, dict) else {}, value)
            if not value:
                continue
        if value is not None:
            result[name] = value
    return result


def _submit(
    client: JobsClient, spec: JobSpec, code: Path | None, as_json: bool, options: dict[str, Any]
) -> int:
    from weft.cli.jobs.following import follow

    _warn_of_secrets(spec)
    if options["dry_run"]:
        _print_plan(client.plan(spec, code), as_json)
        return 0
    made = client.submit(spec, code, progress=None if as_json else UploadLine(), tell=_note)
    if as_json:
        print_data([job.view for job in made])
        return 0
    for job in made:
        click.echo(said_of(job.view))
    if options["follows"]:
        return max(follow(job) for job in made)
    click.echo(
        f"weft: weft logs -f {made[0].id} follows it, {client.url}/jobs/{made[0].id} shows it", err=True
    )
    return 0


def _warn_of_secrets(spec: JobSpec) -> None:
    from weft.launch.masking import looks_secret

    for name in spec.env:
        if looks_secret(name):
            click.echo(
                f"weft: env.{name} looks like a secret, and specifications are kept and shown; "
                f"write `weft secret set {name}`, and --secret {name} in its place",
                err=True,
            )


def _note(text: str) -> None:
    click.echo(f"weft: {text}", err=True)


def _print_plan(answer: SubmitAnswer, as_json: bool) -> None:
    if as_json:
        print_data(answer)
        return
    for text in answer.notes:
        _note(text)
    rows = [("job", "workers", "runs")]
    for job in answer.plan or ():
        wanted = (
            f"{job.min_workers}:{job.max_workers}"
            if job.min_workers != job.max_workers
            else str(job.max_workers)
        )
        rows.append((plain(job.name), wanted, plain(job.command)))
    click.echo("\n".join(format_table(rows, left=("job", "runs"))))
    click.echo("weft: nothing was queued", err=True)


class UploadLine:
    """Progress of an upload: a line that is written anew at a terminal, or a line every few seconds elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._told_s = time.monotonic()

    def __call__(self, state: UploadState) -> None:
        last = state.files == state.all_files
        line = f"sent {state.files} of {plural(state.all_files, 'file')}, {format_size(state.sent_bytes)}"
        line += f" of {format_size(state.all_bytes)}"
        if self._terminal:
            click.echo(f"\r\x1b[Kweft: {line}", nl=last, err=True)
        elif last or time.monotonic() - self._told_s > TELL_EVERY_S:
            self._told_s = time.monotonic()
            click.echo(f"weft: {line}", err=True)
