"""What `weft serve` costs: against a bare ASGI handler, against MLServer, in batches, with pictures, during swaps.

    python benchmarks/serve.py                                    all cases; needs wrk
    python benchmarks/serve.py --cases small jpeg --rounds 9
    python -m venv /tmp/mlserver && /tmp/mlserver/bin/pip install mlserver onnxruntime
    python benchmarks/serve.py --cases mlserver --mlserver /tmp/mlserver/bin/python

All servers of a case are up at once and take turns: round by round each gets the same load, so that a busy moment
of the machine hits all of them. Medians and their ratio are printed, and that of the best rounds; `cpu` is the
server's processor time a request, which depends least on who else wants the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import claims  # noqa: E402
from benchmarks.serve_models import lite0, mlp, tiny  # noqa: E402
from testing.serving.server import serving  # noqa: E402

from weft.serve.card import read_card  # noqa: E402
from weft.serve.client import Client, pack  # noqa: E402
from weft.serve.onnx_session import usable_cores  # noqa: E402
from weft.serve.server.pictures.pictures import row_of  # noqa: E402
from weft.serve.store import Store  # noqa: E402

Figures = dict[str, float]  # by the names of claims
RIVALS = ROOT / "benchmarks" / "serve_rivals"


@dataclass
class Served:
    """A server that is up, and what its rounds gave."""

    name: str
    process: subprocess.Popen[str]
    url: str
    rates: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)  # ms
    cpu: list[float] = field(default_factory=list)  # microseconds a request
    failures: int = 0

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


@contextmanager
def weft_server(name: str, folder: Path, *args: str) -> Iterator[Served]:
    with serving(folder, *args, name=name.replace(" ", "-").replace(",", ""), grpc=False) as server:
        yield Served(name, server.process, server.url)


@contextmanager
def started(command: list[str], folder: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    with (folder / "servers.log").open("a") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **env}, stdout=log, stderr=log, text=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait(ready: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} did not start")
        time.sleep(0.05)


def answers(url: str, path: str) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url + path, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


# -- load ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shot:
    """What wrk sends again and again."""

    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict, hash=False)

    def script(self, folder: Path) -> Path:
        """For wrk, which is driven by Lua."""
        number = len(list(folder.glob("*.lua")))
        body = folder / f"body{number}"
        body.write_bytes(self.body)
        lines = [
            f'wrk.method = "POST"\nlocal file = assert(io.open("{body}", "rb"))\nwrk.body = file:read("*a")'
        ]
        lines += [f'wrk.headers["{name}"] = "{value}"' for name, value in self.headers.items()]
        script = folder / f"shot{number}.lua"
        script.write_text("\n".join(lines))
        return script


def tensor_shot(model: str, inputs: dict[str, Any], binary: bool) -> Shot:
    body, length = pack(inputs, binary=binary)
    headers = {"Content-Type": "application/json"}
    if length is not None:
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(length)}
    return Shot(f"/v2/models/{model}/infer", body, headers)


@dataclass(frozen=True)
class Shots:
    """What one run of wrk saw."""

    rate: float
    p99_ms: float
    requests: int
    failures: int


def wrk(url: str, script: Path, path: str, connections: int, seconds: float) -> Shots:
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "--latency"]
    done = subprocess.run(
        [*command, "-s", str(script), url + path], capture_output=True, text=True, check=False, timeout=120
    )
    told = done.stdout + done.stderr
    rate = re.search(r"Requests/sec:\s+([\d.]+)", told)
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", told)
    count = re.search(r"(\d+) requests in", told)
    if not (rate and p99 and count):
        raise RuntimeError(told)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", told)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", told)
    failures = (int(bad[1]) if bad else 0) + (sum(map(int, errors.groups())) if errors else 0)
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}[p99[2]]
    return Shots(float(rate[1]), float(p99[1]) * unit, int(count[1]), failures)


def take_turns(
    servers: list[Served], shot: Shot, folder: Path, rounds: int, seconds: float, clients: int
) -> None:
    """The same load for each, round by round; the first of each is not counted."""
    script = shot.script(folder)
    for round_ in range(rounds + 1):
        order = servers if round_ % 2 else servers[::-1]
        for served in order:
            before = cpu(served)
            seen = wrk(served.url, script, shot.path, clients, seconds if round_ else 1)
            if round_:
                served.rates.append(seen.rate)
                served.p99.append(seen.p99_ms)
                served.cpu.append((cpu(served) - before) / max(seen.requests, 1) * 1e6)
                served.failures += seen.failures


def cpu(served: Served) -> float:
    """Seconds of processor time so far, of the server and its children."""
    process = psutil.Process(served.process.pid)
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        times = one.cpu_times()
        total += times.user + times.system
    return total


# -- cases ---------------------------------------------------------------------------------------------


def show(served: Served) -> None:
    rate, p99, used = served.rate, statistics.median(served.p99), statistics.median(served.cpu)
    print(
        f"  {served.name:28} {rate:8.0f} requests/s (best {max(served.rates):6.0f})   p99 {p99:7.1f} ms   "
        f"cpu {used:7.0f} us a request   failed {served.failures}"
    )


def judge(what: str, value: float, goal: float, *, least: bool = True, unit: str = "x") -> None:
    good = value >= goal if least else value <= goal
    sign = ">=" if least else "<="
    print(f"  {what:60} {value:8.2f}{unit} {sign} {goal:g}{unit}  {'met' if good else 'NOT MET'}")


def paired(ours: list[float], theirs: list[float]) -> float:
    """The median of the rounds' own ratios: each compares what ran right after one another."""
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def compare(ours: Served, other: Served, goal: float) -> float:
    """Show requests/s of the two by all measures that we have; return the ratio of the medians."""
    show(other)
    show(ours)
    judge(f"requests/s of {other.name}, medians", ours.rate / other.rate, goal)
    judge("the same, median of the rounds' ratios", paired(ours.rates, other.rates), goal)
    judge("the same, best rounds", max(ours.rates) / max(other.rates), goal)
    judge("the same by processor time", statistics.median(other.cpu) / statistics.median(ours.cpu), goal)
    return ours.rate / other.rate


