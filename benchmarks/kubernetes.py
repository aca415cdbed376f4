"""Figures of runs on Kubernetes, on a virtual cluster: an API server and a kubelet of our own, pods as processes.

    python benchmarks/kubernetes.py             all of them
    python benchmarks/kubernetes.py --only plan

plan    seconds to make the manifests of a run in 1,000 pods
lines   log lines per second that are passed on, with their ranks, into rank logs (one stream, as of the first pod)
through the same from 32 pods that print at once to the client's terminal, over a connection that breaks on the way: no
        line may be missing or come twice. Pods, launcher, API server and client share the cores
first   seconds to the first line of a script in one pod, over that of the local engine; runs are interleaved
worker  seconds to the next step of an elastic run in three pods after the worker of one pod was killed
node    the same after all processes of a pod stopped without a word, as on a node that hangs

The last two take the step of `recovery.py`, 100 ms: the clock runs from the fault, done while the workers compute, to
the commit of a step that was not committed before. All say nothing about a real cluster, where images are pulled and
pods are scheduled.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    from benchmarks.recovery_harness.trial import Trial
    from testing.kubernetes.api_server import VirtualKubernetes

    Fault = Callable[[VirtualKubernetes], None]

WEFT = str(Path(sys.executable).with_name("weft"))
SCRIPTS = Path(__file__).resolve().parent / "recovery_scripts"
PODS = 3
LAST = PODS - 1  # the index of the pod that is harmed
STEP_S = 0.1  # that the script sleeps in a step
WARM_STEPS = 10  # between the return of a worker and the next fault
START_S = 60.0


def plan() -> dict[str, Any]:
    """Time the manifests of a thousand pods, from the request to the text."""
    from weft.launch.command import Command
    from weft.launch.config import LaunchConfig
    from weft.launch.engines.kubernetes.engine import KubernetesEngine
    from weft.launch.engines.kubernetes.objects.yaml_text import to_yaml
    from weft.launch.pod_settings import KubernetesConfig
    from weft.launch.run import dry_run

    config = LaunchConfig(
        command=Command("command", "true"),
        engine="kubernetes",
        per_host=8,
        kubernetes=KubernetesConfig(image="x", pods=1000, resources={"nvidia.com/gpu": 8}),
    )
    to_yaml(KubernetesEngine(config).objects())  # what is imported first
    began = time.perf_counter()
    world = dry_run(config).plan.world_size
    text = to_yaml(KubernetesEngine(config).objects())
    return {"pods": 1000, "workers": world, "bytes": len(text), "seconds": time.perf_counter() - began}


def lines(count: int = 300_000) -> dict[str, Any]:
    """Time the way of log lines of 32 ranks from the cluster's stream to the terminal and the rank logs."""
    from weft.launch.control.console import Console
    from weft.launch.engines.kubernetes.logs.leader_log import LeaderLog
    from weft.launch.engines.kubernetes.logs.log_reader import ContainerLogReader

    def pieces() -> Iterator[bytes]:
        text = b"".join(
            b"2026-11-18T00:00:00.%09dZ [%2d] step %d loss 0.12345 rate 0.001\n"
            % (number, number % 32, number)
            for number in range(count)
        )
        for start in range(0, len(text), 1 << 16):
            yield text[start : start + (1 << 16)]

    chunks = list(pieces())
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("wb") as nowhere:
        console = Console(32, logs=Path(folder), out=nowhere, err=nowhere)
        log, reader = LeaderLog(console, Path(folder)), ContainerLogReader()
        began = time.perf_counter()
        for some in reader.lines(chunks):
            log.take(some)
        seconds = time.perf_counter() - began
        console.close()
        kept = sum(path.read_bytes().count(b"\n") for path in Path(folder).glob("rank-*.log"))
    return {"lines": count, "kept": kept, "lines_per_s": count / seconds}


SHOUTS = """
import os, sys, time
rank, count = os.environ["RANK"], int(sys.argv[2])
ready = sys.argv[1]
open(os.path.join(ready, rank), "w").close()
while not os.path.exists(os.path.join(ready, "go")):
    time.sleep(0.05)
for number in range(count):
    print("step", number, "loss 0.12345 rate 0.001")
"""


def through(pods: int = 32, count: int = 20_000) -> dict[str, Any]:
    """Time the lines of 32 pods from their print to the terminal of the client, over a broken connection."""
    from testing.kubernetes.api_server import VirtualKubernetes

    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as name:
        folder = Path(name)
        for part in ("cluster", "pod"):
            (folder / part).mkdir()
        (folder / "pod" / "shouts.py").write_text(SHOUTS)
        settings = folder / "cluster.yaml"
        settings.write_text(f"workdir: {folder / 'pod'}\nimage: none\n")
        argv = [WEFT, "run", "--engine", "kubernetes", "--kubernetes", str(settings), "--pods", str(pods)]
        argv += ["--run-dir", str(folder / "run"), "--no-pin", "shouts.py", str(folder / "pod"), str(count)]
        with VirtualKubernetes(folder / "cluster") as cluster, (folder / "out").open("wb") as out:
            env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
            with subprocess.Popen(
                argv, cwd=folder, env=env, stdout=out, stderr=subprocess.DEVNULL
            ) as process:
                while len(list((folder / "pod").iterdir())) < pods + 1 and process.poll() is None:
                    time.sleep(0.1)
                time.sleep(2.0)  # what the start has left to do
                began, broken = time.perf_counter(), False
                (folder / "pod" / "go").touch()
                while process.poll() is None and (folder / "out").read_bytes().count(b"\n") < pods * count:
                    if not broken and (folder / "out").stat().st_size > 1 << 20:
                        cluster.restart()
                        broken = True
                    time.sleep(0.2)
                seconds = time.perf_counter() - began
                process.wait(60)
        wanted = [f"step {number} loss 0.12345 rate 0.001" for number in range(count)]
        logs = [(folder / "run" / f"rank-{rank}.log").read_text().splitlines() for rank in range(pods)]
    return {"pods": pods, "lines": pods * count, "whole": sum(log == wanted for log in logs), "broken": broken,
            "lines_per_s": pods * count / seconds}  # fmt: skip


