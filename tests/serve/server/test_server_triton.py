"""Details of V2 and Triton that clients of other people rely on."""

from __future__ import annotations

import json
import math
import queue
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from testing.serving.server import Server
from tritonclient.utils import InferenceServerException

from weft.serve.card import Card
from weft.serve.server.models.model import Model, Pace
from weft.serve.server.options import ModelOptions
from weft.serve.server.protocols.classification import class_count, classified
from weft.serve.server.protocols.descriptions import model_config
from weft.serve.server.protocols.grpc_server import SERVICE
from weft.serve.server.protocols.openapi import OPERATIONS
from weft.serve.server.protocols.tensors import TensorSpec
from weft.serve.server.protocols.v2 import parse_infer
from weft.serve.server.refusal import RefusalError

ROW = np.ones((1, 4), np.float32)
PIXELS = np.stack([np.full((8, 8), value, np.float32) for value in (1, 3, 2)])[None]


class OneNumber:
    """A runner with a tensor of no sizes beyond its rows."""

    inputs: tuple[TensorSpec, ...] = (TensorSpec("x", "FP32", (-1, 2)),)
    outputs: tuple[TensorSpec, ...] = (TensorSpec("y", "FP32", (-1,)),)
    card = Card()
    platform = "onnxruntime_onnx"
    processor = "GPU"

    def run(self, feeds: Any) -> list[Any]:
        return [feeds["x"].sum(1)]


def test_a_configuration_is_as_triton_writes_it() -> None:
    import asyncio

    async def told(**options: Any) -> dict[str, Any]:
        model = Model("m", "1", [OneNumber()], ModelOptions(replicas=2, **options), Pace(), "why")
        model.retire()
        return model_config(model)

    config = asyncio.run(told())
    assert config["instance_group"] == [{"name": "m_0", "kind": "KIND_GPU", "count": 2}]
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [2], "optional": False}]
    assert config["output"][0]["dims"] == [1]
    assert config["output"][0]["reshape"] == {"shape": []}
    assert config["parameters"] == {"batching": {"string_value": "why"}}
    alone = asyncio.run(told(max_batch=1))
    assert alone["max_batch_size"] == 0
    assert alone["output"][0]["dims"] == [-1]


def test_the_configuration_is_the_same_on_both_wires(server: Server) -> None:
    told = server.call("GET", "/v2/models/double/config").json()
    with triton_grpc.InferenceServerClient(server.grpc) as calls:
        called = calls.get_model_config("double", as_json=True)["config"]
    assert called["instance_group"] == [{"name": "double_0", "kind": "KIND_CPU", "count": 1}]
    assert called["instance_group"] == told["instance_group"]
    assert called["parameters"] == told["parameters"]


def test_best_classes_in_place_of_scores() -> None:
    scores = np.array([[0.1, 0.7, 0.2], [3, 1, 2]], np.float32)
    assert classified(scores, 2, ("a", "b"), True).tolist() == [
        ["0.700000:1:b", "0.200000:2"],
        ["3.000000:0:a", "2.000000:2"],
    ]
    assert classified(scores[0], 9, (), False).tolist() == ["0.700000:1", "0.200000:2", "0.100000:0"]
    for wrong in (0, -1, True, "3", 1.5):
        with pytest.raises(RefusalError, match="must be a number of classes"):
            class_count(wrong)


def test_class_count_over_both_wires(server: Server) -> None:
    wanted = [[b"3.000000:1:green", b"2.000000:2:blue"]]
    for binary in (True, False):
        given = triton_http.InferInput("pixels", PIXELS.shape, "FP32")
        given.set_data_from_numpy(PIXELS, binary_data=binary)
        output = triton_http.InferRequestedOutput("scores", binary_data=binary, class_count=2)
        with triton_http.InferenceServerClient(server.address) as client:
            found = client.infer("colours", [given], outputs=[output]).as_numpy("scores").tolist()
        assert [[text if binary else text.encode() for text in row] for row in found] == wanted
    called = triton_grpc.InferInput("pixels", PIXELS.shape, "FP32")
    called.set_data_from_numpy(PIXELS)
    with triton_grpc.InferenceServerClient(server.grpc) as calls:
        result = calls.infer("colours", [called], outputs=[triton_grpc.InferRequestedOutput("scores", 2)])
    assert result.as_numpy("scores").tolist() == wanted


