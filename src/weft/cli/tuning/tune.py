"""`weft tune`: search for good parameters of a script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.jobs.options import NAME_OF_JOB, Duration, json_option, print_data, url_option
from weft.cli.jobs.submit import Submit, is_spec
from weft.cli.paths import ExistingFile, ExistingFolder
from weft.cli.values import NameValue, Real, Text, Whole, WorkerLimits
from weft.errors import UsageError

if TYPE_CHECKING:
    from weft.tune.study.config import StudyConfig

SPACE = NameValue("NAME=DOMAIN", "lr=log:1e-5:1e-1")
METRIC = Text("the name of a metric", "loss", like=r"[!-~]{1,250}")
PART = Text("a name, with options after colons", "asha:eta=4", like=r"[A-Za-z][\w-]*(:[\w-]+=[^:]+)*")
EARLIER = Text(
    "the name or the number of a study, or a file of trials",
    "digits",
    like=r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}|[^\x00-\x1f]+\.(csv|json|parquet)",
)
RESOURCE = Text(
    "NAME:MAX or NAME:MIN:MAX with whole numbers", "epochs:27", like=r"[A-Za-z_][\w.-]*(:[0-9]{1,12}){1,2}"
)


@click.command("tune", cls=Submit)
@click.argument(
    "command", nargs=-1, type=click.UNPROCESSED, metavar="study.yaml | [--] train.py --lr {lr} ..."
)
@click.option("--space", type=SPACE, multiple=True, metavar="NAME=DOMAIN",
              help="A parameter: lr=log:1e-5:1e-1, width=int:16:512, optimizer=adam,sgd.")  # fmt: skip
@click.option("--constraint", "constraints", type=Text("an expression", "a * b <= 4096"), multiple=True,
              help="What every point must meet: 'batch * width <= 4096'.")  # fmt: skip
@click.option(
    "--minimize", type=METRIC, multiple=True, metavar="METRIC", help="A metric that is to be small."
)
@click.option(
    "--maximize", type=METRIC, multiple=True, metavar="METRIC", help="A metric that is to be large."
)
@click.option("--search", type=PART, metavar="NAME",
              help="tpe (default), gp, cmaes, nsga2, qmc, random, grid, list.")  # fmt: skip
@click.option("--schedule", type=PART, metavar="NAME", help="none (default), asha, hyperband, pbt, median.")
@click.option("--resource", type=RESOURCE, metavar="NAME:[MIN:]MAX",
              help="What trials are given more of: epochs:27; epochs:1:27 compares them after 1.")  # fmt: skip
@click.option("--stop-if", "stop_if", type=PART, multiple=True, metavar="RULE",
              help="median, or threshold:above=10.")  # fmt: skip
@click.option("--point", "points", type=Text("NAME=VALUE,...", "lr=0.1,optimizer=adam"), multiple=True,
              metavar="NAME=VALUE,...", help="A point to try first.")  # fmt: skip
@click.option("-t", "--trials", type=Whole(1, 1_000_000, example=50), help="Most trials.")
@click.option("--time", "time_limit", type=Duration(), metavar="2h", help="Most time.")
@click.option("--gpu-hours", type=Real(0, 1e9, above=0, example=8), help="Most GPU-hours.")
@click.option(
    "--target", type=Real(-1e300, 1e300, example=0.98), help="A value of the metric that ends the study."
)
@click.option("--no-better-for", type=Whole(1, 1_000_000, example=20), metavar="N",
              help="End after N trials that are not better.")  # fmt: skip
@click.option("-p", "--parallel", type=Whole(1, 4096, example=2), help="Trials at a time.")
@click.option("--seed", type=Whole(0, 2**62, example=7), help="The seed of all suggestions.")
@click.option("--name", type=NAME_OF_JOB, help="The study's name; the script's by default.")
@click.option("--config", type=ExistingFile("a config file"), metavar="FILE",
              help="Its entries, with parameters in place, are the file {config}.")  # fmt: skip
@click.option(
    "--no-checkpoints", is_flag=True, help="Stop bad trials; the script saves nothing to go on from."
)
@click.option(
    "--warm-start",
    type=EARLIER,
    metavar="STUDY|FILE",
    help="Use the trials of an earlier study; here also those of a .csv, .json or .parquet.",
)
@click.option("--service/--local", "service", default=None,
              help="As jobs of the service, or here; the service where you are logged in.")  # fmt: skip
@click.option(
    "-n", "--workers", type=WorkerLimits(), metavar="N|MIN:MAX", help="Workers of a trial that is a job."
)
@click.option("--gpus", type=Real(0, 1024, example=1), help="Accelerators of a worker.")
@click.option("--cpus", type=Real(0, 65_536, example=4), help="Cores of a worker of a job.")
@click.option(
    "--code", type=ExistingFolder(), metavar="DIR", help="The folder that is sent along to a service."
)
@click.option("--dry-run", is_flag=True, help="Check it and print the first points; run nothing.")
@click.option("-f/-d", "--follow/--detach", "follows", default=True, help="Watch a study of the service.")
@url_option
@json_option
def command(command: tuple[str, ...], url: str | None, as_json: bool, **options: Any) -> int:
    """Search for good parameters of a script: the study in study.yaml, or a command with {placeholders}.

    The script reports with weft.log(loss=..., step=...) or prints lines of JSON; nothing else of it changes. Bad trials
    are paused early, and good ones go on from what they saved in the folder WEFT_CHECKPOINT.
    """
    config, home = make_config(command, options)
    if options["dry_run"]:
        return _print_plan(config, as_json)
    from weft.cli.tuning.remote import runs_in_service, submit_study

    if runs_in_service(options["service"], url):
        return submit_study(
            config,
            options["code"] or home,
            url,
            warm_start=options["warm_start"],
            as_json=as_json,
            follows=options["follows"],
        )
    return _run_here(config, options, as_json)


def make_config(command: tuple[str, ...], options: dict[str, Any]) -> tuple[StudyConfig, Path]:
    """Return the checked settings behind a command line, and the folder that they are relative to."""
    import msgspec

    from weft.tune.study.config import check_command, check_config, convert_config, read_config

    found: dict[str, Any] = {}
    home = Path()
    if command and is_spec(command[0]):
        if len(command) > 1:
            raise UsageError(
                f"a study's file must stand alone, got {command[1]!r} after it; write run: in the file"
            )
        found, home = msgspec.to_builtins(read_config(Path(command[0]))), Path(command[0]).parent
        if found.get("name") == "study":
            found["name"] = Path(command[0]).stem
    elif command:
        name = Path(command[1] if command[0] == "-m" and len(command) > 1 else command[0]).stem
        found = {"run": list(command), "space": {}, "name": "".join(c if c.isalnum() else "-" for c in name)}
    else:
        raise UsageError(
            "weft tune must have a study.yaml or a command, got none; write weft tune --space lr=log:1e-5:1e-1 "
            "--minimize loss --trials 20 train.py --lr {lr}"
        )
    _override(found, options)
    config = convert_config(found)
    check_command(config, check_config(config))
    _check_parts(config)
    if config.budget == type(config.budget)() and config.search not in ("grid", "list"):
        raise UsageError(
            "a study must have a budget, got none; write --trials 50, --time 2h or --no-better-for 20"
        )
    return config, home


def _check_parts(config: StudyConfig) -> None:
    from weft.tune.samplers.base import make_searcher
    from weft.tune.schedulers.registry import make_rule, make_scheduler

    make_searcher(config)
    make_scheduler(config.schedule)
    for rule in config.stop_if:
        make_rule(rule)


def _override(found: dict[str, Any], options: dict[str, Any]) -> None:
    """Put the options of the command line over the file's."""
    for name, text in options["space"]:
        found["space"] = {**found["space"], name: text}
    for name in ("minimize", "maximize"):
        if options[name]:
            found[name] = list(options[name])
    for name in ("search", "schedule"):
        if options[name]:
            found[name] = part_of(options[name])
    if options["constraints"]:
        found["constraints"] = list(options["constraints"])
    if options["stop_if"]:
        found["stop_if"] = [part_of(text) for text in options["stop_if"]]
    if options["resource"]:
        name, *first, most = options["resource"].split(":")
        found["resource"] = {"name": name, "min": int(first[0]) if first else None, "max": int(most)}
    if options["points"]:
        found["points"] = [point_of(text) for text in options["points"]]
    budget = {"trials": options["trials"], "time": options["time_limit"], "gpu_hours": options["gpu_hours"],
              "no_better_for": options["no_better_for"], "target": options["target"]}  # fmt: skip
    given = {name: value for name, value in budget.items() if value is not None}
    if given:
        found["budget"] = {**(found.get("budget") or {}), **given}
    for name in ("parallel", "seed", "name", "gpus"):
        if options[name] is not None:
            found[name] = options[name]
    if options["config"]:
        found["config"] = str(options["config"])
    if options["no_checkpoints"]:
        found["checkpoints"] = False
    _override_job(found, options)


