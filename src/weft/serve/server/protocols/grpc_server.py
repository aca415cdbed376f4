"""The V2 protocol over gRPC: the calls of `inference.proto`, answered by the models that REST serves, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from time import perf_counter
from typing import Any, TypeVar

import grpc
import numpy as np

from weft.errors import UsageError
from weft.serve.server import logs
from weft.serve.server.inference import Counted, run_model
from weft.serve.server.keys import KeyRing
from weft.serve.server.options import ServerOptions
from weft.serve.server.protocols import inference_pb2 as messages
from weft.serve.server.protocols.bodies import Head, read_head
from weft.serve.server.protocols.classification import class_count, classified
from weft.serve.server.protocols.descriptions import (
    model_config,
    model_metadata,
    model_statistics,
    server_metadata,
)
from weft.serve.server.protocols.grpc_extras import add_extras
from weft.serve.server.protocols.inference_pb2_grpc import (
    GRPCInferenceServiceServicer,
    add_GRPCInferenceServiceServicer_to_server,
)
from weft.serve.server.protocols.tensors import (
    NAMES,
    Array,
    elements,
    from_bytes,
    numpy_type,
    to_bytes,
)
from weft.serve.server.protocols.v2 import check_memory, check_parameters, timeout_of
from weft.serve.server.refusal import RefusalError
from weft.serve.server.state import ServerState
from weft.serve.server.tracing import Tracing

SERVICE = messages.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# The field of InferTensorContents that holds the values of a datatype.
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
_OPEN = frozenset({"ServerLive", "ServerReady"})  # calls that need no key

_ADMIN = frozenset({"RepositoryModelLoad", "RepositoryModelUnload"})  # calls that take an administrator's key

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_Call = Callable[["InferenceService", _Request, Any], Awaitable[_Response]]


def _guarded(answer: _Call[_Request, _Response]) -> _Call[_Request, _Response]:
    """Wrap a call that is answered once: the key is checked, the call is traced and counted, refusals get a code."""
    name = answer.__name__

    @wraps(answer)
    async def call(self: InferenceService, request: _Request, context: Any) -> _Response:
        began = perf_counter()
        head = Head()
        peer = context.peer()
        self.state.in_flight += 1
        self.state.callers.called(peer)
        try:
            head = self.checked_head(name, context)
            with self.tracing.grpc(SERVICE, name, head):
                answered = await answer(self, request, context)
            await self.wait_for_farewell()
            return answered
        except RefusalError as refusal:
            _log(name, head, refusal, began)
            await self.wait_for_farewell()
            await context.abort(_CODES.get(refusal.status, grpc.StatusCode.INTERNAL), str(refusal))
            raise  # not reached: abort ends the call with an exception of its own
        finally:
            self.state.in_flight -= 1
            self.state.callers.answered(peer)

    return call


class InferenceService(GRPCInferenceServiceServicer):
    """The calls of the gRPC service, over the server's state."""

    def __init__(self, state: ServerState, keys: KeyRing | None, tracing: Tracing) -> None:
        self.state = state
        self.tracing = tracing
        self._repository = state.repository
        self._keys = keys

    def checked_head(self, name: str, context: Any) -> Head:
        """Return the metadata of a call as the headers of a request; a call without a valid key is refused."""
        metadata = context.invocation_metadata() or ()
        pairs = [
            (key.encode(), value.encode() if isinstance(value, str) else value) for key, value in metadata
        ]
        # The lengths of HTTP/2 messages say nothing about a request.
        head = read_head([pair for pair in pairs if not pair[0].endswith(b"content-length")])
        if self._keys is not None and name not in _OPEN:
            self._keys.check(head.key, admin=name in _ADMIN)
        return head

    async def wait_for_farewell(self) -> None:
        """Hold an answer back until its client has been told that the server ends, if it does."""
        if self.state.draining:
            await self.state.callers.farewell.wait()

    # The names of the methods are the protocol's.

    @_guarded
    async def ServerLive(
        self, request: messages.ServerLiveRequest, context: Any
    ) -> messages.ServerLiveResponse:
        return messages.ServerLiveResponse(live=True)

    @_guarded
    async def ServerReady(
        self, request: messages.ServerReadyRequest, context: Any
    ) -> messages.ServerReadyResponse:
        return messages.ServerReadyResponse(ready=self.state.is_ready())

    @_guarded
    async def ModelReady(
        self, request: messages.ModelReadyRequest, context: Any
    ) -> messages.ModelReadyResponse:
        ready = self._repository.ready(request.name, request.version or None)
        return messages.ModelReadyResponse(ready=ready)

    @_guarded
    async def ServerMetadata(
        self, request: messages.ServerMetadataRequest, context: Any
    ) -> messages.ServerMetadataResponse:
        return messages.ServerMetadataResponse(**server_metadata())

    @_guarded
    async def ModelMetadata(
        self, request: messages.ModelMetadataRequest, context: Any
    ) -> messages.ModelMetadataResponse:
        model = self._repository.model(request.name, request.version or None)
        metadata: dict[str, Any] = {**model_metadata(self._repository, model)}
        metadata.pop("parameters")
        return messages.ModelMetadataResponse(**metadata)

    @_guarded
    async def ModelConfig(
        self, request: messages.ModelConfigRequest, context: Any
    ) -> messages.ModelConfigResponse:
        config = model_config(self._repository.model(request.name, request.version or None))
        return messages.ModelConfigResponse(config=config)

    @_guarded
    async def ModelStatistics(
        self, request: messages.ModelStatisticsRequest, context: Any
    ) -> messages.ModelStatisticsResponse:
        if request.name:
            model = self._repository.model(request.name, request.version or None)
            models = [model] if request.version else list(self._repository.versions(model.name).values())
        else:
            models = self._repository.loaded()
        return messages.ModelStatisticsResponse(model_stats=[model_statistics(model) for model in models])

    @_guarded
    async def RepositoryIndex(
        self, request: messages.RepositoryIndexRequest, context: Any
    ) -> messages.RepositoryIndexResponse:
        found = await self._repository.index()
        shown = [entry for entry in found if not request.ready or entry["state"] == "READY"]
        return messages.RepositoryIndexResponse(models=shown)

    @_guarded
    async def RepositoryModelLoad(
        self, request: messages.RepositoryModelLoadRequest, context: Any
    ) -> messages.RepositoryModelLoadResponse:
        given = request.parameters.get("version") if "version" in request.parameters else None
        version = None if given is None else str(_parameter(given))
        await self._repository.load(request.model_name, version)
        return messages.RepositoryModelLoadResponse()

    @_guarded
    async def RepositoryModelUnload(
        self, request: messages.RepositoryModelUnloadRequest, context: Any
    ) -> messages.RepositoryModelUnloadResponse:
        await self._repository.unload(request.model_name)
        return messages.RepositoryModelUnloadResponse()

    @_guarded
    async def ModelInfer(
        self, request: messages.ModelInferRequest, context: Any
    ) -> messages.ModelInferResponse:
        return await self._infer(request, context)

    async def ModelStreamInfer(
        self, requests: AsyncIterator[messages.ModelInferRequest], context: Any
    ) -> AsyncIterator[messages.ModelStreamInferResponse]:
        """Answer requests one after the other over one call; a refusal is an answer, and the stream goes on."""
        name = "ModelStreamInfer"
        try:
            head = self.checked_head(name, context)
        except RefusalError as refusal:
            await context.abort(_CODES[refusal.status], str(refusal))
        while (request := await self._next_request(requests)) is not None:
            self.state.callers.calls += 1
            try:
                with self.tracing.grpc(SERVICE, name, head):
                    answer = await self._infer(request, context)
                yield messages.ModelStreamInferResponse(infer_response=answer)
            except RefusalError as refusal:
                yield messages.ModelStreamInferResponse(error_message=str(refusal))
        if self.state.draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is ending; ask another")

    async def _next_request(
        self, requests: AsyncIterator[messages.ModelInferRequest]
    ) -> messages.ModelInferRequest | None:
        """Return the next request of a stream, None at the end of the stream or of the server."""
        coming = asyncio.ensure_future(anext(requests, None))
        farewell = asyncio.ensure_future(self.state.callers.farewell.wait())
        await asyncio.wait({coming, farewell}, return_when=asyncio.FIRST_COMPLETED)
        farewell.cancel()
        if coming.done():
            return coming.result()
        coming.cancel()
        return None

    async def _infer(self, request: messages.ModelInferRequest, context: Any) -> messages.ModelInferResponse:
        began = perf_counter()
        model = self._repository.model(request.model_name, request.model_version or None)
        with Counted(model, began):
            check_parameters({key: _parameter(value) for key, value in request.parameters.items()})
            feeds = read_feeds(request)
            wanted = tuple(output.name for output in request.outputs)
            model.check_outputs(wanted)
            results = await run_model(self._repository, model, feeds, timeout_s=_timeout(request, context))
        response = messages.ModelInferResponse(
            model_name=model.name, model_version=model.version, id=request.id
        )
        if request.parameters["triton_enable_empty_final_response"].bool_param:
            response.parameters["triton_final_response"].bool_param = True
        classes = _classes(request)
        for name, array in model.choose(wanted, results):
            if name in classes:
                array = classified(array, classes[name], model.card.labels, model.has_rows(name))
            response.outputs.add(name=name, datatype=NAMES[array.dtype], shape=array.shape)
            response.raw_output_contents.append(to_bytes(array))
        return response


