"""A server under mixed load with hostile requests in between: what becomes of the good ones, and of its memory.

    python benchmarks/soak.py --minutes 5
    python benchmarks/soak.py --minutes 60 --clients 16 --hostile 0.05

Clients ask over REST (JSON, binary tensors, pictures) and gRPC, and compare every answer. In every second period of ten
seconds a share of their requests is hostile instead. Both kinds of periods see the same machine, so that the ratio of
their 99th percentiles says what hostile requests cost the others. Resident memory is sampled all the time; growth is
the slope of a line through the samples of the second half.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import random
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import claims  # noqa: E402
from testing.serving import small_models  # noqa: E402
from testing.serving.pictures import picture  # noqa: E402
from testing.serving.server import Server, serving  # noqa: E402

from weft.serve.client import Client, ServerError  # noqa: E402
from weft.serve.server.protocols import inference_pb2 as messages  # noqa: E402
from weft.serve.server.protocols.inference_pb2_grpc import GRPCInferenceServiceStub  # noqa: E402

PERIOD_S = 10.0  # of calm, then of hostile requests
SAMPLE_S = 2.0  # between looks at the memory
HELD = 100  # connections that hostile clients leave open, at most


@dataclass
class Tally:
    """What the clients saw."""

    calm: list[float] = field(default_factory=list)  # seconds of good requests, without hostile ones
    beside: list[float] = field(default_factory=list)  # seconds of good requests, beside hostile ones
    failed: Counter[str] = field(default_factory=Counter)  # good requests that were not answered rightly
    hostile: Counter[str] = field(default_factory=Counter)  # hostile requests, by kind
    wrong: Counter[str] = field(default_factory=Counter)  # hostile requests that were answered 200 or 5xx
    lock: threading.Lock = field(default_factory=threading.Lock)


# -- good requests -------------------------------------------------------------------------------------


class GoodClient:
    """Asks in turn over every door, and compares the answers."""

    def __init__(self, server: Server, picture: bytes) -> None:
        import grpc

        self._client = Client(server.url)
        self._channel = grpc.insecure_channel(server.grpc, options=[("grpc.use_local_subchannel_pool", 1)])
        self._infer = GRPCInferenceServiceStub(self._channel).ModelInfer  # type: ignore[no-untyped-call]
        self._picture = picture
        self._turn = 0

    def ask(self) -> None:
        """Send one request; a wrong answer raises."""
        self._turn += 1
        row = np.full((1, 4), self._turn % 1000, np.float32)
        kind = self._turn % 8
        if kind == 0:
            (best, *_) = self._client.picture("colours", self._picture)
            right = best["label"] == "green"
        elif kind == 1:
            request = messages.ModelInferRequest(model_name="double", raw_input_contents=[row.tobytes()])
            request.inputs.add(name="x", datatype="FP32", shape=row.shape)
            answer = self._infer(request, timeout=60)
            right = answer.raw_output_contents[0] == (2 * row).tobytes()
        else:
            found = self._client.infer("double", {"x": row}, binary=kind % 2 == 0)["y"]
            right = bool((found == 2 * row).all())
        if not right:
            raise ValueError("a wrong answer")

    def close(self) -> None:
        self._client.close()
        self._channel.close()


# -- hostile requests ----------------------------------------------------------------------------------


def request_bytes(head: str, body: bytes = b"") -> bytes:
    return head.replace("\n", "\r\n").encode() + b"\r\n" + body


def infer(body: bytes, extra: str = "") -> bytes:
    head = f"POST /v2/models/double/infer HTTP/1.1\nHost: localhost\nContent-Length: {len(body)}\n{extra}"
    return request_bytes(head, body)


def tensor(**changes: Any) -> bytes:
    given = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4], **changes}
    return json.dumps({"inputs": [given]}).encode()


def decoy() -> bytes:
    """A JPEG whose first header says 9 x 9."""
    header = b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 9, 9) + bytes(10)
    return b"\xff\xd8\xff\x00" + struct.pack(">H", 2) + header + bytes(1000) + b"\xff\xd9"


def picture_bytes(body: bytes) -> bytes:
    head = f"POST /classify_upload HTTP/1.1\nHost: localhost\nContent-Length: {len(body)}\n"
    return request_bytes(head, body)


# One that is answered, by kind; each must be answered with a 4xx or 501, or have its connection closed.
ATTACKS: dict[str, Callable[[], bytes]] = {
    "endless header": lambda: b"GET / HTTP/1.1\r\nx: " + b"y" * 200_000,
    "endless URL": lambda: b"GET /" + b"y" * 200_000,
    "many headers": lambda: b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000,
    "no HTTP": lambda: os.urandom(2000),
    "two lengths": lambda: (
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"
    ),
    "length and chunks": lambda: (
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "JSON bomb": lambda: infer(_bomb(), "Content-Encoding: gzip\n"),
    "deep JSON": lambda: infer(b"[" * 100_000),
    "long JSON": lambda: infer(b'{"inputs": [' + b" " * 9_000_000 + b"]}"),
    "half of gzip": lambda: infer(gzip.compress(tensor())[:20], "Content-Encoding: gzip\n"),
    "many sizes": lambda: infer(tensor(shape=[1] * 100)),
    "huge sizes": lambda: infer(tensor(shape=[0, 1 << 62], data=[])),
    "no list": lambda: infer(tensor(data={})),
    "wrong type": lambda: infer(tensor(datatype="FP99")),
    "huge binary": lambda: infer(tensor(data=None, parameters={"binary_data_size": 1 << 40})),
    "huge body": lambda: infer(b"x" * 10, "").replace(b"Length: 10", b"Length: 9999999999"),
    "unknown model": lambda: infer(tensor()).replace(b"double", b"nobody"),
    "path": lambda: b"GET /v2/models/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "name of another site": lambda: b"GET /v2 HTTP/1.1\r\nHost: evil.com\r\n\r\n",
    "page of another site": lambda: (
        b"POST /v2/repository/models/double/unload HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.com\r\n"
        b"Content-Length: 0\r\n\r\n"
    ),
    "decoy in a JPEG": lambda: picture_bytes(decoy()),
    "no picture": lambda: picture_bytes(os.urandom(1000)),
    "huge PNG": lambda: picture_bytes(
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 60_000, 60_000) + bytes(100)
    ),
    "shared memory": lambda: b"GET /v2/systemsharedmemory/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/2": lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(50),
}
# Those that are not answered: they leave a connection in the middle of something.
HANGING: dict[str, bytes] = {
    "silence": b"",
    "half a head": b"GET /v2 HTT",
    "no body": infer(b"x" * 100)[:-100],
    "half a body": infer(b"x" * 100)[:-50],
}


def _bomb() -> bytes:
    """63 kB that unpack to 62 MB of JSON."""
    return gzip.compress(b'{"inputs": [' + b"0," * 31_000_000 + b"0]}", 9)


class HostileClient:
    """Sends hostile requests of every kind, each over a connection of its own."""

    def __init__(
        self, address: str, tally: Tally, made: dict[str, bytes], held: deque[socket.socket]
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._tally = tally
        self._made = made
        self._held = held

    def attack(self) -> None:
        kind = random.choice([*ATTACKS, *HANGING, "reset"])
        with self._tally.lock:
            self._tally.hostile[kind] += 1
        with suppress(OSError):
            connection = socket.create_connection(self._address, timeout=30)
            if kind in HANGING:
                connection.sendall(HANGING[kind])
                self._hold(connection)
                return
            with connection:
                if kind == "reset":
                    connection.sendall(infer(tensor()))
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                with suppress(OSError):  # it may be refused before all of it is sent
                    connection.sendall(self._made[kind])
                status = connection.recv(100).split(b" ", 2)[1:2]
            if status and not (status[0].startswith(b"4") or status[0] == b"501"):
                with self._tally.lock:
                    self._tally.wrong[f"{kind}: {status[0].decode()}"] += 1

    def _hold(self, connection: socket.socket) -> None:
        self._held.append(connection)
        if len(self._held) > HELD:
            with suppress(IndexError):
                self._held.popleft().close()


# -- the run -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Soak:
    """A run: how long, how many clients, which share of requests is hostile in hostile periods."""

    minutes: float
    clients: int
    hostile: float

    def is_hostile(self, seconds: float) -> bool:
        """Return whether hostile requests are sent so many seconds after the begin."""
        return self.hostile > 0 and int(seconds / PERIOD_S) % 2 == 1


def work(soak: Soak, began: float, good: GoodClient, hostile: HostileClient, tally: Tally) -> None:
    """Ask until the run is over."""
    calm: list[float] = []
    beside: list[float] = []
    while (now := time.monotonic() - began) < soak.minutes * 60:
        if soak.is_hostile(now) and random.random() < soak.hostile:
            hostile.attack()
            continue
        started = time.perf_counter()
        try:
            good.ask()
        except (ServerError, ValueError, RuntimeError, http.client.HTTPException, OSError) as error:
            with tally.lock:
                tally.failed[f"{type(error).__name__}: {error}"[:120]] += 1
        else:
            (beside if soak.is_hostile(now) else calm).append(time.perf_counter() - started)
    good.close()
    with tally.lock:
        tally.calm += calm
        tally.beside += beside


def run(soak: Soak, folder: Path) -> tuple[Tally, list[tuple[float, float]]]:
    """Return what clients saw, and resident memory: minutes and MB."""
    models = [
        small_models.times(folder / "double.onnx", 2),
        small_models.colours(folder / "colours.onnx"),
    ]
    with serving(folder, *map(str, models)) as server:
        return _load(soak, server)


def _load(soak: Soak, server: Server) -> tuple[Tally, list[tuple[float, float]]]:
    tally, held = Tally(), deque[socket.socket]()
    made = {kind: make() for kind, make in ATTACKS.items()}
    green = picture()
    process = psutil.Process(server.process.pid)
    began = time.monotonic()
    threads = [
        threading.Thread(
            target=work,
            args=(
                soak,
                began,
                GoodClient(server, green),
                HostileClient(server.address, tally, made, held),
                tally,
            ),
        )
        for _ in range(soak.clients)
    ]
    for thread in threads:
        thread.start()
    samples: list[tuple[float, float]] = []
    while any(thread.is_alive() for thread in threads):
        samples.append(((time.monotonic() - began) / 60, process.memory_info().rss / 1e6))
        time.sleep(SAMPLE_S)
    for connection in held:
        connection.close()
    return tally, samples


def growth(samples: list[tuple[float, float]]) -> float:
    """Return MB a minute over the second half of the samples."""
    half = samples[len(samples) // 2 :]
    if len(half) < 3:
        return 0.0
    return statistics.linear_regression([at for at, _ in half], [size for _, size in half]).slope


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] if seconds else 0.0


def figures(tally: Tally, samples: list[tuple[float, float]]) -> dict[str, float]:
    """Return the figures of the table of claims."""
    calm, beside = p99(tally.calm), p99(tally.beside)
    return {
        "soak-failed": tally.failed.total(),
        "soak-wrong": tally.wrong.total(),
        "soak-p99": beside / calm if calm else 0.0,
        "soak-growth": growth(samples),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument(
        "--hostile", type=float, default=0.05, help="share of the requests in hostile periods"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally, samples = run(Soak(args.minutes, args.clients, args.hostile), Path(folder))
    print(f"python benchmarks/soak.py {' '.join(sys.argv[1:])}; load {os.getloadavg()[0]:.1f}")
    good = len(tally.calm) + len(tally.beside) + tally.failed.total()
    print(f"{good} good requests, {tally.hostile.total()} hostile ones")
    print(
        f"p99 of good ones: {p99(tally.calm) * 1e3:.1f} ms, {p99(tally.beside) * 1e3:.1f} ms beside hostile ones"
    )
    print(f"resident memory: {samples[0][1]:.0f} to {samples[-1][1]:.0f} MB")
    for what, counts in (("failed", tally.failed), ("wrong", tally.wrong)):
        for name, count in counts.most_common(10):
            print(f"  {what}: {count} x {name}")
    found = figures(tally, samples)
    print(claims.report("serve", found), end="")
    (part,) = claims.parts(["serve"])
    sys.exit(
        any(claim.verdict(found[claim.name]) == "missed" for claim in part.claims if claim.name in found)
    )


if __name__ == "__main__":
    main()