def _override_job(found: dict[str, Any], options: dict[str, Any]) -> None:
    job = dict(found.get("job") or {})
    if options["workers"]:
        fewest, most = options["workers"]
        job["workers"] = most if fewest == most else f"{fewest}:{most}"
    resources = {name: options[name] for name in ("gpus", "cpus") if options[name] is not None}
    if resources:
        job["resources"] = {**job.get("resources", {}), **resources}
    if job:
        found["job"] = job


def part_of(text: str) -> str | dict[str, Any]:
    """Return the name and options of `asha:eta=4`."""
    from weft.tune.space.text import parse_value

    name, *pairs = text.split(":")
    if not pairs:
        return name
    return {"name": name, **{key: parse_value(value) for key, _, value in (p.partition("=") for p in pairs)}}


def point_of(text: str) -> dict[str, Any]:
    """Return the point of `lr=0.1,optimizer=adam`."""
    from weft.tune.space.domains import scalar_text
    from weft.tune.space.text import parse_value

    point: dict[str, Any] = {}
    name = ""
    for pair in text.split(","):
        if point and "=" not in pair:  # a further part of a list
            point[name] = f"{scalar_text(point[name])},{pair.strip()}"
            continue
        name, found, value = (part.strip() for part in pair.partition("="))
        if not found or not name:
            raise UsageError(f"a point must be NAME=VALUE,..., got {text!r}; write lr=0.1,optimizer=adam")
        point[name] = parse_value(value)
    return point


