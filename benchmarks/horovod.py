"""Scripts of Horovod on Weft: a training step beside DDP, small tensors, the negotiation, and a worker that is killed.

    python benchmarks/horovod.py                        every row, about two minutes on an idle machine
    python benchmarks/horovod.py --only step kill
    python benchmarks/horovod.py --steps 30 --trials 10 --json

Horovod itself cannot be built on today's torch, so the rivals are torch's DistributedDataParallel on the backend "weft"
and on Gloo, in the same two processes and in turns: 80 layers, 25 million parameters in 160 tensors. "small" reduces
1,000 tensors of 64 KiB, by name and asynchronously, and one tensor of the same bytes; "grouped" the same as a group.
"negotiation" is the time from the last rank's last submission of 160 names, of one element each, to the last result,
less the time of the same work without names: the tensors packed, reduced at once and unpacked, by ranks that begin
together. "negotiation-whole" is less one reduction of 160 elements, and so has the packing and all the bookkeeping;
"negotiation-last" is one name that was agreed on before, less a reduction.
"idle" is the share of a core that a process uses while nothing is submitted. "kill" is the time from SIGKILL of one of
three workers under hvd.elastic, with a step of 100 ms, to the first commit of those who are left.
"keras" is the rows a second of Keras's `fit` on two workers, one thread each, of those of one worker, with each backend
that is installed; two processes that know nothing of each other run as often, in turns, and stand for the one worker.
The model is of three convolutions; "dense" is one that exchanges 25 MB of gradients for every 128 rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims
from testing.elastic.local_run import LocalRun
from testing.shell import WEFT

SCRIPTS = Path(__file__).resolve().parent / "horovod_scripts"
LAYERS, WIDTH, BATCH = 80, 559, 16
ROWS = ("step", "small", "negotiation", "idle", "kill", "keras")
KERAS_BACKENDS = {
    "torch": "keras",
    "tensorflow": "tensorflow",
    "jax": "jax",
}  # and the module that each needs
KERAS_MODELS = ("convolutions", "dense")


def steps(count: int, parts: list[str]) -> dict[str, Any]:
    """Run parts of the steps' script on two workers, and return what rank 0 printed."""
    with tempfile.TemporaryDirectory(prefix="weft-horovod-") as folder:
        sizes = [str(number) for number in (count, LAYERS, WIDTH, BATCH)]
        done = subprocess.run(
            [WEFT, "run", "-n", "2", "--run-dir", f"{folder}/run", str(SCRIPTS / "step.py"), *sizes]
            + [",".join(parts)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"horovod: the steps failed: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        line = next(line for line in done.stdout.splitlines() if '"medians"' in line)
        found: dict[str, Any] = json.loads(line[line.index("{") :])
        return found


def keras_fits(epochs: int) -> dict[str, dict[str, Any]]:
    """Run Keras's `fit` alone and on two workers, by backend and model; weights must be equal on both."""
    found: dict[str, dict[str, Any]] = {}
    for (backend, module), model in itertools.product(KERAS_BACKENDS.items(), KERAS_MODELS):
        if find_spec(module) is None or find_spec("keras") is None:
            continue
        with tempfile.TemporaryDirectory(prefix="weft-horovod-") as folder:
            done = subprocess.run(
                [WEFT, "run", "-n", "2", "--run-dir", f"{folder}/run"]
                + [str(SCRIPTS / "keras_fit.py"), str(epochs), model],
                env={**os.environ, "KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
        line = next((line for line in done.stdout.splitlines() if '"speedup"' in line), None)
        if done.returncode or line is None:
            sys.exit(f"horovod: keras failed: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        row = backend if model == KERAS_MODELS[0] else f"{backend}-{model}"
        found[row] = json.loads(line[line.index("{") :])
        if not found[row]["equal"]:
            sys.exit(f"horovod: weights differ between workers on Keras's backend {backend}")
    return found


def kills(trials: int) -> list[float]:
    """Kill a worker again and again; return the seconds to the first commit without it."""
    found = []
    with tempfile.TemporaryDirectory(prefix="weft-horovod-") as folder:
        run = LocalRun(Path(folder), "2:3", 3, ["100"], script=str(SCRIPTS / "elastic.py")).start()
        try:
            for _ in range(trials):
                victim = _whole(run)
                views = {int(event["view"]) for event in run.events("agreed")}
                begin = time.time()
                os.kill(run.pid_of(victim), signal.SIGKILL)
                found.append(_next_commit(run, max(views), begin))
        finally:
            run.kill_politely()
    return found


def _whole(run: LocalRun) -> str:
    """Wait until all three workers have committed in one view; return the last of them."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        views = run.events("agreed")
        if views:
            newest = max(views, key=lambda event: int(event["view"]))
            stepped = {e["worker"] for e in run.events("stepped") if e["view"] == newest["view"]}
            if newest["size"] == 3 and len(stepped) == 3:
                return str(newest["members"][-1])
        time.sleep(0.05)
    raise TimeoutError("three workers must commit within 120 s")


def _next_commit(run: LocalRun, view: int, begin: float) -> float:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        later = [float(event["t"]) for event in run.events("stepped") if int(event["view"]) > view]
        if later:
            return min(later) - begin
        time.sleep(0.02)
    raise TimeoutError("a commit must follow within 120 s")


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """Return the figures of what the steps' script has measured."""
    medians = found["medians"]
    measured = {"idle": 100 * found["idle"]}
    if "steps" in medians:
        ours = medians["steps"]
        measured |= {"step": ours["hvd"] / ours["weft"], "step-gloo": ours["gloo"] / ours["hvd"]}
    if "small" in medians:
        small = medians["small"]
        measured |= {"small": small["fused"] / small["one"], "grouped": small["grouped"] / small["one"]}
    if "negotiation" in medians:
        waits = {name: 1000 * seconds for name, seconds in medians["negotiation"].items()}
        measured |= {
            "negotiation": waits["negotiated"] - waits["packed"],
            "negotiation-whole": waits["negotiated"] - waits["plain"],
            "negotiation-last": waits["single"] - waits["plain"],
        }
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    measured: dict[str, float] = {}
    raw: dict[str, Any] = {}
    parts = {"step": "steps", "small": "small", "negotiation": "negotiation"}
    if set(asked.only) & {*parts, "idle"}:
        raw["steps"] = found = steps(
            asked.steps, [part for row, part in parts.items() if row in asked.only] or ["small"]
        )
        measured |= ratios(found)
    if "kill" in asked.only:
        raw["kills"] = kills(asked.trials)
        measured["kill"] = statistics.median(raw["kills"])
    if "keras" in asked.only:
        raw["keras"] = keras_fits(asked.steps)
        measured |= {f"keras-{row}": each["speedup"] for row, each in raw["keras"].items()}
    wanted = {
        name: value for name, value in measured.items() if name.partition("-")[0] in (*asked.only, "grouped")
    }
    if asked.json:
        print(json.dumps({"measured": wanted, "load": os.getloadavg()[0], "raw": raw}))
        return
    print(claims.report("horovod", wanted))


if __name__ == "__main__":
    main()
