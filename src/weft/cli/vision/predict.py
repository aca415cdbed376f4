"""`weft vision predict`: what a trained model says of pictures, or of a film."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from weft.cli.paths import ExistingFile, ExistingFolder, OutputFile, OutputFolder
from weft.cli.values import Real, Whole
from weft.errors import UsageError


@click.command("predict")
@click.argument("model", type=ExistingFolder())
@click.argument("pictures", type=ExistingFile("a picture or a film"), nargs=-1, required=True)
@click.option(
    "--confidence", type=Real(0, 1), help="Leave out objects that are less sure; usual: the best for F1."
)
@click.option("--draw", type=OutputFolder(), help="Write pictures with what was found drawn in.")
@click.option("--film", type=OutputFile(), help="Write the film with captions, as MP4 (H.264).")
@click.option(
    "--every", type=Whole(1), default=1, show_default=True, help="Look at every n-th frame of a film."
)
@click.option("--json", "as_json", is_flag=True, help="Print the answers as data.")
def command(
    model: Path,
    pictures: tuple[Path, ...],
    confidence: float | None,
    draw: Path | None,
    film: Path | None,
    every: int,
    as_json: bool,
) -> None:
    """Say what MODEL finds in PICTURES; with --film, in one film. A model of actions is asked for films."""
    from weft.vision.actions.predictor import is_action_model
    from weft.vision.custom.predictor import open_predictor

    if is_action_model(model):
        _actions(model, pictures, confidence, film, as_json)
        return
    with closing(open_predictor(model)) as predictor:
        if film is not None:
            from weft.vision.inference.film import caption_film

            if len(pictures) != 1:
                raise UsageError(f"--film must come with one film, got {len(pictures)} files; name one")
            found = caption_film(predictor, pictures[0], film, every=every, confidence=confidence)
            rows = [{"time_s": one.time_s, **answer(one.prediction)} for one in found]
            click.echo(json.dumps(rows) if as_json else f"{len(rows)} frames looked at, {film} written")
            return
        rows = []
        for path in pictures:
            prediction = predictor.predict([path], confidence=confidence)[0]
            rows.append({"picture": str(path), **answer(prediction)})
            if draw is not None:
                from weft.vision.inference.drawing import draw_prediction
                from weft.vision.pictures import decode, encode_jpeg

                draw.mkdir(parents=True, exist_ok=True)
                (draw / f"{path.stem}.jpg").write_bytes(
                    encode_jpeg(draw_prediction(decode(path), prediction))
                )
            if not as_json:
                click.echo(_line(rows[-1]))
        if as_json:
            click.echo(json.dumps(rows))


def _actions(
    model: Path, films: tuple[Path, ...], confidence: float | None, target: Path | None, as_json: bool
) -> None:
    """Tell the actions of films, and write one with captions where that is asked."""
    from weft.vision.actions.predictor import ActionPredictor
    from weft.vision.inference.film import caption_actions

    if target is not None and len(films) != 1:
        raise UsageError(f"--film must come with one film, got {len(films)} files; name one")
    predictor, rows = ActionPredictor(model), []
    for path in films:
        found = predictor.find(path, confidence=0.5 if confidence is None else confidence)
        rows += [{"film": str(path), **asdict(one)} for one in found]
        if target is not None:
            caption_actions(found, path, target)
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        times = f"{row['start_s']:.1f} to {row['end_s']:.1f} s"
        click.echo(f"{row['film']}  {times}  {row['label']} {row['confidence']:.1%}")


def answer(prediction: Any) -> dict[str, Any]:
    """Return a prediction as data: `classified`, or `detections`."""
    if prediction.scores:
        found = {"classified": [{"label": name, "confidence": score} for name, score in prediction.scores]}
        return found if prediction.anomaly is None else {**found, "anomaly": prediction.anomaly}
    return {
        "detections": [
            {
                "label": one.label,
                "confidence": one.confidence,
                "xmin": one.box[0],
                "ymin": one.box[1],
                "xmax": one.box[2],
                "ymax": one.box[3],
                **({"polygons": [list(map(list, ring)) for ring in one.polygons]} if one.polygons else {}),
            }
            for one in prediction.shapes
        ]
    }


def _line(row: dict[str, Any]) -> str:
    if "classified" in row:
        best = row["classified"][0]
        return f"{row['picture']}  {best['label']} {best['confidence']:.1%}"
    objects = ", ".join(f"{one['label']} {one['confidence']:.0%}" for one in row["detections"])
    return f"{row['picture']}  {objects or 'nothing'}"
