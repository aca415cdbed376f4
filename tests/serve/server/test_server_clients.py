"""Triton's own clients against our server: REST and gRPC, JSON and binary."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from testing.serving.server import Server

from weft.serve.client import ServerError
from weft.serve.server.protocols.tensors import BF16

ROW = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)


def triton(kind: str) -> ModuleType:
    return import_module(f"tritonclient.{kind}")


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Server) -> Any:
    module = triton(request.param)
    made = module.InferenceServerClient(server.grpc if request.param == "grpc" else server.address)
    yield made
    made.close()


def told(answer: Any) -> Any:
    """What a client says, as plain data, whichever it is."""
    if isinstance(answer, dict | list):
        return answer
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(answer, preserving_proto_field_name=True)


def values(module: ModuleType, name: str, array: Any, datatype: str, binary: bool) -> Any:
    given = module.InferInput(name, list(array.shape), datatype)
    if module.__name__.endswith("http"):
        given.set_data_from_numpy(array, binary_data=binary)
    else:
        given.set_data_from_numpy(array)
    return given


def module_of(client: Any) -> ModuleType:
    return triton("grpc" if "grpc" in type(client).__module__ else "http")


def test_bf16(client: Any, server: Server) -> None:
    row = ROW[:, :3].astype(BF16)
    answer = client.infer("brief", [values(module_of(client), "x", row, "BF16", True)])
    for name, kind in (("y", BF16), ("sum", np.float32)):
        assert answer.as_numpy(name).dtype == kind
        np.testing.assert_array_equal(answer.as_numpy(name), row + row)
    assert told(client.get_model_metadata("brief"))["inputs"][0]["datatype"] == "BF16"
    with server.client() as ours:
        for binary in (True, False):
            found = ours.infer("brief", {"x": row}, binary=binary)["y"]
            assert found.dtype == BF16
            np.testing.assert_array_equal(found, row + row)
        assert ours.infer("brief", {"x": row[:0]})["y"].shape == (0, 3)
        with pytest.raises(ServerError, match="must be BF16, got FP32"):
            ours.infer("brief", {"x": ROW})


@pytest.mark.parametrize("binary", [True, False])
def test_infer(client: Any, binary: bool) -> None:
    module = module_of(client)
    outputs = None
    if module.__name__.endswith("http"):
        outputs = [module.InferRequestedOutput("y", binary_data=binary)]
    given = values(module, "x", ROW, "FP32", binary)
    answer = client.infer("double", [given], outputs=outputs, request_id="seven")
    np.testing.assert_array_equal(answer.as_numpy("y"), 2 * ROW)
    assert told(answer.get_response())["id"] == "seven"


@pytest.mark.parametrize("binary", [True, False])
def test_text_and_other_types(client: Any, binary: bool) -> None:
    module = module_of(client)
    given = [
        values(module, "text", np.array(["a", "ß"], object), "BYTES", binary),
        values(module, "count", np.array([[1, 2], [3, 4]]), "INT64", binary),
        values(module, "flag", np.array([True, False]), "BOOL", binary),
    ]
    answer = client.infer("mixed", given)
    said = [word.decode() if isinstance(word, bytes) else word for word in answer.as_numpy("said")]
    assert said == ["a", "ß"]
    assert answer.as_numpy("more").tolist() == [[2, 3], [4, 5]]
    assert answer.as_numpy("other").tolist() == [False, True]


def test_health_metadata_statistics(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert client.is_model_ready("double", "1")
    assert not client.is_model_ready("nobody")
    assert told(client.get_server_metadata())["name"] == "weft"
    metadata = told(client.get_model_metadata("double"))
    assert [(one["name"], list(map(int, one["shape"]))) for one in metadata["inputs"]] == [("x", [-1, 4])]
    config = told(client.get_model_config("double"))
    config = config.get("config", config)
    assert config["max_batch_size"] == 16
    assert config["input"][0]["data_type"] == "TYPE_FP32"
    given = values(module_of(client), "x", ROW, "FP32", True)
    client.infer("double", [given])
    (statistics,) = told(client.get_inference_statistics("double"))["model_stats"]
    assert int(statistics["inference_stats"]["success"]["count"]) > 0
    index = told(client.get_model_repository_index())
    index = index["models"] if isinstance(index, dict) else index
    assert {"double", "mixed"} <= {entry["name"] for entry in index}


def test_refusals(client: Any) -> None:
    from tritonclient.utils import InferenceServerException

    module = module_of(client)
    given = values(module, "x", ROW, "FP32", True)
    with pytest.raises(InferenceServerException, match="model must be one of"):
        client.infer("nobody", [given])
    with pytest.raises(InferenceServerException, match="must have the shape"):
        client.infer("double", [values(module, "x", ROW[:, :2], "FP32", True)])
    with pytest.raises(InferenceServerException, match="outputs must be among"):
        client.infer("double", [given], outputs=[module.InferRequestedOutput("z")])
    with pytest.raises(InferenceServerException, match="must be FP32"):
        client.infer("double", [values(module, "x", ROW.astype(np.int32), "INT32", True)])


def test_a_grpc_stream_goes_on_after_a_refusal(server: Server) -> None:
    import queue

    import tritonclient.grpc as module

    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with module.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        given = values(module, "x", ROW, "FP32", True)
        client.async_stream_infer("nobody", [given])
        client.async_stream_infer("double", [given])
        _, error = answers.get(timeout=60)
        assert "model must be one of" in str(error)
        result, error = answers.get(timeout=60)
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * ROW)
        client.stop_stream()


def test_a_grpc_deadline(server: Server) -> None:
    import tritonclient.grpc as module
    from tritonclient.utils import InferenceServerException

    with module.InferenceServerClient(server.grpc) as client:
        given = values(module, "n", np.array([100_000]), "INT64", True)
        with pytest.raises(InferenceServerException, match="DEADLINE_EXCEEDED"):
            client.infer("busy", [given], client_timeout=0.05)


def test_typed_contents_without_raw_bytes(server: Server) -> None:
    """What grpcurl and hand-written clients send."""
    import grpc

    from weft.serve.server.protocols.inference_pb2 import ModelInferRequest
    from weft.serve.server.protocols.inference_pb2_grpc import GRPCInferenceServiceStub

    with grpc.insecure_channel(server.grpc) as channel:
        call = GRPCInferenceServiceStub(channel).ModelInfer  # type: ignore[no-untyped-call]
        request = ModelInferRequest(model_name="double")
        request.inputs.add(name="x", datatype="FP32", shape=[1, 4]).contents.fp32_contents.extend(
            [1, 2, 3, 4]
        )
        answer = call(request, timeout=60)
        assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [2, 4, 6, 8]
        request.inputs[0].shape[:] = [1, 5]
        with pytest.raises(grpc.RpcError) as caught:
            call(request, timeout=60)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