def case_small(args: argparse.Namespace, folder: Path) -> Figures:
    figures = {}
    model = tiny(folder / "tiny.onnx")
    rows = {"x": np.linspace(-1, 1, 64, dtype=np.float32)[None]}
    for kind, binary in (("JSON", False), ("binary", True)):
        print(
            f"small: 64 floats in, 10 out, {kind}, 16 connections, {args.rounds} rounds of {args.seconds:g} s"
        )
        with ExitStack() as stack:
            bare = stack.enter_context(rival("bare ASGI handler", "bare_asgi.py", folder, model))
            ours = stack.enter_context(weft_server("weft serve", folder, str(model)))
            take_turns([bare, ours], tensor_shot("tiny", rows, binary), folder, args.rounds, args.seconds, 16)
        figures[kind.lower()] = compare(ours, bare, 0.8)
    return figures


def case_tensor(args: argparse.Namespace, folder: Path) -> Figures:
    if find_spec("fastapi") is None:
        print("tensor: left out; it needs fastapi: pip install fastapi")
        return {}
    model = lite0(folder / "lite0.onnx")
    rows = {"x": np.random.default_rng(0).random((1, 3, 224, 224), np.float32)}
    seconds = max(args.seconds, 4)
    print(f"tensor: lite0, 1 x 3 x 224 x 224, binary, 4 connections, {args.rounds} rounds of {seconds} s")
    with ExitStack() as stack:
        plain = stack.enter_context(rival("plain FastAPI handler", "fastapi_tensor.py", folder, model))
        ours = stack.enter_context(weft_server("weft serve", folder, str(model)))
        take_turns([plain, ours], tensor_shot("lite0", rows, True), folder, args.rounds, seconds, 4)
    return {"tensor": compare(ours, plain, 1.0)}


@contextmanager
def rival(name: str, script: str, folder: Path, model: Path) -> Iterator[Served]:
    ready = folder / f"{Path(script).stem}.json"
    command = [sys.executable, str(RIVALS / script), str(model), str(ready)]
    with started(command, folder) as process:
        wait(lambda: ready.exists(), process)
        url = json.loads(ready.read_text())["http"]
        ready.unlink()
        wait(lambda: answers(url, "/"), process)
        yield Served(name, process, url)


def case_mlserver(args: argparse.Namespace, folder: Path) -> Figures:
    if args.mlserver is None:
        print("mlserver: left out; name the Python of its environment with --mlserver")
        return {}
    model = tiny(folder / "tiny.onnx")
    rows = {"x": np.linspace(-1, 1, 64, dtype=np.float32)[None]}
    print(f"mlserver: 64 floats in, 10 out, JSON, 16 connections, {args.rounds} rounds of {args.seconds:g} s")
    with ExitStack() as stack:
        theirs = stack.enter_context(mlserver(args.mlserver, folder, model))
        ours = stack.enter_context(weft_server("weft serve", folder, str(model)))
        take_turns([theirs, ours], tensor_shot("tiny", rows, False), folder, args.rounds, args.seconds, 16)
    figures = {
        "mlserver": compare(ours, theirs, 3),
        "mlserver-p99": statistics.median(ours.p99) / statistics.median(theirs.p99),
    }
    judge("p99 of MLServer's", figures["mlserver-p99"], 1, least=False)
    return figures


