"""One training, whole: data set version in, model folder out.

A model folder holds `weights.safetensors`, `model.onnx` (pre-processing inside), `results.json`, `config.json` and
`examples/`, pictures with what the model finds in them, as it became better.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weft.errors import UsageError
from weft.vision.config import VisionConfig, describe, resolve
from weft.vision.config.reading import task_of
from weft.vision.records import DatasetVersion
from weft.vision.training.checkpoint import FILE as CHECKPOINT
from weft.vision.training.feeding.sets import TrainingData, array_file, array_version, training_data
from weft.vision.training.first import fit_first
from weft.vision.training.folder import CONFIG, RESULTS, WEIGHTS, TrainedModel, write_json
from weft.vision.training.loop import LoopResult, Report, VisionLoop
from weft.vision.training.minimum import check_minimum
from weft.vision.training.tasks import TrainingTask, task_for
from weft.vision.training.world import TrainingWorld, join_world


def train(
    config: VisionConfig,
    version: DatasetVersion,
    folder: str | Path,
    *,
    report: Report | None = None,
    world: TrainingWorld | None = None,
    export: bool = True,
) -> TrainedModel:
    """Train a model on a version of a data set, judge it on the test split, and write its folder.

    `report` is given numbers as they come; without it they go to `weft.log` and `weft.report`.
    """
    if task_of(config, version) == "anomaly":
        from weft.vision.training.anomaly_run import train_anomaly

        return train_anomaly(config, version, Path(folder), report or job_report, export=export)
    here = world or join_world()
    try:
        return _train(config, version, Path(folder), report or job_report, here, export=export)
    finally:
        here.close()


def data_version(config: VisionConfig, open_data: Callable[[str], DatasetVersion]) -> DatasetVersion:
    """Return the version that a configuration names: arrays in a file, or whatever `open_data` finds."""
    if not config.data:
        raise UsageError("data must name a folder, a file or a data set, got none; write data: flowers/")
    arrays = array_file(config.data)
    return array_version(arrays) if arrays is not None else open_data(config.data)


def job_report(values: Mapping[str, Any]) -> None:
    """Pass numbers on to the job that this process is, if it is one."""
    import weft

    numbers = {
        name: one for name, one in values.items() if name not in ("step", "total", "text") and one is not None
    }
    if "step" in values:
        weft.log(numbers, step=int(values["step"]))
    if "total" in values:
        left = values.get("left_s")
        text = f"epoch {values['epoch']:.1f}" + (f", {left:.0f} s left" if left is not None else "")
        weft.report(min(1.0, values["step"] / values["total"]), text)


def _train(
    config: VisionConfig,
    version: DatasetVersion,
    folder: Path,
    report: Report,
    world: TrainingWorld,
    *,
    export: bool,
) -> TrainedModel:
    began = time.perf_counter()
    config = resolve(config, version, world.device.type)
    arrays = array_file(config.data) is not None
    if not arrays:
        check_minimum(config, version)
    if world.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CONFIG, describe(config))
    torch.manual_seed(config.seed)
    if world.device.type == "cuda":
        torch.backends.cudnn.benchmark = not config.schedule.sizes
    data = training_data(config, version)
    if config.schedule.epochs:  # a head alone is fitted to plain pictures, each read once
        data.train.keep(config, world.device)
    for pictures in (data.choose, data.test):
        if pictures is not None:
            pictures.keep_rows(config, world.device)
    task = task_for(config, data.classes)
    # Channels last: convolutions and norms of all our networks are faster so, on a GPU and on a CPU.
    model = task.build().to(world.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    loading_s = time.perf_counter() - began
    first = _first(config, task, model, data, world)
    result = _looped(config, data, task, model, world, folder, report)
    trained = {"loading_s": loading_s, "first": first, "data": _about(version), "shards": _sharded(data)}
    if not result.chief or (world.rank and not config.schedule.epochs):
        return TrainedModel(folder, config, data.classes, trained)
    return finish(config, data, task, result, folder, world.device, trained, export=export)


def _about(version: DatasetVersion) -> dict[str, Any]:
    return {"name": version.name, "number": version.number, "digest": version.digest}


def _sharded(data: TrainingData) -> dict[str, int] | None:
    shards = data.train.shards
    return None if shards is None else {"files": len(shards), "bytes": shards.size_bytes}


def _first(
    config: VisionConfig, task: TrainingTask, model: nn.Module, data: TrainingData, world: TrainingWorld
) -> dict[str, Any] | None:
    """Fit the linear head on frozen features, where the configuration begins so."""
    if not config.first:
        return None
    began = time.perf_counter()
    if not fit_first(model, task, data.train, world.device):
        return None
    found: dict[str, Any] = {"training_s": time.perf_counter() - began}
    if data.choose is not None:
        found |= dict(task.evaluate(model, data.choose, world.device, whole=False).figures)
    return found


def _looped(
    config: VisionConfig,
    data: TrainingData,
    task: TrainingTask,
    model: nn.Module,
    world: TrainingWorld,
    folder: Path,
    report: Report,
) -> LoopResult:
    if not config.schedule.epochs:
        return LoopResult(model.eval())
    from weft.vision.training.examples import ExampleWriter

    writer = ExampleWriter(task, data.choose or data.test, world.device, folder / "examples")
    return VisionLoop(config, data, task, world, folder, report, writer).run(model)


def finish(
    config: VisionConfig,
    data: TrainingData,
    task: TrainingTask,
    result: LoopResult,
    folder: Path,
    device: torch.device,
    trained: dict[str, Any],
    *,
    export: bool,
) -> TrainedModel:
    """Judge the model on the test split and write the folder."""
    from safetensors.torch import save_file

    model = result.model.eval()
    judged = data.test or data.choose
    scored = task.evaluate(model, judged, device, whole=True) if judged is not None else None
    results = {
        "task": config.task,
        "score": {"name": task.score_name, "value": scored.score if scored else None},
        "split": "test" if data.test is not None else "validation",
        "classes": list(data.classes),
        "pictures": {"train": len(data.train), "test": len(judged) if judged is not None else 0},
        "steps": result.steps,
        "epochs": result.epochs,
        "training_s": result.training_s,
        "stopped": result.stopped,
        "history": result.history,
        "metrics": dict(scored.figures) if scored else {},
        "results": dict(scored.results) if scored else {},
        **trained,
    }
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    save_file(state, folder / WEIGHTS)
    if export:
        from weft.vision.export.onnx import export_folder

        results["export"] = export_folder(model.cpu(), config, data.classes, folder)
    write_json(folder / RESULTS, results)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return TrainedModel(folder, config, data.classes, results)
