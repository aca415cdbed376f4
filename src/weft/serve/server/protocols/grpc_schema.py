"""The messages of the V2 protocol's gRPC service, built in memory from a table.

Names and numbers are those of the protocol and of the extensions that Triton's clients use: statistics, the model
repository, the configuration. They live in a pool of their own, so that a client's generated code may be loaded beside.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = "inference.GRPCInferenceService"

# message: fields, numbered from 1; `*` repeats, `{}` is a map from string, `|` belongs to the message's one choice.
# A dot leads to a message of ours; numbers that are skipped stand as such.
_MESSAGES = """
ServerLiveRequest:
ServerLiveResponse: live bool
ServerReadyRequest:
ServerReadyResponse: ready bool
ModelReadyRequest: name string, version string
ModelReadyResponse: ready bool
ServerMetadataRequest:
ServerMetadataResponse: name string, version string, extensions *string
ModelMetadataRequest: name string, version string
ModelMetadataResponse: name string, versions *string, platform string, inputs *.ModelMetadataResponse.TensorMetadata,
    outputs *.ModelMetadataResponse.TensorMetadata
ModelMetadataResponse.TensorMetadata: name string, datatype string, shape *int64
InferParameter: bool_param |bool, int64_param |int64, string_param |string, double_param |double, uint64_param |uint64
InferTensorContents: bool_contents *bool, int_contents *int32, int64_contents *int64, uint_contents *uint32,
    uint64_contents *uint64, fp32_contents *float, fp64_contents *double, bytes_contents *bytes
ModelInferRequest: model_name string, model_version string, id string, parameters {}.InferParameter,
    inputs *.ModelInferRequest.InferInputTensor, outputs *.ModelInferRequest.InferRequestedOutputTensor,
    raw_input_contents *bytes
ModelInferRequest.InferInputTensor: name string, datatype string, shape *int64, parameters {}.InferParameter,
    contents .InferTensorContents
ModelInferRequest.InferRequestedOutputTensor: name string, parameters {}.InferParameter
ModelInferResponse: model_name string, model_version string, id string, parameters {}.InferParameter,
    outputs *.ModelInferResponse.InferOutputTensor, raw_output_contents *bytes
ModelInferResponse.InferOutputTensor: name string, datatype string, shape *int64, parameters {}.InferParameter,
    contents .InferTensorContents
ModelStreamInferResponse: error_message string, infer_response .ModelInferResponse
ModelConfigRequest: name string, version string
ModelConfigResponse: config .ModelConfig
ModelConfig: name string, platform string, 3, max_batch_size int32, input *.ModelInput, output *.ModelOutput, 7, 8, 9,
    10, dynamic_batching .ModelDynamicBatching, 12, 13, 14, 15, 16, backend string
ModelInput: name string, data_type int32, 3, dims *int64
ModelOutput: name string, data_type int32, dims *int64
ModelDynamicBatching: 1, max_queue_delay_microseconds uint64
ModelStatisticsRequest: name string, version string
StatisticDuration: count uint64, ns uint64
InferStatistics: success .StatisticDuration, fail .StatisticDuration, queue .StatisticDuration,
    compute_input .StatisticDuration, compute_infer .StatisticDuration, compute_output .StatisticDuration
InferBatchStatistics: batch_size uint64, 2, compute_infer .StatisticDuration
ModelStatistics: name string, version string, last_inference uint64, inference_count uint64, execution_count uint64,
    inference_stats .InferStatistics, batch_stats *.InferBatchStatistics
ModelStatisticsResponse: model_stats *.ModelStatistics
ModelRepositoryParameter: bool_param |bool, int64_param |int64, string_param |string, bytes_param |bytes
RepositoryIndexRequest: repository_name string, ready bool
RepositoryIndexResponse: models *.RepositoryIndexResponse.ModelIndex
RepositoryIndexResponse.ModelIndex: name string, version string, state string, reason string
RepositoryModelLoadRequest: repository_name string, model_name string, parameters {}.ModelRepositoryParameter
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: repository_name string, model_name string, parameters {}.ModelRepositoryParameter
RepositoryModelUnloadResponse:
"""

# Each call takes NAMERequest and gives NAMEResponse, but for the stream, which takes what ModelInfer takes.
CALLS = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
)
STREAM = "ModelStreamInfer"

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "double": _Field.TYPE_DOUBLE,
    "float": _Field.TYPE_FLOAT,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}
_CHOICE = "parameter_choice"


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="weft_inference.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, descriptor_pb2.DescriptorProto] = {}
    for line in re.sub(r"\n +", " ", _MESSAGES.strip()).splitlines():
        full, _, fields = line.partition(":")
        outer, _, name = full.rpartition(".")
        message = made[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        made[full] = message
        for number, text in enumerate(filter(None, map(str.strip, fields.split(","))), 1):
            if not text.isdecimal():
                _add_field(message, full, number, *text.split())
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, full: str, number: int, name: str, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind.startswith("*"):
        field.label = _Field.LABEL_REPEATED
    elif kind.startswith("|"):
        if not message.oneof_decl:
            message.oneof_decl.add(name=_CHOICE)
        field.oneof_index = 0
    elif kind.startswith("{}"):
        entry = message.nested_type.add(name="".join(map(str.capitalize, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        _typed(entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), kind.lstrip("{}"))
        field.label = _Field.LABEL_REPEATED
        kind = f".{full}.{entry.name}"
    _typed(field, kind.lstrip("*|"))


def _typed(field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    if kind.startswith("."):
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}{kind}"
    else:
        field.type = _SCALARS[kind]


_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(_file().SerializeToString())


def message(name: str) -> Any:
    """The class of a message of the protocol."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))