def first(turns: int = 5) -> dict[str, Any]:
    """Time the first line of a script on the virtual cluster and on this machine, in turn."""
    from testing.kubernetes.api_server import VirtualKubernetes

    times: dict[str, list[float]] = {"kubernetes": [], "local": []}
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as name:
        folder = Path(name)
        for part in ("cluster", "pod", "here"):
            (folder / part).mkdir()
        (folder / "here" / "train.py").write_text("print('first', flush=True)\n")
        settings = folder / "cluster.yaml"
        settings.write_text(f"workdir: {folder / 'pod'}\ncode: snapshot\nimage: none\n")
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with VirtualKubernetes(folder / "cluster") as cluster:
            flags = {
                "kubernetes": ["--engine", "kubernetes", "--kubernetes", str(settings)],
                "local": ["-n", "1"],
            }
            env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
            for _ in range(turns):
                for engine, words in flags.items():
                    times[engine].append(_first_line([WEFT, "run", *words, "train.py"], folder / "here", env))
    medians = {engine: statistics.median(taken) for engine, taken in times.items()}
    return {**{f"{engine}_s": taken for engine, taken in medians.items()},
            "over_local_s": medians["kubernetes"] - medians["local"], "turns": turns}  # fmt: skip


def _first_line(argv: list[str], cwd: Path, env: dict[str, str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(
        argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        taken = time.perf_counter() - began
        process.stdout.read()
    if b"first" not in line:
        raise RuntimeError(f"no first line, got {line!r}")
    return taken


def worker(trials: int = 10) -> dict[str, Any]:
    """Time the next step after the worker of the last pod was killed."""
    return _recoveries(lambda cluster: cluster.kill_worker(LAST), lambda cluster: None, trials)


def node(trials: int = 8) -> dict[str, Any]:
    """Time the next step after the node of the last pod fell silent."""
    # Another pod takes the place of one that has ended, not of one that is silent.
    return _recoveries(
        lambda cluster: cluster.freeze_pod(LAST), lambda cluster: cluster.kill_pod(LAST), trials
    )


def _recoveries(harm: Fault, mend: Fault, trials: int) -> dict[str, Any]:
    """Do a fault to the last of three pods, and mend it once the others have stepped, again and again in one run."""
    from benchmarks.recovery_harness.measure import percentile
    from benchmarks.recovery_harness.trial import Trial
    from testing.kubernetes.api_server import VirtualKubernetes

    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    taken: list[float] = []
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as name, Trial(Path(name, "trial")) as trial:
        Path(name, "cluster").mkdir()
        with VirtualKubernetes(Path(name, "cluster")) as cluster:
            trial.hosts.append(_start_training(trial, cluster))
            for _ in range(trials):
                taken.append(_recovery_s(trial, lambda: harm(cluster)))
                mend(cluster)
            trial.hosts[0].terminate()
            trial.hosts[0].wait(60)
    return {"p50_s": percentile(taken, 0.5), "p95_s": percentile(taken, 0.95), "trials": trials,
            "all_s": [round(seconds, 3) for seconds in taken]}  # fmt: skip


def _start_training(trial: Trial, cluster: VirtualKubernetes) -> subprocess.Popen[bytes]:
    settings = trial.folder / "cluster.yaml"
    settings.write_text(json.dumps({"image": "none", "workdir": str(trial.folder), "env": trial.environment}))
    argv = [WEFT, "run", "--engine", "kubernetes", "--kubernetes", str(settings), "--pods", str(PODS)]
    argv += ["--elastic", f"{PODS - 1}:{PODS}", "--no-pin"]
    argv += [str(SCRIPTS / "with_weft.py"), "--workers", str(PODS), "--steps", "100000"]
    return trial.spawn("client", argv, {"KUBECONFIG": str(cluster.kubeconfig)})


def _recovery_s(trial: Trial, harm: Callable[[], None]) -> float:
    """Do a fault just after a step of all workers; return the seconds to the next step of those that live."""
    step = max(trial.steps) + WARM_STEPS
    while True:
        commits = trial.wait_in_step(PODS, step, START_S)
        if time.time() - min(commit.t for commit in commits) < STEP_S / 2:
            break
        step = max(trial.steps) + 1
    when = time.time()
    harm()
    reached = max(commit.step for commit in trial.read() if commit.t <= when)
    trial.wait(lambda: max(commit.step for commit in trial.read()) > reached, START_S, "step after the fault")
    return min(commit.t for commit in trial.commits if commit.step > reached) - when


FIGURES: dict[str, Callable[[], dict[str, Any]]] = {
    "plan": plan,
    "lines": lines,
    "through": through,
    "first": first,
    "worker": worker,
    "node": node,
}


def main() -> None:
    """Print the figures as JSON, one a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=FIGURES)
    chosen = parser.parse_args().only
    for name, measure in FIGURES.items():
        if chosen in (None, name):
            print(json.dumps({"figure": name, **measure()}), flush=True)


if __name__ == "__main__":
    main()
