"""`weft vision train`: a model from a configuration file, or from a data set alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from weft.cli.values import ExistingFile, OutputFolder, Real, Text
from weft.errors import UsageError


@click.command("train")
@click.argument("config", type=ExistingFile("a configuration"), required=False)
@click.option(
    "--data", type=Text(), metavar="DATA", help="A folder, a zip, or NAME@VERSION; wins over the file's."
)
@click.option("--task", type=click.Choice(["classification", "detection", "segmentation", "anomaly"]))
@click.option("--model", type=Text(), help="One of `weft vision architectures`.")
@click.option("--epochs", type=Real(0, 1e6), help="Passes over the training pictures.")
@click.option("--minutes", type=Real(above=0, most=1e5), help="Be done by then, at the speed that is seen.")
@click.option(
    "--out", "folder", type=OutputFolder(), default="model", show_default=True, help="The model's folder."
)
@click.option("--library", type=OutputFolder(), help="The folder of data sets; without it, the user's own.")
@click.option("--dry-run", is_flag=True, help="Print the whole configuration and train nothing.")
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
    as_json: bool,
) -> None:
    """Train what CONFIG says, a YAML, TOML or JSON file, or what the options say.

    On many workers: `weft run -n 2 -m weft.vision.training CONFIG FOLDER`, with --elastic where workers come and go.
    """
    from msgspec.structs import replace

    from weft.vision.config import VisionConfig, describe, model_named, read_config, resolve
    from weft.vision.opening import open_data
    from weft.vision.training.__main__ import progress_line, summary
    from weft.vision.training.run import data_version, job_report, train

    if config is None and data is None:
        raise UsageError("a training must have a CONFIG or --data, got neither; write --data flowers/")
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
    version = data_version(settings, lambda text: open_data(text, library))
    if dry_run:
        click.echo(json.dumps(describe(resolve(settings, version)), indent=None if as_json else 2))
        return

    def report(values: Mapping[str, Any]) -> None:
        job_report(values)
        click.echo(progress_line(values), err=True)

    trained = train(settings, version, folder, report=report)
    if as_json:
        click.echo(json.dumps({**trained.results, "folder": str(folder)}))
    else:
        click.echo(summary(trained.results))
        click.echo(f"{'model':<14} {folder}")