def inputs(kind: Any) -> list[Any]:
    given = kind.InferInput("x", [1, 4], "FP32")
    given.set_data_from_numpy(ROW)
    return [given]


def test_what_is_not_supported_is_said_on_both_wires(server: Server) -> None:
    with (
        triton_http.InferenceServerClient(server.address) as client,
        triton_grpc.InferenceServerClient(server.grpc) as calls,
    ):
        wires: list[tuple[Any, Any]] = [(client, triton_http), (calls, triton_grpc)]
        for asked, kind in wires:
            shared = kind.InferInput("x", [1, 4], "FP32")
            shared.set_shared_memory("region", 16)
            tries: list[Callable[[], Any]] = [
                lambda: asked.register_system_shared_memory("region", "/key", 16),  # noqa: B023
                lambda: asked.get_system_shared_memory_status(),  # noqa: B023
                lambda: asked.get_cuda_shared_memory_status(),  # noqa: B023
                lambda: asked.unregister_system_shared_memory(),  # noqa: B023
                lambda: asked.infer("double", [shared]),  # noqa: B023
            ]
            for work in tries:
                with pytest.raises(InferenceServerException, match="shared memory is not supported"):
                    work()
            with pytest.raises(InferenceServerException, match="sequences are not supported"):
                asked.infer("double", inputs(kind), sequence_id=7, sequence_start=True)
            assert asked.infer("double", inputs(kind)).as_numpy("y").tolist() == [[2, 2, 2, 2]]


def test_health_and_reflection_over_grpc(server: Server) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE, "double"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as unknown:
            health.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=60)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        watching = health.Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
        watching.cancel()
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
        ]
        listed, described = stub.ServerReflectionInfo(iter(asked), timeout=60)
        assert SERVICE in {one.name for one in listed.list_services_response.service}
        assert b"ModelInfer" in described.file_descriptor_response.file_descriptor_proto[0]


def test_the_only_answer_of_a_stream_is_the_final_one(server: Server) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    with triton_grpc.InferenceServerClient(server.grpc) as calls:
        calls.start_stream(lambda result, error: answers.put(error or result))
        calls.async_stream_infer("double", inputs(triton_grpc), enable_empty_final_response=True)
        found = answers.get(timeout=60)
        calls.stop_stream()
    assert found.get_response().parameters["triton_final_response"].bool_param


def test_numbers_that_json_has_no_words_for(server: Server) -> None:
    values = [math.inf, -math.inf, math.nan, 1.0]
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [values]}]}
    told = server.post("/v2/models/double/infer", body)
    assert told.status == 200
    assert b"Infinity" in told.body
    found = told.json()["outputs"][0]["data"]
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])
    assert found[3] == 2
    with server.client() as client:
        again = client.infer("double", {"x": np.array([values], np.float32)}, binary=False)["y"]
    np.testing.assert_array_equal(again, 2 * np.array([values], np.float32))
    predicted = server.post("/v1/models/double:predict", {"instances": [values]})
    assert b"[[Infinity, -Infinity, NaN, 2.0]]" in predicted.body
    for wrong in (b"NaN", b'{"inputs": NaN}', b'{"inputs": [NaN]}', b'{"inputs": [{"name": NaN}]}'):
        with pytest.raises(RefusalError):
            parse_infer(wrong)


def test_the_root_is_a_page_for_browsers_and_a_sign_of_life_for_kserve(server: Server) -> None:
    assert server.call("GET", "/", accept="application/json").json() == {"status": "alive"}
    assert server.call("GET", "/").json() == {"status": "alive"}
    assert server.call("GET", "/", accept="text/html,*/*").body.startswith(b"<!doctype html>")


def test_every_operation_has_a_name_of_its_own(server: Server) -> None:
    paths = server.call("GET", "/openapi.json").json()["paths"]
    names = [one["operationId"] for methods in paths.values() for one in methods.values()]
    assert len(set(names)) == len(names) == len(OPERATIONS)


def test_figures_of_the_process_and_of_readiness(server: Server) -> None:
    text = server.call("GET", "/metrics").body.decode()
    for line in (
        "process_resident_memory_bytes ",
        "process_cpu_seconds_total ",
        "weft_ready 1.0",
        "weft_info{",
    ):
        assert f"\n{line}" in text
    assert 'weft_model_ready{model="double",version="1"} 1.0' in text
    assert json.dumps("version")[1:-1] in text
