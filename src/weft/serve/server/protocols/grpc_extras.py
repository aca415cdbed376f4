"""Services that gRPC tools expect of any server: health, reflection, and clear words for what is not supported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from weft.serve.server.protocols import inference_pb2 as messages
from weft.serve.server.state import ServerState

_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_WATCH_S = 0.5  # how often the health is looked at for those who watch it


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """gRPC's own health check: of the server (empty name), of the inference service, and of models by name."""

    def __init__(self, state: ServerState, service: str) -> None:
        self._state = state
        self._known = ("", service)

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802  # the protocol's name
        status = self._status(request.service)
        if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r}")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # the protocol's name
        sent = None
        while not self._state.callers.farewell.is_set():
            if (status := self._status(request.service)) != sent:
                sent = status
                yield health_pb2.HealthCheckResponse(status=status)
            await asyncio.sleep(_WATCH_S)

    def _status(self, service: str) -> Any:
        answer = health_pb2.HealthCheckResponse
        repository = self._state.repository
        if service in self._known:
            return answer.SERVING if self._state.is_ready() else answer.NOT_SERVING
        if service in repository.names():
            good = self._state.ready and repository.ready(service)
            return answer.SERVING if good else answer.NOT_SERVING
        return answer.SERVICE_UNKNOWN


class UnsupportedCalls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers calls that Triton's clients may make and this server does not have."""

    def __init__(self, service: str) -> None:
        self._prefix = f"/{service}/"

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        if not method.startswith(self._prefix):
            return None
        call = method.removeprefix(self._prefix)
        what = "shared memory" if "SharedMemory" in call else call

        async def refuse(request: bytes, context: Any) -> None:
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED, f"{what} is not supported; send tensors in the request"
            )

        return grpc.unary_unary_rpc_method_handler(refuse)


def add_extras(server: grpc.aio.Server, state: ServerState, service: str) -> None:
    """Add health, reflection and words for unsupported calls to a server."""
    health_pb2_grpc.add_HealthServicer_to_server(HealthService(state, service), server)
    pool = messages.DESCRIPTOR.pool  # the messages of the protocol have a pool of their own
    for other in (health_pb2, reflection_pb2):
        pool.AddSerializedFile(other.DESCRIPTOR.serialized_pb)
    reflection.enable_server_reflection((service, _HEALTH, reflection.SERVICE_NAME), server, pool)
    server.add_generic_rpc_handlers((UnsupportedCalls(service),))
