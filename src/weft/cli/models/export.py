"""`weft export`: a trained model to one checked ONNX file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.paths import ExistingFile, ExistingPath, OutputFile
from weft.cli.values import Numbers, Real, Whole
from weft.errors import ModelError

if TYPE_CHECKING:
    from weft.serve.card import Card, Picture
    from weft.serve.export.api import Exported
    from weft.serve.export.sources.samples import Samples

TASKS = ("classify", "detect", "regress", "embed", "tensor")


@click.command("export")
@click.argument("model", metavar="MODEL")
@click.option(
    "-o", "--output", type=OutputFile(), required=True, metavar="FILE.onnx", help="The file to write."
)
@click.option(
    "--weights",
    type=ExistingPath(),
    metavar="PATH",
    help="A state dict, safetensors, or a folder of a checkpoint.",
)
@click.option(
    "--sample",
    type=ExistingPath(),
    metavar="PATH",
    help="Rows to check on: .npy, .npz, or a folder of pictures.",
)
@click.option(
    "--shape", "shapes", multiple=True, metavar="[NAME=]3,224,224", help="Check on random rows of this shape."
)
@click.option("--name", default="", help="What the model is called (the file's name).")
@click.option("--task", type=click.Choice(TASKS), default="tensor", help="What it answers.")
@click.option(
    "--labels", type=ExistingFile("a text file"), metavar="FILE", help="Names of the classes, one a line."
)
@click.option("--picture", metavar="K=V,...", help="How pictures become tensors: size=224,mean=...,std=...")
@click.option(
    "--tokens", type=Whole(1, 1 << 24, example=512), metavar="N", help="The most tokens a row may have."
)
@click.option(
    "--dynamic", metavar="AXES", help="Axes that stay open: height,width,length or INPUT.AXIS=NAME."
)
@click.option("--precision", type=click.Choice(["fp32", "fp16", "int8"]), default="fp32", show_default=True)
@click.option(
    "--calibration", type=ExistingPath(), metavar="PATH", help="Rows that int8's ranges are measured on."
)
@click.option(
    "--batches",
    type=Numbers(1, 65_536, "1,2,5"),
    default="1,2,5",
    show_default=True,
    help="Batch sizes to check.",
)
@click.option("--rtol", type=Real(0, 1e6, example=1e-3), help="Relative tolerance of the check.")
@click.option("--atol", type=Real(0, 1e6, example=1e-5), help="Absolute tolerance of the check.")
@click.option(
    "--opset",
    type=Whole(1, 1000, example=20),
    default=20,
    show_default=True,
    help="Version of ONNX's operators.",
)
@click.option("--external-data", is_flag=True, help="Weights in a file of their own.")
@click.option("--run", default="", metavar="ID", help="The training run it comes from.")
@click.option("--notes", default="", help="Anything else the file shall say.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as data.")
def command(model: str, **options: Any) -> None:
    """Write MODEL to an ONNX file, check it against the model, and leave it only if it answers the same.

    MODEL is MODULE:FACTORY or FILE.py:FACTORY, which gives a torch module, or a pickled estimator of weft.learn.
    """
    from weft.serve.export.api import export, source_of
    from weft.serve.export.sources.axes import parse_dynamic
    from weft.serve.export.sources.loading import load_model
    from weft.serve.export.sources.samples import read_samples

    card = _card(options)
    loaded = load_model(model, options["weights"])
    source_of(loaded)  # says what is no model, or none that was fitted
    calibration = options["calibration"]
    done = export(
        loaded,
        _samples(loaded, options, card),
        options["output"],
        card=card,
        dynamic=parse_dynamic(_words(options["dynamic"] or "")),
        opset=options["opset"],
        precision=options["precision"],
        calibration=read_samples(calibration, card.picture, card.labels) if calibration else None,
        external_data=options["external_data"],
        batches=options["batches"],
        rtol=options["rtol"],
        atol=options["atol"],
        tell=lambda line: click.echo(f"weft: {line}", err=True),
    )
    click.echo(json.dumps(_as_data(done)) if options["as_json"] else render(done))


def render(done: Exported) -> str:
    """Return what was checked, a line for each precision."""
    from weft.text import format_seconds, format_size, format_table

    rows = [("precision", "size", "one row", "largest difference", "same class", "accuracy")]
    for step in done.steps:
        parity = step.parity
        agreement = "-" if parity.agreement is None else f"{parity.agreement:.1%}"
        correct = (
            "-" if parity.accuracy is None else f"{parity.accuracy:.1%} (model {parity.accuracy_source:.1%})"
        )
        rows.append(
            (
                step.precision,
                format_size(step.size),
                format_seconds(step.latency_ms / 1e3),
                f"{parity.largest:.2g}",
                agreement,
                correct,
            )
        )
    lines = format_table(rows, left=rows[0])
    checked = ", ".join(map(str, done.parity.batches))
    lines.append(
        f"{done.path}: agrees with the model on {done.parity.samples} samples, in batches of {checked} and all at once"
    )
    return "\n".join(lines)


def _as_data(done: Exported) -> dict[str, Any]:
    return {
        "path": str(done.path),
        "card": done.card.to_json(),
        "steps": [asdict(step) for step in done.steps],
    }


def _card(options: dict[str, Any]) -> Card:
    from weft.serve.card import Card, Tokens

    return Card(
        name=options["name"],
        task=options["task"],
        labels=read_labels(options["labels"]) if options["labels"] else (),
        picture=parse_picture(options["picture"]) if options["picture"] is not None else None,
        tokens=Tokens(limit=options["tokens"]) if options["tokens"] is not None else None,
        run=options["run"],
        notes=options["notes"],
    )


def _samples(model: Any, options: dict[str, Any], card: Card) -> Samples | None:
    """Given rows, else random ones of a shape that was given or that is known."""
    from weft.serve.export.sources.samples import make_up, read_samples

    if options["sample"] is not None:
        if options["shapes"]:
            raise ModelError("rows must be given, --sample, or made up, --shape; got both")
        return read_samples(options["sample"], card.picture, card.labels)
    shapes = options["shapes"]
    if not shapes and options["calibration"] is not None:
        return None
    if not shapes and hasattr(model, "n_features_in_"):
        shapes = (str(model.n_features_in_),)
    if not shapes and card.picture is not None:
        rules = card.picture
        sides = f"{rules.height},{rules.width}"
        shapes = (f"{rules.channels},{sides}" if rules.layout == "NCHW" else f"{sides},{rules.channels}",)
    if not shapes:
        raise ModelError(
            "a model must be checked on rows; give --sample FILE, or --shape 3,224,224 for random ones"
        )
    return make_up(shapes)


def read_labels(path: Path) -> tuple[str, ...]:
    from weft.documents import read_text

    lines = read_text(path, kind="a text file of labels, one a line", error=ModelError).splitlines()
    labels = tuple(line.strip() for line in lines if line.strip())
    if not labels:
        raise ModelError(f"labels must be in a text file, one a line, got an empty one: {path}")
    return labels


def parse_picture(text: str) -> Picture:
    """`size=224,mean=0.485,0.456,0.406,std=...`: what has no `=` belongs to the name before it."""
    from weft.serve.card import Picture

    values: dict[str, list[str]] = {}
    last = ""
    for item in text.split(","):
        key, equals, value = item.partition("=")
        last = key.strip() if equals else last
        values.setdefault(last, []).append((value if equals else item).strip())
    try:
        fields: dict[str, Any] = {}
        for key, given in values.items():
            if key == "size":
                height, _, width = given[0].partition("x")
                fields |= {"height": int(height), "width": int(width or height)}
            elif key in ("height", "width"):
                fields[key] = int(given[0])
            elif key in ("mean", "std"):
                fields[key] = tuple(map(float, given))
            elif key in ("scale", "crop"):
                above, _, below = given[0].partition("/")
                fields[key] = float(above) / float(below or 1)
            elif key in ("resize", "layout", "colours"):
                fields[key] = given[0] if key == "resize" else given[0].upper()
            else:
                raise ModelError(
                    f"--picture must have size, height, width, resize, crop, scale, mean, std, layout or colours, "
                    f"got {key or text!r}"
                )
        return Picture(**fields)
    except (TypeError, ZeroDivisionError) as error:
        raise ModelError(f"--picture must have size=224 or height and width, got {text!r}") from error
    except ModelError:
        raise
    except ValueError as error:
        raise ModelError(
            f"--picture must look like size=224,mean=0.5,0.5,0.5,std=0.5,0.5,0.5: {error}"
        ) from error


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
