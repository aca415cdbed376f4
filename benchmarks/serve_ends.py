"""Requests that are lost when `weft serve` is told to end under load: SIGTERM, again and again, over REST and gRPC.

    python benchmarks/serve_ends.py --times 100
    python benchmarks/serve_ends.py --times 10 --clients 32

Clients ask one after the other over kept connections until they cannot connect any more. A request is lost if its
connection was there and no answer came: a reset, a closed connection, or a call that was cancelled. To be told that
nobody listens any more, or over gRPC that the server is not available, is no loss: the client asks another server.
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from testing.serving.server import ENDS_S, Server, serving  # noqa: E402
from testing.serving.small_models import times  # noqa: E402

from weft.serve.client import pack  # noqa: E402
from weft.serve.server.protocols import inference_pb2 as messages  # noqa: E402
from weft.serve.server.protocols.inference_pb2_grpc import GRPCInferenceServiceStub  # noqa: E402
from weft.text import format_table  # noqa: E402


@dataclass
class Losses:
    """Answers and lost requests of the clients of one protocol."""

    answers: int = 0
    farewells: int = 0  # last answers that said `Connection: close`
    lost: Counter[str] = field(default_factory=Counter)  # by what happened
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, answers: int, farewells: int, lost: str | None) -> None:
        with self.lock:
            self.answers += answers
            self.farewells += farewells
            if lost is not None:
                self.lost[lost] += 1


def ask_rest(address: str, path: str, body: bytes, losses: Losses, started: threading.Semaphore) -> None:
    """Ask over kept connections until nobody listens."""
    answers = farewells = 0
    lost = None
    connection = http.client.HTTPConnection(address, timeout=ENDS_S)
    try:
        while True:
            if connection.sock is None:
                try:
                    connection.connect()
                except OSError:
                    break  # nobody listens any more
                kept: Any = connection.sock
                kept.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.request("POST", path, body)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                lost = f"status {answer.status}"
                break
            answers += 1
            farewells += answer.getheader("connection") == "close"
            if answers == 1:
                started.release()
    except (OSError, http.client.HTTPException) as error:
        lost = type(error).__name__
    finally:
        connection.close()
        started.release()
    losses.count(answers, farewells, lost)


def ask_grpc(
    address: str, request: messages.ModelInferRequest, losses: Losses, started: threading.Semaphore
) -> None:
    """Call over one channel until the server is not available."""
    import grpc

    answers = 0
    lost = None
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        infer = GRPCInferenceServiceStub(channel).ModelInfer  # type: ignore[no-untyped-call]
        try:
            while True:
                infer(request, timeout=ENDS_S)
                answers += 1
                if answers == 1:
                    started.release()
        except grpc.RpcError as error:
            told: Any = error
            if told.code() is not grpc.StatusCode.UNAVAILABLE or "reset" in told.details().lower():
                lost = f"{told.code().name}: {told.details()}"
    started.release()
    losses.count(answers, 0, lost)


def terminate_under_load(model: Path, folder: Path, clients: int, rest: Losses, calls: Losses) -> float:
    """Start a server, load it, end it; count what became of the requests. Return the seconds that the end took."""
    with serving(folder, str(model)) as server:
        threads, started = _clients(server, model.stem, clients, rest, calls)
        for _ in threads:
            started.acquire()
        time.sleep(0.1)  # so that everybody is in the middle of it
        began = time.monotonic()
        server.process.terminate()
        for thread in threads:
            thread.join(ENDS_S)
        if (code := server.process.wait(ENDS_S)) != 0:
            raise RuntimeError(f"the server must end with 0, got {code}:\n{server.log.read_text()}")
        return time.monotonic() - began


def _clients(
    server: Server, model: str, clients: int, rest: Losses, calls: Losses
) -> tuple[list[threading.Thread], threading.Semaphore]:
    import numpy as np

    started = threading.Semaphore(0)
    row = np.ones((1, 4), np.float32)
    body, _ = pack({"x": row}, binary=False)
    request = messages.ModelInferRequest(model_name=model, raw_input_contents=[row.tobytes()])
    request.inputs.add(name="x", datatype="FP32", shape=row.shape)
    work: list[Callable[[], None]] = []
    for _ in range(clients):
        work.append(lambda: ask_rest(server.address, f"/v2/models/{model}/infer", body, rest, started))
        work.append(lambda: ask_grpc(server.grpc, request, calls, started))
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    return threads, started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--clients", type=int, default=8, help="of each protocol")
    args = parser.parse_args()
    rest, calls = Losses(), Losses()
    longest = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = times(folder / "double.onnx", 2)
        for number in range(args.times):
            longest = max(longest, terminate_under_load(model, folder, args.clients, rest, calls))
            print(
                f"\r{number + 1} of {args.times}: {rest.lost.total()} + {calls.lost.total()} lost",
                end="",
                file=sys.stderr,
            )
    print(file=sys.stderr)
    rows = [["protocol", "terminations", "clients", "answers", "lost", "must", "how"]]
    for protocol, seen in (("REST", rest), ("gRPC", calls)):
        how = ", ".join(f"{count} {what}" for what, count in seen.lost.items()) or "-"
        told = [str(args.times), str(args.clients), str(seen.answers), str(seen.lost.total()), "0", how]
        rows.append([protocol, *told])
    print("\n".join(format_table(rows, left=("protocol", "how"))))
    print(f"longest end {longest:.1f} s; load {os.getloadavg()[0]:.1f}")
    sys.exit(1 if rest.lost or calls.lost else 0)


if __name__ == "__main__":
    main()