def read_feeds(request: messages.ModelInferRequest) -> dict[str, Array]:
    """Return the input tensors of a request by name, from raw bytes or from typed lists."""
    raw = request.raw_input_contents
    for tensor in request.inputs:
        check_memory(tensor.parameters)
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


def _typed(tensor: messages.ModelInferRequest.InferInputTensor) -> Array:
    """Return an input tensor from the typed list that its datatype names."""
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


def _parameter(parameter: messages.InferParameter | messages.ModelRepositoryParameter) -> Any:
    return getattr(parameter, parameter.WhichOneof("parameter_choice") or "string_param")


def _timeout(request: messages.ModelInferRequest, context: Any) -> float | None:
    """Return the seconds a request may take: the tighter of the call's deadline and its `timeout` parameter."""
    given = {key: _parameter(value) for key, value in request.parameters.items() if key == "timeout"}
    bounds = [bound for bound in (timeout_of(given), context.time_remaining()) if bound is not None]
    return max(min(bounds), 1e-3) if bounds else None


def _classes(request: messages.ModelInferRequest) -> dict[str, int]:
    """Return the number of classes that a request asks for, by output."""
    found: dict[str, int] = {}
    for output in request.outputs:
        check_memory(output.parameters)
        if "classification" in output.parameters:
            found[output.name] = class_count(_parameter(output.parameters["classification"]))
    return found


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
    """Return a gRPC server that is bound to its port but not yet started, and the port."""
    bounds = [
        ("grpc.max_receive_message_length", options.max_body),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=bounds)
    add_GRPCInferenceServiceServicer_to_server(InferenceService(state, keys, tracing), server)  # type: ignore[no-untyped-call]
    add_extras(server, state, SERVICE)
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
