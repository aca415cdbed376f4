"""`weft study`: look at one search, stop, pause, resume, extend, clone and export it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from weft.cli.jobs.options import NAME_OF_JOB, Duration, json_option, print_data, url_option, yes_option
from weft.cli.paths import OutputFile
from weft.cli.tuning.found import STUDY, ask, find_state, folder_of, service_number, state_of
from weft.cli.tuning.trials import COMMANDS
from weft.cli.values import Real, Text, Whole
from weft.errors import UsageError


@click.group("study")
def command() -> None:
    """Show, stop, pause, resume, extend, clone and export a study."""


for _one in COMMANDS:
    command.add_command(_one)


@command.command("show")
@click.argument("name", type=STUDY)
@click.option(
    "-n", "--limit", type=Whole(1, 100_000, example=20), default=20, show_default=True, help="Most rows."
)
@url_option
@json_option
def show(name: str, limit: int, url: str | None, as_json: bool) -> None:
    """Show a study: its best trials and insights."""
    from weft.cli.tuning.remote import fetch_study
    from weft.cli.tuning.table import headline, trial_table
    from weft.tune.results.insights import insights
    from weft.tune.results.views import study_view, trial_view

    number = service_number(name, url)
    if number is not None:
        view, trials, found = fetch_study(number, url)
    else:
        state = state_of(name)
        view, found = study_view(state), insights(state)
        order = sorted(state, key=lambda t: (t.state == "failed", t.last_score, t.number))
        trials = [trial_view(state, trial, curve=as_json) for trial in order]
    if as_json:
        print_data({"study": view, "trials": trials, "insights": found})
        return
    click.echo(headline(view))
    click.echo("\n".join(trial_table(trials[:limit], list(view.metrics))))
    for one in found:
        click.echo(f"{one.severity}: {one.text}; {one.advice}")


@command.command("best")
@click.argument("name", type=STUDY)
@click.option(
    "-o", "--output", type=OutputFile(), metavar="FILE", help="Write them as a .yaml or .json config."
)
@url_option
@json_option
def best(name: str, output: Path | None, url: str | None, as_json: bool) -> None:
    """Print the parameters of the best trial, as a config file with -o."""
    from weft.cli.paths import write_output
    from weft.tune.results.export import best_config
    from weft.tune.results.views import trial_view

    _, state = find_state(name, url)
    text = best_config(state, output.suffix if output is not None else ".yaml")
    if output is not None:
        write_output(output, text)
        click.echo(f"weft: wrote {output}", err=True)
        return
    found = state.best()
    assert found is not None
    if as_json:
        print_data(trial_view(state, found, curve=True))
    else:
        click.echo(text, nl=False)


@command.command("resume")
@click.argument("name", type=STUDY)
@url_option
@json_option
def resume(name: str, url: str | None, as_json: bool) -> int:
    """Go on with a study that was paused, stopped or interrupted; a local one runs here."""
    from weft.cli.tuning.remote import act
    from weft.cli.tuning.table import LiveTable, headline
    from weft.tune.results.views import study_view
    from weft.tune.study.journal import is_held
    from weft.tune.study.study import Study

    number = service_number(name, url)
    if number is not None:
        act(number, "resume", url, as_json=as_json)
        return 0
    folder = folder_of(name)
    if is_held(folder):
        ask(name, {"do": "resume"}, as_json=as_json)
        return 0
    with Study.load(folder) as study:
        if not study.state.config.command:
            raise UsageError(
                f"study {name} must have a command to run, got one of Python; call optimize again"
            )
        table = LiveTable(study.state, quiet=as_json)
        study.run(on_change=table)
        table.close()
        view = study_view(study.state)
        if as_json:
            print_data(view)
        else:
            click.echo(headline(view))
        return 1 if study.state.state == "failed" else 0


@command.command("extend")
@click.argument("name", type=STUDY)
@click.option(
    "-t", "--trials", type=Whole(1, 1_000_000, example=100), help="Most trials, those so far included."
)
@click.option(
    "--time", "time_limit", type=Duration(), metavar="4h", help="Most time that it runs, so far included."
)
@click.option("--gpu-hours", type=Real(0, 1e9, above=0, example=8), help="Most GPU-hours.")
@click.option(
    "--no-better-for", type=Whole(1, 1_000_000, example=20), metavar="N", help="Trials without a gain."
)
@click.option("--target", type=Real(-1e300, 1e300, example=0.98), help="A value of the metric that ends it.")
@click.option("-p", "--parallel", type=Whole(1, 4096, example=2), help="Trials at a time.")
@url_option
@json_option
def extend(name: str, url: str | None, as_json: bool, **options: Any) -> None:
    """Give a study another budget; one that had used its budget goes on with weft study resume."""
    import msgspec

    from weft.cli.tuning.remote import act

    number, state = find_state(name, url)
    budget = {"trials": options["trials"], "time": options["time_limit"], "gpu_hours": options["gpu_hours"],
              "no_better_for": options["no_better_for"], "target": options["target"]}  # fmt: skip
    changes: dict[str, Any] = {}
    if any(value is not None for value in budget.values()):
        given = {key: value for key, value in budget.items() if value is not None}
        changes["budget"] = {**msgspec.to_builtins(state.config.budget), **given}
    if options["parallel"] is not None:
        changes["parallel"] = options["parallel"]
    if not changes:
        raise UsageError("weft study extend must be given a limit, got none; write --trials 100")
    if number is not None:
        act(number, "extend", url, changes, as_json=as_json)
    else:
        ask(name, {"do": "extend", "changes": changes}, as_json=as_json)


@command.command("clone")
@click.argument("name", type=STUDY)
@click.argument("new", type=NAME_OF_JOB)
@click.option("--set", "changes", type=Text("FIELD=VALUE", "seed=7"), multiple=True, metavar="FIELD=VALUE",
              help="Another value of a field of study.yaml, in YAML: 'space.lr=log:1e-4:1'.")  # fmt: skip
@click.option("--warm", is_flag=True, help="Take the trials of the study over, too.")
@url_option
@json_option
def clone(name: str, new: str, changes: tuple[str, ...], warm: bool, url: str | None, as_json: bool) -> None:
    """Make a new study with the settings of another, and changes; weft study resume runs it."""
    import msgspec

    from weft.cli.tuning.remote import act
    from weft.tune.results.views import study_view
    from weft.tune.study.config import check_config, convert_config
    from weft.tune.study.home import list_studies, studies_folder
    from weft.tune.study.study import Study

    number, state = find_state(name, url)
    found: dict[str, Any] = {**msgspec.to_builtins(state.config), "name": new}
    for text in changes:
        set_field(found, text)
    config = convert_config(found)
    check_config(config)
    if number is not None:
        act(number, "clone", url, {"changes": found, "warm": warm}, as_json=as_json)
        return
    home = studies_folder()
    if new in list_studies(home):
        raise UsageError(f"study {new} must not exist yet, got one; name another")
    with Study.from_config(config, home / new, home / name if warm else None) as study:
        study.core.pause_all()
        view = study_view(study.state)
    if as_json:
        print_data(view)
    else:
        click.echo(f"weft: weft study resume {new} runs it", err=True)


def set_field(found: dict[str, Any], text: str) -> None:
    """Change one field of a study's settings: `space.lr=log:1e-4:1`, in YAML."""
    from weft.documents import parse_yaml

    path, equal, value = text.partition("=")
    if not equal or not path:
        raise UsageError(f"--set must be FIELD=VALUE, got {text!r}; write --set seed=7")
    *parts, last = path.split(".", 1) if path.startswith("space.") else path.split(".")
    place = found
    for part in parts:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise UsageError(f"--set {path} must name a field, got a value at {part}; write --set seed=7")
    place[last] = parse_yaml(value)


