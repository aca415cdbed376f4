"""`weft study stop|pause|promote|add|model`: what somebody wants of trials, and of what they saved."""

from __future__ import annotations

from pathlib import Path

import click

from weft.cli.jobs.options import ALIAS, NAME_OF_JOB, json_option, print_data, url_option
from weft.cli.paths import OutputFolder
from weft.cli.tuning.found import STUDY, TRIAL, ask, find_state, folder_of, service_number, state_of
from weft.cli.tuning.tune import point_of
from weft.cli.values import Text, Whole
from weft.errors import UsageError


def _ending(verb: str, text: str) -> click.Command:
    @click.command(verb, help=text)
    @click.argument("name", type=STUDY)
    @click.option("--trial", type=TRIAL, help="One trial of it, not all.")
    @url_option
    @json_option
    def carry(name: str, trial: int | None, url: str | None, as_json: bool) -> None:
        from weft.cli.tuning.remote import act

        number = service_number(name, url)
        if number is not None:
            act(number, verb if trial is None else f"trials/{trial}/{verb}", url, as_json=as_json)
        else:
            ask(name, {"do": verb, "trial": trial}, as_json=as_json)

    return carry


stop = _ending("stop", "Stop a study with all its trials, or one trial; what it found stays.")
pause = _ending(
    "pause", "Pause a study: its trials end at their checkpoints. One trial rests until it is promoted."
)


@click.command("promote")
@click.argument("name", type=STUDY)
@click.argument("trial", type=TRIAL)
@click.option(
    "--until",
    type=Whole(1, 10**12, example=27),
    help="How much of the resource it may use; else its next rung.",
)
@url_option
@json_option
def promote(name: str, trial: int, until: int | None, url: str | None, as_json: bool) -> None:
    """Let a paused trial go on before all others, whatever its score: weft study promote digits 3."""
    from weft.cli.tuning.remote import act

    number = service_number(name, url)
    if number is not None:
        act(number, f"trials/{trial}/promote", url, {"until": until}, as_json=as_json)
    else:
        ask(name, {"do": "promote", "trial": trial, "until": until}, as_json=as_json)


@click.command("model")
@click.argument("name", type=STUDY)
@click.argument("model", type=NAME_OF_JOB)
@click.option("--trial", type=TRIAL, help="Another trial than the best.")
@click.option("--path", type=Text("a file that the trial saved", "model.onnx"), metavar="FILE",
              help="Which of its ONNX files, if there are several.")  # fmt: skip
@click.option("--alias", type=ALIAS, help="A name for the version, such as production.")
@click.option("--store", type=OutputFolder(), metavar="FOLDER", help="Another model store than the user's.")
@url_option
@json_option
def keep(
    name: str,
    model: str,
    trial: int | None,
    path: str | None,
    alias: str | None,
    store: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Put the model that the best trial saved into the model store: weft study model digits digits-net."""
    from weft.cli.tuning.remote import keep_model
    from weft.tune.results.models import TrialModel

    number = service_number(name, url)
    if number is not None:
        if store is not None:
            raise UsageError(
                "--store must be for a study of this machine, got one of the service; leave it out"
            )
        version = keep_model(number, url, model=model, path=path or "model.onnx", alias=alias, trial=trial)
    else:
        state, folder = state_of(name), folder_of(name)
        found = state.best() if trial is None else state.trials.get(trial)
        if found is None:
            what = "a best trial" if trial is None else f"trial {trial}"
            raise UsageError(f"study {name} must have {what}, got none; see weft study show {name}")
        home = folder / "trials" / str(found.number)
        aliases = () if alias is None else (alias,)
        version = TrialModel(found.number, home).push(model, aliases, path=path, store=store).version
    if as_json:
        print_data({"model": model, "version": version})
    else:
        click.echo(f"{model}@{version}")


@click.command("add")
@click.argument("name", type=STUDY)
@click.argument("point", type=Text("NAME=VALUE,...", "lr=0.1,optimizer=adam"))
@url_option
@json_option
def add(name: str, point: str, url: str | None, as_json: bool) -> None:
    """Add a trial by hand: weft study add digits lr=0.1,optimizer=adam."""
    from weft.cli.tuning.remote import act
    from weft.tune.space.domains import scalar_params

    params = point_of(point)
    number, state = find_state(name, url)
    checked = state.space.check_point(params)
    if number is not None:
        act(number, "trials", url, {"params": scalar_params(checked)}, as_json=as_json)
    else:
        ask(name, {"do": "add", "params": checked}, as_json=as_json)


COMMANDS = (stop, pause, promote, add, keep)
