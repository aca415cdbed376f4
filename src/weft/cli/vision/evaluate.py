"""`weft vision evaluate`: figures of a trained model on a split of a data set."""

from __future__ import annotations

import json
from pathlib import Path

import click

from weft.cli.paths import ExistingFolder, OutputFolder
from weft.cli.values import Text


@click.command("evaluate")
@click.argument("model", type=ExistingFolder())
@click.argument("data", type=Text())
@click.option(
    "--split", type=click.Choice(["train", "validation", "test", "all"]), default="test", show_default=True
)
@click.option("--library", type=OutputFolder(), help="The folder of data sets; without it, the user's own.")
@click.option("--json", "as_json", is_flag=True, help="Print everything, curves and confusion too, as data.")
def command(model: Path, data: str, split: str, library: Path | None, as_json: bool) -> None:
    """Judge MODEL, a folder of `weft vision train`, on DATA."""
    from weft.vision.evaluation.folder import evaluate_folder
    from weft.vision.opening import open_data

    found = evaluate_folder(model, open_data(data, library), split)
    if as_json:
        click.echo(json.dumps({"metrics": dict(found.figures), **found.results}))
        return
    for name, value in found.figures.items():
        click.echo(f"{name:<12} {value:.4f}")
    for row in found.results["classes"]:
        click.echo(f"{row['label']:<12} precision {row['precision']:.3f}  recall {row['recall']:.3f}")
