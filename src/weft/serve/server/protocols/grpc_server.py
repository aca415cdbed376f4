"""The V2 protocol over gRPC: the same models, the same refusals, another envelope."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from time import perf_counter
from typing import Any

import grpc
import numpy as np

from weft.errors import UsageError
from weft.serve.server import logs
from weft.serve.server.door import mirror
from weft.serve.server.keys import KeyRing
from weft.serve.server.options import ServerOptions
from weft.serve.server.protocols.bodies import Head, read_head
from weft.serve.server.protocols.descriptions import (
    config_type,
    model_config,
    model_metadata,
    model_statistics,
    server_metadata,
)
from weft.serve.server.protocols.grpc_schema import CALLS, SERVICE, STREAM, message
from weft.serve.server.protocols.tensors import (
    NAMES,
    NUMPY,
    Array,
    elements,
    from_bytes,
    numpy_type,
    to_bytes,
)
from weft.serve.server.protocols.v2 import timeout_of
from weft.serve.server.refusal import RefusalError
from weft.serve.server.state import ServerState
from weft.serve.server.tracing import Tracing

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# Where a tensor's values lie if they do not come as bytes.
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_TYPES = {
    config_type(name): place for place, name in enumerate(NUMPY, 1)
}  # Triton numbers them in this order
_OPEN = frozenset({"ServerLive", "ServerReady"})

Answer = Callable[[Any, Any], Awaitable[Any]]


class Service:
    """The calls of the service."""

    def __init__(self, state: ServerState, keys: KeyRing | None, tracing: Tracing) -> None:
        self._state = state
        self._repository = state.repository
        self._keys = keys
        self._tracing = tracing
        self._response = message("ModelInferResponse")

    def handler(self) -> grpc.GenericRpcHandler:
        methods: dict[str, grpc.RpcMethodHandler] = {}
        for name in CALLS:
            request, response = message(f"{name}Request"), message(f"{name}Response")
            methods[name] = grpc.unary_unary_rpc_method_handler(
                self._guarded(name, getattr(self, name)),
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )
        methods[STREAM] = grpc.stream_stream_rpc_method_handler(
            self._stream,
            request_deserializer=message("ModelInferRequest").FromString,
            response_serializer=message("ModelStreamInferResponse").SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _guarded(self, name: str, answer: Answer) -> Answer:
        async def call(request: Any, context: Any) -> Any:
            began = perf_counter()
            head = Head()
            self._state.in_flight += 1
            try:
                head = self._head(name, context)
                with self._tracing.grpc(SERVICE, name, head):
                    return await answer(request, context)
            except RefusalError as refusal:
                _log(name, head, refusal, began)
                await context.abort(_CODES.get(refusal.status, grpc.StatusCode.INTERNAL), str(refusal))
            finally:
                self._state.in_flight -= 1

        return call

    def _head(self, name: str, context: Any) -> Head:
        metadata = context.invocation_metadata() or ()
        pairs = [
            (key.encode(), value.encode() if isinstance(value, str) else value) for key, value in metadata
        ]
        # Lengths are the business of the transport here.
        head = read_head([pair for pair in pairs if not pair[0].endswith(b"content-length")])
        if self._keys is not None and name not in _OPEN:
            self._keys.check(head.key)
        return head

    async def _stream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Requests one after the other over one call; a refusal is an answer, and the next one may do better."""
        response = message("ModelStreamInferResponse")
        try:
            head = self._head(STREAM, context)
        except RefusalError as refusal:
            await context.abort(_CODES[refusal.status], str(refusal))
        async for request in requests:
            try:
                with self._tracing.grpc(SERVICE, STREAM, head):
                    answer = await self.ModelInfer(request, context)
                yield response(infer_response=answer)
            except RefusalError as refusal:
                yield response(error_message=str(refusal))

    # The names of the calls are the protocol's.

    async def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        return message("ServerLiveResponse")(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return message("ServerReadyResponse")(ready=self._state.ready)

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        ready = self._repository.ready(request.name, request.version or None)
        return message("ModelReadyResponse")(ready=ready)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        return message("ServerMetadataResponse")(**server_metadata())

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        model = self._repository.model(request.name, request.version or None)
        told = model_metadata(self._repository, model)
        told.pop("parameters")
        return message("ModelMetadataResponse")(**told)

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        told = model_config(self._repository.model(request.name, request.version or None))
        told.pop("instance_group")
        for tensor in (*told["input"], *told["output"]):
            tensor["data_type"] = _TYPES[tensor["data_type"]]
        return message("ModelConfigResponse")(config=told)

    async def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.name:
            model = self._repository.model(request.name, request.version or None)
            models = [model] if request.version else list(self._repository.versions(model.name).values())
        else:
            models = self._repository.loaded()
        return message("ModelStatisticsResponse")(model_stats=[model_statistics(model) for model in models])

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = await self._repository.index()
        shown = [entry for entry in found if not request.ready or entry["state"] == "READY"]
        return message("RepositoryIndexResponse")(models=shown)

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: N802
        given = request.parameters.get("version") if "version" in request.parameters else None
        version = None if given is None else str(_parameter(given))
        await self._repository.load(request.model_name, version)
        return message("RepositoryModelLoadResponse")()

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._repository.unload(request.model_name)
        return message("RepositoryModelUnloadResponse")()

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        began = perf_counter()
        model = self._repository.model(request.model_name, request.model_version or None)
        try:
            feeds = read_feeds(request)
            wanted = tuple(output.name for output in request.outputs)
            model.check_outputs(wanted)
            with model.held():
                found = model.start(feeds, _timeout(request, context))
                if (other := self._repository.shadow(model)) is not None:
                    mirror(other, feeds)
                results = found if isinstance(found, list) else await found
        except RefusalError as refusal:
            model.tally.failed(refusal.status, perf_counter() - began)
            raise
        except asyncio.CancelledError:  # the client left
            model.tally.failed(499, perf_counter() - began)
            raise
        except Exception as error:  # the model's own failure
            model.tally.failed(500, perf_counter() - began)
            raise RefusalError(500, f"model {model.name!r} failed: {error}") from error
        model.answered(began)
        response = self._response(model_name=model.name, model_version=model.version, id=request.id)
        for name, array in model.choose(wanted, results):
            response.outputs.add(name=name, datatype=NAMES[array.dtype], shape=array.shape)
            response.raw_output_contents.append(to_bytes(array))
        return response


def read_feeds(request: Any) -> dict[str, Array]:
    """The inputs of a request, from bytes or from typed lists."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise RefusalError(
            400, f"raw_input_contents must be as many as the inputs, {len(request.inputs)}, got {len(raw)}"
        )
    feeds: dict[str, Array] = {}
    for place, tensor in enumerate(request.inputs):
        if tensor.name in feeds:
            raise RefusalError(400, f"each input must be given once, got {tensor.name!r} twice")
        if raw:
            feeds[tensor.name] = from_bytes(tensor.name, tensor.datatype, tensor.shape, raw[place])
        else:
            feeds[tensor.name] = _typed(tensor)
    return feeds


def _typed(tensor: Any) -> Array:
    kind = numpy_type(tensor.name, tensor.datatype)
    if tensor.datatype not in _CONTENTS:
        raise RefusalError(400, f"{tensor.name!r} of type {tensor.datatype} must come in raw_input_contents")
    values: Any = getattr(tensor.contents, _CONTENTS[tensor.datatype])
    if len(values) != elements(tensor.name, tensor.shape):
        raise RefusalError(
            400, f"{tensor.name!r} of shape {list(tensor.shape)} must have as many values, got {len(values)}"
        )
    try:
        if tensor.datatype == "BYTES":
            values = [value.decode() for value in values]
        return np.array(values, kind).reshape(tensor.shape)
    except (OverflowError, ValueError) as error:
        raise RefusalError(400, f"the values of {tensor.name!r} must be {tensor.datatype}: {error}") from None


def _parameter(parameter: Any) -> Any:
    return getattr(parameter, parameter.WhichOneof("parameter_choice") or "string_param")


def _timeout(request: Any, context: Any) -> float | None:
    """The tighter of the call's deadline and the request's own bound."""
    given = {key: _parameter(value) for key, value in request.parameters.items() if key == "timeout"}
    bounds = [bound for bound in (timeout_of(given), context.time_remaining()) if bound is not None]
    return max(min(bounds), 1e-3) if bounds else None


def _log(name: str, head: Head, refusal: RefusalError, began: float) -> None:
    logs.event(
        "request",
        id=head.request_id.decode("latin-1"),
        method="gRPC",
        path=name,
        status=refusal.status,
        ms=round((perf_counter() - began) * 1000, 3),
        error=str(refusal),
    )


def make_server(
    state: ServerState, keys: KeyRing | None, options: ServerOptions, tracing: Tracing
) -> tuple[grpc.aio.Server, int]:
    """A server bound to its port, not yet started, and the port."""
    bounds = [
        ("grpc.max_receive_message_length", options.max_body),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=bounds)
    server.add_generic_rpc_handlers((Service(state, keys, tracing).handler(),))
    address = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{address}:{options.grpc_port}"
    try:
        if options.tls_cert is not None and options.tls_key is not None:
            pair = (options.tls_key.read_bytes(), options.tls_cert.read_bytes())
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            port = server.add_insecure_port(address)
    except (RuntimeError, OSError) as error:
        raise UsageError(f"{address} must be free to listen on; choose another with --grpc-port") from error
    return server, port