@contextmanager
def mlserver(python: str, folder: Path, model: Path) -> Iterator[Served]:
    """MLServer has no ONNX runtime of its own on PyPI: the shortest custom one is in serve_rivals/."""
    home = folder / "mlserver"
    home.mkdir(exist_ok=True)
    shutil.copy(RIVALS / "mlserver_onnx.py", home)
    port = free_port()
    settings: dict[str, Any] = {
        "http_port": port,
        "grpc_port": free_port(),
        "metrics_port": free_port(),
        "parallel_workers": 0,
    }
    settings |= {"debug": False, "host": "127.0.0.1"}
    (home / "settings.json").write_text(json.dumps(settings))
    described = {
        "name": "tiny",
        "implementation": "mlserver_onnx.OnnxModel",
        "parameters": {"uri": str(model), "version": "1"},
    }
    (home / "model-settings.json").write_text(json.dumps(described))
    command = [str(Path(python).with_name("mlserver")), "start", str(home)]
    path = f"{Path(python).parent}:{os.environ['PATH']}"
    with started(command, home, PYTHONPATH=str(home), PATH=path) as process:
        url = f"http://127.0.0.1:{port}"
        wait(lambda: answers(url, "/v2/models/tiny/ready"), process)
        yield Served("MLServer", process, url)


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def case_batching(args: argparse.Namespace, folder: Path) -> Figures:
    figures = {}
    delay_ms, most = 10.0, 16
    for name, model, row in (
        ("lite0", lite0(folder / "lite0.onnx"), np.zeros((1, 3, 224, 224), np.float32)),
        ("mlp", mlp(folder / "mlp.onnx"), np.zeros((1, 1024), np.float32)),
    ):
        one, many = own_time(model, row, 1), own_time(model, row, most)
        gain = one * most / many
        megabytes = model.stat().st_size / 1e6
        print(
            f"batching: {name}, {megabytes:.1f} MB, 16 clients; ONNX Runtime itself: {one * 1e3:.1f} ms for 1 row, "
            f"{many * 1e3:.1f} ms for {most}: {gain:.2f}x the rows/s"
        )
        with ExitStack() as stack:
            single = stack.enter_context(
                weft_server(f"{name}, batch 1", folder, str(model), "--max-batch", "1")
            )
            batched = stack.enter_context(
                weft_server(
                    f"{name}, up to {most}, {delay_ms:g} ms",
                    folder,
                    str(model),
                    "--max-batch",
                    str(most),
                    "--delay-ms",
                    str(delay_ms),
                )
            )
            shot = tensor_shot(name, {"x": row}, True)
            take_turns([single, batched], shot, folder, args.rounds, max(args.seconds, 4), 16)
            longest = batch_ms(batched, name)
        show(single)
        show(batched)
        if name == "lite0" and gain < 2:
            print("  the model itself gains too little from batches here: throughput is not judged")
        else:
            figures["batches"] = batched.rate / single.rate
            judge(f"throughput of batch 1 (the model itself gains {gain:.2f}x)", figures["batches"], 2)
            judge("the same, best rounds", max(batched.rates) / max(single.rates), 2)
        bound = delay_ms + longest
        print(f"  one batch takes {longest:.1f} ms")
        judge(
            "p99, within the delay and one batch",
            statistics.median(batched.p99),
            bound,
            least=False,
            unit=" ms",
        )
        judge("the same, best round", min(batched.p99), bound, least=False, unit=" ms")
    return figures


def batch_ms(served: Served, model: str) -> float:
    """The mean time of the largest batches that it ran."""
    with Client(served.url) as client:
        (told,) = client.statistics(model)
    largest = max(told["batch_stats"], key=lambda entry: entry["batch_size"])
    return float(largest["compute_infer"]["ns"] / largest["compute_infer"]["count"] / 1e6)


def own_time(model: Path, row: Any, rows: int, rounds: int = 7) -> float:
    """Seconds of one run by ONNX Runtime alone, with the threads that a replica gets."""
    session = own_session(model)
    given = {"x": np.repeat(row, rows, 0)}
    session.run(None, given)
    return min(timed(lambda: session.run(None, given)) for _ in range(rounds))


