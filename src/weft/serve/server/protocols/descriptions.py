"""What the server says of itself and its models, as plain data: REST sends it, gRPC copies it."""

from __future__ import annotations

from typing import Any

from weft.serve.server.models.model import Model
from weft.serve.server.models.repository import Repository
from weft.serve.server.models.tally import Histogram
from weft.version import __version__

EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "statistics")


def server_metadata() -> dict[str, Any]:
    return {"name": "weft", "version": __version__, "extensions": list(EXTENSIONS)}


def model_metadata(repository: Repository, model: Model) -> dict[str, Any]:
    card = model.card
    told: dict[str, Any] = {
        "name": model.name,
        "versions": list(repository.versions(model.name)),
        "platform": model.platform,
        "inputs": [spec.to_json() for spec in model.inputs.values()],
        "outputs": [spec.to_json() for spec in model.outputs],
    }
    parameters: dict[str, Any] = {"task": card.task}
    if card.labels:
        parameters["labels"] = list(card.labels)
    if card.features:
        parameters["features"] = list(card.features)
    if card.picture is not None:
        parameters["picture"] = [card.picture.height, card.picture.width]
    return {**told, "parameters": parameters}


def model_config(model: Model) -> dict[str, Any]:
    """As Triton's clients know it: sizes without the batch where the model batches."""
    options = model.options
    skip = 1 if model.batches else 0
    return {
        "name": model.name,
        "platform": model.platform,
        "backend": "onnxruntime" if model.platform == "onnxruntime_onnx" else "pytorch",
        "max_batch_size": options.max_batch if model.batches else 0,
        "input": [
            {"name": spec.name, "data_type": config_type(spec.datatype), "dims": list(spec.shape[skip:])}
            for spec in model.inputs.values()
        ],
        "output": [
            {"name": spec.name, "data_type": config_type(spec.datatype), "dims": list(spec.shape[skip:])}
            for spec in model.outputs
        ],
        "instance_group": [{"count": options.replicas}],
        "dynamic_batching": {"max_queue_delay_microseconds": int(options.delay_ms * 1000)},
    }


def config_type(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def model_statistics(model: Model) -> dict[str, Any]:
    tally = model.tally
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(tally.last * 1000),
        "inference_count": tally.rows,
        "execution_count": tally.computing.count,
        "inference_stats": {
            "success": _histogram(tally.latency),
            "fail": _duration(sum(tally.failures.values()), tally.failed_s),
            "queue": _histogram(tally.queued()),
            "compute_input": _duration(0, 0.0),
            "compute_infer": _histogram(tally.computing),
            "compute_output": _duration(0, 0.0),
        },
        "batch_stats": [
            {"batch_size": size, "compute_infer": _duration(int(times), seconds)}
            for size, (times, seconds) in sorted(tally.batches.items())
        ],
    }


def _histogram(histogram: Histogram) -> dict[str, int]:
    return _duration(histogram.count, histogram.total)


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": int(seconds * 1e9)}