@command.command("export")
@click.argument("name", type=STUDY)
@click.option(
    "-o", "--output", type=OutputFile(), metavar="FILE", help="A file that ends in .csv, .json or .parquet."
)
@click.option("--optuna", "optuna_url", type=Text("a storage of Optuna's", "sqlite:///studies.db"), metavar="URL",
              help="Add it to a storage of Optuna's.")  # fmt: skip
@url_option
@json_option
def export(name: str, output: Path | None, optuna_url: str | None, url: str | None, as_json: bool) -> None:
    """Export a study's trials to a file, to Optuna, or as CSV to the screen."""
    from weft.tune.results import export as exports

    _, state = find_state(name, url)
    if optuna_url is not None:
        from weft.tune.results.optuna_storages import optuna_study

        optuna_study(state, optuna_url)
    if output is not None:
        exports.export(state, output)
    if output is None and optuna_url is None:
        click.echo(exports.to_json(state) if as_json else exports.to_csv(state), nl=False)


@command.command("remove")
@click.argument("name", type=STUDY)
@yes_option
@url_option
def remove(name: str, yes: bool, url: str | None) -> None:
    """Remove a study: one of this machine with its logs and checkpoints, one of the service without its jobs."""
    import shutil

    from weft.cli.jobs.options import confirm
    from weft.cli.tuning.remote import remove_study
    from weft.tune.study.journal import is_held

    number = service_number(name, url)
    if number is not None:
        confirm(f"remove study {number} of the service; its jobs stay", yes)
        remove_study(number, url)
        return
    folder = folder_of(name)
    if is_held(folder):
        raise UsageError(
            f"study {name} must not run to be removed, got one that does; weft study stop {name}"
        )
    confirm(f"remove study {name} with its checkpoints", yes)
    shutil.rmtree(folder)