def _print_plan(config: StudyConfig, as_json: bool) -> int:
    """Print what would be tried first, and how."""
    import msgspec

    from weft.cli.tuning.table import trial_table
    from weft.tune.results.views import trial_view
    from weft.tune.runners.command import trial_words
    from weft.tune.study.core import StudyCore

    core = StudyCore.begin(config)
    core.actions(min(5, config.budget.trials or 5))
    views = [trial_view(core.state, trial) for trial in core.state]
    commands = [
        trial_words(config, t, {"params": "params.json", "config": "config.yaml"}) for t in core.state
    ]
    if as_json:
        print_data({"config": msgspec.to_builtins(config), "trials": views, "commands": commands})
        return 0
    click.echo("\n".join(trial_table(views, core.state.goals)))
    click.echo("\n".join(" ".join(words) for words in commands))
    click.echo("weft: nothing was run", err=True)
    return 0


def _run_here(config: StudyConfig, options: dict[str, Any], as_json: bool) -> int:
    from weft.cli.tuning.table import LiveTable, headline
    from weft.tune.results.insights import insights
    from weft.tune.results.tables import is_table
    from weft.tune.results.views import study_view, trial_view
    from weft.tune.runners.command import check_script
    from weft.tune.study.home import find_study, studies_folder
    from weft.tune.study.study import Study

    check_script(config.command, Path())
    home = studies_folder()
    earlier = None
    if options["warm_start"]:
        warm = options["warm_start"]
        earlier = Path(warm) if is_table(warm) else find_study(warm, home)
    with Study.from_config(config, home / config.name, earlier) as study:
        table = LiveTable(study.state, quiet=as_json)
        try:
            study.run(on_change=table)
        except KeyboardInterrupt:
            table.close()
            click.echo(
                f"weft: paused; the same command, or weft study resume {config.name}, goes on", err=True
            )
            return 130
        table.close()
        state = study.state
        if as_json:
            print_data(
                {"study": study_view(state), "trials": [trial_view(state, t, curve=True) for t in state]}
            )
        else:
            click.echo(headline(study_view(state)))
            for one in insights(state):
                click.echo(f"{one.severity}: {one.text}; {one.advice}", err=True)
        return 1 if state.state == "failed" else 0
