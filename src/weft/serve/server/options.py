"""Options of a served model and of the server: typed, checked when made."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

from weft.errors import UsageError
from weft.serve.onnx_session import usable_cores

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of one model: batches, replicas, queue, threads, device."""

    max_batch: int = 16  # rows; 1: no batching
    adapts: bool = False  # batches only where they are seen to pay
    delay_ms: float = 0.0  # how long a request may wait for company while a replica is free
    replicas: int = 1
    queue: int = 256  # requests that may wait; one more is answered 429
    timeout_s: float = 30.0
    threads: int = 0  # a replica's; 0: its share of the cores
    device: str = "auto"

    def __post_init__(self) -> None:
        for name, least in (("max_batch", 1), ("replicas", 1), ("queue", 1), ("threads", 0), ("delay_ms", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.timeout_s <= 0:
            raise UsageError(f"timeout_s must be above 0, got {self.timeout_s}")
        if self.device not in DEVICES:
            raise UsageError(f"device must be one of {', '.join(DEVICES)}, got {self.device!r}")

    def share(self) -> int:
        """Threads of one replica."""
        return self.threads or max(1, usable_cores() // self.replicas)

    def changed(self, text: str) -> ModelOptions:
        """With some of them set anew: `max_batch=8,delay_ms=5`."""
        kinds = {
            field.name: type(getattr(self, field.name)) for field in fields(self) if field.name != "adapts"
        }
        values: dict[str, object] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            if name not in kinds:
                raise UsageError(f"a model's options must be among {', '.join(kinds)}, got {part!r}")
            try:
                values[name] = kinds[name](value)
                if name in ("max_batch", "delay_ms"):
                    values["adapts"] = False
            except ValueError:
                raise UsageError(f"{name} must be {kinds[name].__name__}, got {value!r}") from None
        return replace(self, **values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Traffic:
    """The canary and the shadow of a name, besides its default version."""

    canary: str | None = None  # a version or an alias
    percent: float = 0.0  # of the requests, answered by the canary
    shadow: str | None = None  # gets a copy of every request; its answers are dropped

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:
            raise UsageError(f"a canary's share must be 0 to 100 percent, got {self.percent}")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of the server: addresses, keys, TLS, limits of requests."""

    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int | None = 8001  # none: no gRPC
    keys: Path | None = None
    insecure: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allow_hosts: tuple[
        str, ...
    ] = ()  # names besides localhost that a loopback server without keys answers to
    max_body: int = 64 << 20  # bytes, also of what a compressed body unpacks to
    max_json: int = 8 << 20  # bytes of JSON: parsing takes many times as long as reading, and as much memory
    max_pixels: int = 50_000_000
    fetch: bool = False  # /detect_url
    fetch_from: tuple[str, ...] = ()  # networks that may be fetched from though they are private
    log_requests: bool = False
    drain_s: float = 30.0
    upload_s: float = 60.0  # for a request to arrive, from its first byte or the connection's begin on
    keep_alive_s: float = 60.0  # for a connection to be idle after an answer
    poll_s: float = 1.0  # how often the store is asked whether an alias has moved
    state: Path | None = None
    ready_file: Path | None = None

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("--tls-cert and --tls-key must be given together, got one of them")
        if self.insecure or is_loopback(self.host):
            return
        if not self.keys:
            raise UsageError(
                f"a server on {self.host} must ask for keys (--keys FILE, `weft serve keys add`), got none; "
                "bind to 127.0.0.1, or say --insecure if the network is trusted"
            )
        if not self.tls_cert:
            raise UsageError(
                f"keys must not travel in clear to {self.host}, got no --tls-cert and --tls-key; "
                "give both, or say --insecure if TLS ends before this server or the network is trusted"
            )


def is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