def own_session(model: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def case_jpeg(args: argparse.Namespace, folder: Path) -> Figures:
    import cv2

    model = lite0(folder / "lite0.onnx")
    random = np.random.default_rng(0)
    small = random.integers(0, 256, (30, 40, 3), np.uint8)
    pixels = cv2.resize(small, (640, 480), interpolation=cv2.INTER_CUBIC)
    data = bytes(cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 90])[1])
    session = own_session(model)
    row = {"x": random.standard_normal((1, 3, 224, 224)).astype(np.float32)}
    rounds = args.rounds * 20
    print(f"jpeg: 640 x 480, {len(data) // 1000} kB, lite0, one client, {rounds} rounds")
    own, ours = [], []
    with weft_server("weft serve", folder, str(model)) as served, Client(served.url) as client:
        for _ in range(5):
            session.run(None, row)
            client.picture("lite0", data)
        here, there = sum(os.times()[:2]), cpu(served)
        asking = 0.0  # what the client itself costs
        for _ in range(rounds):
            own.append(timed(lambda: session.run(None, row)) * 1e3)
            before = time.thread_time()
            ours.append(timed(lambda: client.picture("lite0", data)) * 1e3)
            asking += time.thread_time() - before
        alone = (sum(os.times()[:2]) - here - asking) / rounds * 1e3
        whole = (cpu(served) - there) / rounds * 1e3
    for name, pick in (("medians", statistics.median), ("quietest tenth", quietest)):
        print(f"  {name}: ONNX Runtime itself {pick(own):.2f} ms, JPEG in and class out {pick(ours):.2f} ms")
        judge(f"over ONNX Runtime's own time, {name}", pick(ours) - pick(own), 3, least=False, unit=" ms")
    print(f"  processor time: ONNX Runtime itself {alone:.2f} ms, the server {whole:.2f} ms a picture")
    judge("over ONNX Runtime's own, by processor time", whole - alone, 3, least=False, unit=" ms")
    print(
        f"  of that decoding and scaling: {quietest(decoding(model, data, rounds)):.2f} ms of a core, quietest tenth"
    )
    return {}


def decoding(model: Path, data: bytes, rounds: int) -> list[float]:
    """Milliseconds of processor time from a JPEG to the model's row, in this process."""
    rules = read_card(model).picture
    assert rules is not None
    found = []
    for _ in range(rounds):
        before = time.thread_time()
        row_of(data, rules, 1 << 28)
        found.append((time.thread_time() - before) * 1e3)
    return found


def quietest(times: list[float]) -> float:
    """The mean of the shortest tenth: what it takes when nobody else wants the machine."""
    return statistics.fmean(sorted(times)[: max(1, len(times) // 10)])


def case_swap(args: argparse.Namespace, folder: Path) -> Figures:
    seconds = 4 * args.seconds
    print(
        f"swap: 16 connections for {seconds:g} s while an alias moves, a model is loaded again, others come and go"
    )
    store = Store(folder / "store")
    model = tiny(folder / "tiny.onnx")
    store.push(model, "tiny", ["production"])
    store.push(tiny(folder / "other.onnx", seed=1), "tiny")
    store.push(model, "guest")
    rows = {"x": np.linspace(-1, 1, 64, dtype=np.float32)[None]}
    shot = tensor_shot("tiny", rows, False)
    script = shot.script(folder)
    ending = threading.Event()
    changes = 0
    with weft_server("weft serve", folder, "--store", str(store.folder), "--poll-s", "0.05") as served:

        def change() -> None:
            nonlocal changes
            with Client(served.url) as client:
                while not ending.is_set():
                    store.tag(f"tiny@{1 + changes % 2}", "production")
                    client.load("tiny")
                    client.unload("guest")
                    client.load("guest")
                    changes += 1

        changing = threading.Thread(target=change)
        changing.start()
        seen = wrk(served.url, script, shot.path, 16, seconds)
        ending.set()
        changing.join()
    print(
        f"  {seen.requests} requests, {changes} swaps and as many loads and unloads, p99 {seen.p99_ms:.1f} ms"
    )
    judge("failed requests", seen.failures, 0, least=False, unit="")
    return {"swaps": seen.failures}


CASES = {
    "small": case_small,
    "tensor": case_tensor,
    "mlserver": case_mlserver,
    "batching": case_batching,
    "jpeg": case_jpeg,
    "swap": case_swap,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument(
        "--mlserver", metavar="PYTHON", help="the Python of an environment with MLServer in it"
    )
    args = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("benchmarks/serve.py needs wrk: apt-get install wrk")
    print(
        f"{date.today()}, {platform.processor() or platform.machine()}, {usable_cores()} cores, "
        f"load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, ONNX Runtime {ort.__version__}: "
        f"python benchmarks/serve.py {' '.join(sys.argv[1:])}",
        flush=True,
    )
    figures: Figures = {}
    for case in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            figures |= CASES[case](args, Path(folder))
        sys.stdout.flush()
    print("\n" + claims.report("serve", figures), end="")


if __name__ == "__main__":
    main()
