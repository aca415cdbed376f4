"""OpenTelemetry where it is installed and configured; nothing at all where it is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from weft.serve.server.protocols.bodies import Head


class Tracing:
    """Spans of requests."""

    def __init__(self, tracer: Any = None) -> None:
        self._tracer = tracer
        self.on = tracer is not None

    def http(self, method: str, path: str, head: Head) -> AbstractContextManager[None]:
        """Around a request over HTTP."""
        return self._span(f"{method} {path}", head, {"http.request.method": method, "url.path": path})

    def grpc(self, service: str, call: str, head: Head) -> AbstractContextManager[None]:
        """Around a call over gRPC, or around one request of a stream of them."""
        if not self.on:
            return nullcontext()
        details = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": call}
        return self._span(f"{service}/{call}", head, details)

    @contextmanager
    def _span(self, name: str, head: Head, details: dict[str, str]) -> Iterator[None]:
        from opentelemetry.propagate import extract

        context = extract({"traceparent": head.parent.decode("latin-1")} if head.parent else {})
        details = {**details, "weft.request_id": head.request_id.decode("latin-1")}
        with self._tracer.start_as_current_span(name, context=context, attributes=details):
            yield

    def close(self) -> None:
        if self._tracer is not None:
            from opentelemetry import trace

            provider: Any = trace.get_tracer_provider()
            provider.shutdown()


def configured() -> Tracing:
    """A tracer if an exporter is named in the environment, and the packages are there."""
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "otlp" if _endpoint() else "none")
    if exporter == "none":
        return Tracing()
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
    except ImportError:
        return Tracing()
    made: SpanExporter
    if exporter == "console":
        made = ConsoleSpanExporter()
    else:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError:
            return Tracing()
        made = OTLPSpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return Tracing(trace.get_tracer("weft.serve"))


def _endpoint() -> bool:
    return any(name.startswith("OTEL_EXPORTER_") for name in os.environ)
