"""The worker of jobs about pictures: `python -m weft.jobs.vision.worker KIND request.json`.

It runs where jobs run, under plain Python, several workers or an elastic run, and reads nothing but its own files: the
request beside it, the folder of its data set, and for labelling the model that came along with the code.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.jobs.workers import exit_code_of, request_of

if TYPE_CHECKING:
    from weft.vision.inference import Prediction
    from weft.vision.records import DatasetVersion, LabelledPicture

CAPTIONED, FRAMES = "captioned.mp4", "frames.json"  # among the outputs of an inference on a film
CUSTOM = "custom.zip"  # in the code of a job: a model in the form of PowerAI Vision
LABELS = "labels.jsonl"  # among the outputs of a labelling
BATCH = 16  # pictures that a model looks at together


def main(words: Sequence[str]) -> int:
    """Do what a request asks for; 2 if it cannot be understood."""
    return exit_code_of(lambda: _work(words))


def _work(words: Sequence[str]) -> None:
    must = f"one of {', '.join(KINDS)}, a request, data and outputs"
    work, request, data, outputs = request_of(lambda: _request(words), must)
    work(request, data, outputs)


def _request(
    words: Sequence[str],
) -> tuple[Callable[[dict[str, Any], Path, Path], None], dict[str, Any], Path, Path]:
    kind, path = words
    request, work = json.loads(Path(path).read_text()), KINDS[kind]
    data = Path(os.environ["WEFT_DATA_PICTURES"]) if kind != "actions" else Path()
    return work, request, data, Path(os.environ["WEFT_OUTPUTS"])


def opened(request: dict[str, Any], data: Path) -> DatasetVersion:
    """Return the version in a folder under the name, number and digest that it has in the library."""
    from weft.vision.formats import read

    return replace(read(data), **request["version"])


def train(request: dict[str, Any], data: Path, outputs: Path) -> None:
    """Train a model; its folder is `model` among the outputs."""
    import msgspec

    from weft.vision.config.schema import VisionConfig
    from weft.vision.training import train as train_model

    config = msgspec.convert(request["config"], VisionConfig)
    train_model(msgspec.structs.replace(config, data=str(data)), opened(request, data), outputs / "model")


def custom(request: dict[str, Any], data: Path, outputs: Path) -> None:
    """Train a custom model in a process of its own; its folder is `model` among the outputs."""
    from weft.vision.custom.running import train_custom
    from weft.vision.training.run import job_report

    folder = outputs / "model"
    version = opened(request, data)
    results = train_custom(Path(CUSTOM), version, folder, params=request["params"], report=job_report)
    about = {"name": version.name, "number": version.number, "digest": version.digest}
    (folder / "results.json").write_text(json.dumps({**results, "data": about}))


def actions(request: dict[str, Any], data: Path, outputs: Path) -> None:
    """Train on the actions that a request marks in films; the model's folder is `model` among the outputs."""
    from weft.jobs.data.staging import variable_of
    from weft.vision.actions.clips import MarkedAction
    from weft.vision.actions.training import train_actions
    from weft.vision.training.run import job_report

    films = {
        name: next(path for path in sorted(Path(os.environ[variable_of(name)]).iterdir()) if path.is_file())
        for name in {one["film"] for one in request["marks"]}
    }
    marked = [
        MarkedAction(films[one["film"]], one["label"], one["start_s"], one["end_s"])
        for one in request["marks"]
    ]
    folder = outputs / "model"
    results = train_actions(marked, folder, name=request["name"], report=job_report)
    (folder / "results.json").write_text(json.dumps({**results, "data": request["version"]}))


def label(request: dict[str, Any], data: Path, outputs: Path) -> None:
    """Write what a model finds in pictures, a line for each, shared out among the workers."""
    import weft
    from weft.vision.custom.predictor import open_predictor

    wanted = set(request["files"])
    rank, workers = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    pictures = [one for one in opened(request, data).pictures if one.id in wanted][rank::workers]
    predictor = open_predictor(Path("model"))
    name = LABELS if workers == 1 else f"{rank}-{LABELS}"
    least = float(request["confidence"])
    with (outputs / name).open("w") as file:
        for done, batch in _batches(pictures):
            found = predictor.predict([one.path for one in batch], confidence=least)
            for picture, prediction in zip(batch, found, strict=True):
                file.write(json.dumps(_line(picture, prediction, least, request["model"])) + "\n")
            weft.report(done / max(1, len(pictures)), f"{done} of {len(pictures)} pictures")


def film(request: dict[str, Any], data: Path, outputs: Path) -> None:
    """Write a film with what a model finds drawn in, and the same as data, frame by frame."""
    import weft
    from weft.vision.actions.predictor import is_action_model
    from weft.vision.custom.predictor import open_predictor
    from weft.vision.formats.documents import shape_document
    from weft.vision.inference.film import caption_film

    source = next(path for path in sorted(data.iterdir()) if path.is_file())

    def progress(done: int, total: int) -> None:
        if done % 10 == 0 or done == total:
            weft.report(done / max(done, total, 1), f"{done} of {total} frames")

    if is_action_model("model"):
        _film_actions(request, source, outputs, progress)
        return
    found = caption_film(
        open_predictor(Path("model")),
        source,
        outputs / CAPTIONED,
        every=int(request["every"]),
        confidence=float(request["confidence"]),
        progress=progress,
    )
    frames = [
        {
            "time_s": one.time_s,
            "classified": [{"label": name, "confidence": score} for name, score in one.prediction.scores[:5]],
            "shapes": [shape_document(shape) for shape in one.prediction.shapes],
        }
        for one in found
    ]
    _write_frames(outputs, {"model": request["model"], "frames": frames})


def _film_actions(
    request: dict[str, Any], source: Path, outputs: Path, progress: Callable[[int, int], None]
) -> None:
    from weft.vision.actions.predictor import ActionPredictor
    from weft.vision.inference.film import caption_actions

    found = ActionPredictor("model").find(source, confidence=float(request["confidence"]))
    caption_actions(found, source, outputs / CAPTIONED, progress=progress)
    documents = [asdict(one) for one in found]
    _write_frames(outputs, {"model": request["model"], "frames": [], "actions": documents})


def _write_frames(outputs: Path, found: dict[str, Any]) -> None:
    part = outputs / f"{FRAMES}.part"
    part.write_text(json.dumps(found))
    part.replace(outputs / FRAMES)


def _batches(pictures: Sequence[LabelledPicture]) -> Iterator[tuple[int, Sequence[LabelledPicture]]]:
    for first in range(0, len(pictures), BATCH):
        batch = pictures[first : first + BATCH]
        yield first + len(batch), batch


def _line(picture: LabelledPicture, found: Prediction, least: float, model: str) -> dict[str, Any]:
    """Return what a model found in one picture, as far as it is sure enough."""
    from weft.vision.formats.documents import shape_document

    if found.scores:
        category, score = found.scores[0]
        return (
            {"id": picture.id, "category": category, "confidence": score}
            if score >= least
            else {"id": picture.id}
        )
    return {"id": picture.id, "shapes": [shape_document(replace(one, model=model)) for one in found.shapes]}


KINDS = {"train": train, "custom": custom, "actions": actions, "label": label, "film": film}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
