"""`weft vision train`: a model from a configuration file, or from a data set alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from weft.cli.jobs.options import open_client, print_data, url_option
from weft.cli.paths import ExistingFile, OutputFolder
from weft.cli.values import Real, Text
from weft.errors import UsageError

if TYPE_CHECKING:
    from weft.vision.config import VisionConfig

UPLOAD_S = 600.0  # that a custom model's zip may take to be sent


@click.command("train")
@click.argument("config", type=ExistingFile("a configuration"), required=False)
@click.option(
    "--data", type=Text(), metavar="DATA", help="A folder, a zip, or NAME@VERSION; wins over the file's."
)
@click.option(
    "--task", type=click.Choice(["classification", "detection", "segmentation", "anomaly", "action"])
)
@click.option("--model", type=Text(), help="One of `weft vision architectures`.")
@click.option("--epochs", type=Real(0, 1e6), help="Passes over the training pictures.")
@click.option("--minutes", type=Real(above=0, most=1e5), help="Be done by then, at the speed that is seen.")
@click.option(
    "--out", "folder", type=OutputFolder(), default="model", show_default=True, help="The model's folder."
)
@click.option("--library", type=OutputFolder(), help="The folder of data sets; without it, the user's own.")
@click.option("--dry-run", is_flag=True, help="Print the whole configuration and train nothing.")
@click.option(
    "--custom",
    type=ExistingFile("a zip"),
    help="Train by its train.py, in the form of PowerAI Vision's custom models.",
)
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print the results as data.")
def command(
    config: Path | None,
    data: str | None,
    task: str | None,
    model: str | None,
    epochs: float | None,
    minutes: float | None,
    folder: Path,
    library: Path | None,
    dry_run: bool,
    custom: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Train what CONFIG says, a YAML, TOML or JSON file, or what the options say.

    With --url it is a job of that service, on a data set of the service. On many workers here: `weft run -n 2 -m
    weft.vision.training CONFIG FOLDER`, with --elastic where workers come and go.
    """
    from msgspec.structs import replace

    from weft.vision.config import VisionConfig, describe, model_named, read_config, resolve

    if config is None and data is None:
        raise UsageError("a training must have a CONFIG or --data, got neither; write --data flowers/")
    if task == "action":
        train_films(data, folder, as_json)
        return
    settings = read_config(config) if config is not None else VisionConfig()
    settings = replace(settings, data=data or settings.data, task=task or settings.task)
    if model is not None:
        settings = replace(settings, model=replace(settings.network, name=model))
    schedule = settings.schedule
    if epochs is not None:
        schedule = replace(schedule, epochs=epochs)
    if minutes is not None:
        schedule = replace(schedule, max_minutes=minutes)
    settings = replace(settings, schedule=schedule)
    if settings.network.name is not None and (sentence := model_named(settings.network.name)[1]):
        click.echo(sentence, err=True)
    if url is not None:
        if dry_run:
            raise UsageError(
                "--dry-run must be without --url: the service resolves a configuration as it begins"
            )
        begin_on_service(url, settings, custom, as_json)
        return
    from weft.vision.opening import open_data
    from weft.vision.training.__main__ import progress_line, summary
    from weft.vision.training.run import data_version, job_report, train

    version = data_version(settings, lambda text: open_data(text, library))
    if dry_run:
        click.echo(json.dumps(describe(resolve(settings, version)), indent=None if as_json else 2))
        return

    def report(values: Mapping[str, Any]) -> None:
        job_report(values)
        click.echo(progress_line(values), err=True)

    if custom is not None:
        from weft.vision.custom.running import train_custom

        results = train_custom(custom, version, folder, report=report)
        click.echo(json.dumps({**results, "folder": str(folder)}) if as_json else f"{'model':<14} {folder}")
        return
    trained = train(settings, version, folder, report=report)
    if as_json:
        click.echo(json.dumps({**trained.results, "folder": str(folder)}))
    else:
        click.echo(summary(trained.results))
        click.echo(f"{'model':<14} {folder}")


def train_films(data: str | None, folder: Path, as_json: bool) -> None:
    """Train on actions that a table marks in films."""
    from weft.vision.actions.reading import read_marks
    from weft.vision.actions.training import train_actions

    if data is None or Path(data).suffix.lower() != ".csv":
        raise UsageError(
            f"--data must be a CSV with film, action, start and end for actions, got {data}; write one beside the films"
        )

    def report(values: Mapping[str, Any]) -> None:
        click.echo(f"{values['step']} of {values['total']} films read", err=True)

    results = train_actions(read_marks(Path(data)), folder, name=folder.name, report=report)
    if as_json:
        click.echo(json.dumps({**results, "folder": str(folder)}))
        return
    score = results["score"]["value"]
    click.echo(f"{'accuracy':<14} {'not judged' if score is None else f'{score:.3f}'}")
    click.echo(f"{'model':<14} {folder}")


def begin_on_service(url: str, settings: VisionConfig, custom: Path | None, as_json: bool) -> None:
    """Begin a training as a job of a service; what the configuration leaves open is chosen there."""
    import msgspec

    from weft.jobs.api.types.trainings import TrainingView

    dataset, _, number = settings.data.partition("@")
    if number and not number.isdecimal():
        raise UsageError(f"--data must be NAME or NAME@VERSION of the service, got {settings.data!r}")
    asked = {"dataset": dataset, "version": int(number) if number else None, "name": settings.name}
    asked = {key: value for key, value in asked.items() if value not in (None, "")}
    with open_client(url) as client:
        if custom is not None:
            path = f"/vision/trainings/custom?{urlencode(asked)}"
            found = client.connection.send_file(path, custom, TrainingView, timeout_s=UPLOAD_S)
        else:
            config = changed(msgspec.to_builtins(settings), msgspec.to_builtins(type(settings)()))
            body = {**asked, "config": {key: config[key] for key in config if key not in ("data", "name")}}
            found = client.connection.send("POST", "/vision/trainings", TrainingView, body)
    if as_json:
        print_data(found)
        return
    click.echo(
        f"job {found.job.id} trains {found.network} for {found.task} on {found.dataset_name}@{found.version}"
    )
    click.echo(f"weft logs -f {found.job.id} --url {url}")


def changed(given: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of a configuration that differ from the usual ones."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        before = usual.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := changed(value, before):
                found[name] = inner
        elif value != before:
            found[name] = value
    return found
