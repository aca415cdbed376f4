"""Descriptions of the server and its models as plain data, for REST to encode and gRPC to copy into its messages."""

from __future__ import annotations

from typing import Any, TypedDict

from weft.serve.server.models.model import Model
from weft.serve.server.models.repository import Repository
from weft.serve.server.models.tally import Histogram
from weft.serve.server.protocols.tensors import Datatype, TensorSpec
from weft.version import __version__

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "statistics",
)


class ServerMetadata(TypedDict):
    """The name, version and extensions of the server."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(TypedDict):
    """An input or output of a model; -1 in the shape is a size that each request chooses."""

    name: str
    datatype: Datatype
    shape: list[int]


class ModelMetadata(TypedDict):
    """The inputs and outputs of a model, its loaded versions, and what its card says."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    parameters: dict[str, Any]


class DurationStatistics(TypedDict):
    """The number of some events, and the nanoseconds they took together."""

    count: int
    ns: int


class InferenceStatistics(TypedDict):
    """The time of a model's requests, by outcome and by stage."""

    success: DurationStatistics
    fail: DurationStatistics
    queue: DurationStatistics
    compute_input: DurationStatistics
    compute_infer: DurationStatistics
    compute_output: DurationStatistics


class BatchStatistics(TypedDict):
    """The runs of batches of one size."""

    batch_size: int
    compute_infer: DurationStatistics


class ModelStatistics(TypedDict):
    """The figures of one version of a model since it was loaded."""

    name: str
    version: str
    last_inference: int  # milliseconds since the epoch
    inference_count: int  # rows
    execution_count: int  # runs
    inference_stats: InferenceStatistics
    batch_stats: list[BatchStatistics]


class StatisticsAnswer(TypedDict):
    """The figures of some models."""

    model_stats: list[ModelStatistics]


def server_metadata() -> ServerMetadata:
    return {"name": "weft", "version": __version__, "extensions": list(EXTENSIONS)}


def model_metadata(repository: Repository, model: Model) -> ModelMetadata:
    card = model.card
    limit = model.options.max_batch if model.batches else 1
    parameters: dict[str, Any] = {
        "task": card.task,
        "batching": {"max_batch": limit, "reason": model.batch_reason},
    }
    if card.labels:
        parameters["labels"] = list(card.labels)
    if card.features:
        parameters["features"] = list(card.features)
    if card.picture is not None:
        parameters["picture"] = [card.picture.height, card.picture.width]
    return {
        "name": model.name,
        "versions": list(repository.versions(model.name)),
        "platform": model.platform,
        "inputs": [_tensor(spec) for spec in model.inputs.values()],
        "outputs": [_tensor(spec) for spec in model.outputs],
        "parameters": parameters,
    }


def _tensor(spec: TensorSpec) -> TensorMetadata:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def model_config(model: Model) -> dict[str, Any]:
    """Return the configuration of a model as Triton's clients read it: without the batch where the model batches."""
    options = model.options
    skip = 1 if model.batches else 0
    return {
        "name": model.name,
        "platform": model.platform,
        "backend": "onnxruntime" if model.platform == "onnxruntime_onnx" else "pytorch",
        "max_batch_size": options.max_batch if model.batches else 0,
        "input": [{**_config_tensor(spec, skip), "optional": False} for spec in model.inputs.values()],
        "output": [_config_tensor(spec, skip) for spec in model.outputs],
        "instance_group": [
            {"name": f"{model.name}_0", "kind": f"KIND_{model.processor}", "count": options.replicas}
        ],
        "dynamic_batching": {"max_queue_delay_microseconds": int(options.delay_ms * 1000)},
        "parameters": {"batching": {"string_value": model.batch_reason}},
    }


def _config_tensor(spec: TensorSpec, skip: int) -> dict[str, Any]:
    data_type = "TYPE_STRING" if spec.datatype == "BYTES" else f"TYPE_{spec.datatype}"
    fields: dict[str, Any] = {"name": spec.name, "data_type": data_type, "dims": list(spec.shape[skip:])}
    if not fields["dims"]:  # Triton has no tensors without sizes: it calls them tensors of one value
        fields |= {"dims": [1], "reshape": {"shape": []}}
    return fields


def model_statistics(model: Model) -> ModelStatistics:
    tally = model.tally
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(tally.last * 1000),
        "inference_count": tally.rows,
        "execution_count": tally.computing.count,
        "inference_stats": {
            "success": _sum_of(tally.latency),
            "fail": _duration(sum(tally.failures.values()), tally.failed_s),
            "queue": _sum_of(tally.queued()),
            "compute_input": _duration(0, 0.0),
            "compute_infer": _sum_of(tally.computing),
            "compute_output": _duration(0, 0.0),
        },
        "batch_stats": [
            {"batch_size": size, "compute_infer": _duration(int(times), seconds)}
            for size, (times, seconds) in sorted(tally.batches.items())
        ],
    }


def _sum_of(histogram: Histogram) -> DurationStatistics:
    return _duration(histogram.count, histogram.total)


def _duration(count: int, seconds: float) -> DurationStatistics:
    return {"count": count, "ns": int(seconds * 1e9)}
