"""`weft vision autolabel`: a data set with the labels of a model where no person has made any."""

from __future__ import annotations

import json
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click

from weft.cli.paths import ExistingFolder, OutputFolder
from weft.cli.values import Real, Text
from weft.text import plural


@click.command("autolabel")
@click.argument("model", type=ExistingFolder())
@click.argument("data", type=Text())
@click.option(
    "--out", type=OutputFolder(), required=True, help="Write the labelled data set there, in COCO's format."
)
@click.option(
    "--threshold", type=Real(0, 1), help="The least confidence; usual: the best for F1 on test pictures."
)
@click.option(
    "--every",
    type=Real(above=0, most=1e5),
    default=1.0,
    show_default=True,
    help="Seconds between a film's frames.",
)
@click.option("--all", "everything", is_flag=True, help="Replace the labels of people, too.")
@click.option("--library", type=OutputFolder(), help="The folder of data sets; without it, the user's own.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as data.")
def command(
    model: Path,
    data: str,
    out: Path,
    threshold: float | None,
    every: float,
    everything: bool,
    library: Path | None,
    as_json: bool,
) -> None:
    """Label DATA by MODEL; labels carry their confidence and the model's name, and may be accepted or corrected.

    DATA is a data set, or a film, of which frames become pictures.
    """
    from weft.vision.custom.predictor import open_predictor
    from weft.vision.films.probing import FILM_SUFFIXES
    from weft.vision.formats.writing import write
    from weft.vision.inference.autolabel import autolabel, autolabel_film
    from weft.vision.opening import open_data

    with (
        closing(open_predictor(model)) as predictor,
        tempfile.TemporaryDirectory(prefix="weft-frames-") as frames,
    ):
        if Path(data).suffix.lower() in FILM_SUFFIXES and Path(data).is_file():
            version = autolabel_film(predictor, Path(data), Path(frames), every_s=every, threshold=threshold)
            made = {one.id: one for one in version.pictures}
        else:
            version = open_data(data, library)
            found = autolabel(predictor, version, threshold=threshold, everything=everything)
            made = {one.picture.id: one.applied() for one in found}
        pictures = tuple(made.get(one.id, one) for one in version.pictures)
        detects = predictor.config.task in ("detection", "segmentation")
        names = tuple(
            dict.fromkeys([*(version.labels if detects else version.categories), *predictor.classes])
        )
        labelled = replace(version, pictures=pictures, **{"labels" if detects else "categories": names})  # type: ignore[arg-type]
        write(labelled, out, "coco")
    shapes = sum(len(one.shapes) for one in made.values())
    done = {"pictures": len(made), "objects": shapes, "folder": str(out)}
    click.echo(
        json.dumps(done)
        if as_json
        else f"{plural(len(made), 'picture')} labelled, {plural(shapes, 'object')}, in {out}"
    )
