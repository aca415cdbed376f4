"""Runs whose pods really run, on the cluster of our own and on a real one (`WEFT_TEST_KUBECONFIG`, CONTRIBUTING.md).

The first tests need no image of ours: a few lines of Python stand for what runs in the pods, so that what is tested is
our client against the API server, the Job controller and the kubelet. The last ones run weft itself in the pods, and
only where `WEFT_TEST_IMAGE` names an image that has it: the cluster of our own has suites for that.
"""

from __future__ import annotations

import io
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from testing.cluster.require import require
from testing.cluster.waiting import wait_until
from testing.kubernetes import real_cluster
from testing.kubernetes.api_server import VirtualKubernetes
from testing.kubernetes.kubelet import missing_rights
from testing.kubernetes.real_cluster import IMAGE, NAMESPACE, PLAIN_IMAGE
from testing.shell import Shell

from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.engines.kubernetes.api import ClusterApi
from weft.launch.engines.kubernetes.objects.manifests import ManifestRequest, manifests
from weft.launch.engines.kubernetes.objects.request import make_request
from weft.launch.engines.kubernetes.run import read_run, run_on_cluster, scale_pods
from weft.launch.pod_settings import KubernetesConfig

Data = dict[str, Any]
REAL = real_cluster.KUBECONFIG
LIVES = "batch.kubernetes.io/job-index-failure-count"
# Prints as the first pod of a run does, for ranks of both pods, and fails.
FAILS = """
import os, sys, time
if os.environ["WEFT_POD_INDEX"] == "0":
    for number in range(2000):
        print(f"[{number % 2}] line {number // 2}", flush=number % 100 == 0)
    sys.exit(3)
time.sleep(600)
"""
# The first pod is lost once; the one in its place waits for a third pod, which `weft scale` adds, and succeeds.
COMES_BACK = """
import os, socket, sys, time
index, lives = os.environ["WEFT_POD_INDEX"], int(os.environ["LIVES"])
if index != "0":
    time.sleep(600)
print(f"[0] life {lives}", flush=True)
if lives == 0:
    sys.exit(1)
while True:
    try:
        socket.getaddrinfo(os.environ["WEFT_POD_PREFIX"] + "-2." + os.environ["WEFT_POD_PREFIX"], 1)
        break
    except OSError:
        time.sleep(0.2)
print("[0] all there", flush=True)
"""


@dataclass
class PlainRuns:
    """A cluster, and pods in it that run a few lines of Python."""

    kubeconfig: Path
    workdir: str
    folder: Path
    out: io.BytesIO

    def run(self, script: str, **fields: Any) -> Outcome:
        """Run a script in all pods, and follow it as any run."""
        request, objects = self._objects(script, **fields)
        console = Console(2, logs=self.folder, out=self.out, err=self.out)
        try:
            return run_on_cluster(request, objects, console, self.folder)
        finally:
            console.close()

    def _objects(self, script: str, **fields: Any) -> tuple[ManifestRequest, list[Data]]:
        pods = KubernetesConfig(
            kubeconfig=str(self.kubeconfig),
            image=PLAIN_IMAGE,
            name=f"weft-{secrets.token_hex(4)}",
            namespace=NAMESPACE if str(self.kubeconfig) == REAL else None,
            workdir=self.workdir,
            grace_s=1,
            **fields,
        )
        config = LaunchConfig(command=Command("command", "true"), engine="kubernetes", kubernetes=pods)
        request = make_request(config, door_secret=secrets.token_hex())
        request = replace(request, command=("python", "-c", script))
        objects = list(manifests(request))
        container = objects[-1]["spec"]["template"]["spec"]["containers"][0]
        if pods.elastic:
            reference = {"fieldPath": f"metadata.annotations['{LIVES}']"}
            container["env"].append({"name": "LIVES", "valueFrom": {"fieldRef": reference}})
        return request, objects

    def left(self) -> list[Data]:
        """Return the pods of the run that are still there."""
        where = read_run(self.folder)
        with closing(ClusterApi(where.settings)) as api:
            return api.pods(f"batch.kubernetes.io/job-name={where.name}")


@pytest.fixture(params=["ours", *(["real"] if REAL else [])])
def plain_runs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PlainRuns]:
    for name in ("cluster", "pod", "run"):
        (tmp_path / name).mkdir()
    if request.param == "real":
        real_cluster.prepare()
        if (why := real_cluster.why_no_containers()) is not None:
            pytest.skip(why)
        yield PlainRuns(real_cluster.kubeconfig(), "/tmp", tmp_path / "run", io.BytesIO())
        return
    require(missing_rights())
    with VirtualKubernetes(tmp_path / "cluster") as cluster:
        yield PlainRuns(cluster.kubeconfig, str(tmp_path / "pod"), tmp_path / "run", io.BytesIO())


def test_all_lines_and_the_exit_code_come_back_and_nothing_is_left(plain_runs: PlainRuns) -> None:
    outcome = plain_runs.run(FAILS, pods=2)
    assert outcome.code == 3
    assert outcome.failure is not None
    for rank in range(2):
        lines = (plain_runs.folder / f"rank-{rank}.log").read_text().splitlines()
        assert lines == [f"line {number}" for number in range(1000)]
    wait_until(lambda: plain_runs.left() == [], "no pods", timeout_s=60)


def test_an_elastic_job_replaces_its_first_pod_grows_and_ends_with_it(plain_runs: PlainRuns) -> None:
    def scale() -> None:
        log = plain_runs.folder / "rank-0.log"
        wait_until(lambda: log.exists() and "life 1" in log.read_text(), "its second life", timeout_s=120)
        scale_pods(plain_runs.folder, 3)

    thread = threading.Thread(target=scale)
    thread.start()
    outcome = plain_runs.run(COMES_BACK, pods=2, elastic=True)
    thread.join()
    assert outcome.code == 0, plain_runs.out.getvalue()
    lines = (plain_runs.folder / "rank-0.log").read_text().splitlines()
    assert lines == ["life 0", "life 1", "all there"]
    wait_until(lambda: plain_runs.left() == [], "no pods", timeout_s=60)


# -- weft itself in the pods ---------------------------------------------------------------------------

WORKERS = Path(__file__).parents[4] / "testing" / "elastic" / "workers"
needs_image = pytest.mark.skipif(not (REAL and IMAGE), reason="no WEFT_TEST_KUBECONFIG and WEFT_TEST_IMAGE")


@pytest.fixture
def real_shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def flags(*more: str) -> tuple[str, ...]:
    """Return the words of a command line up to the script."""
    assert IMAGE is not None
    place = ("--namespace", NAMESPACE) if NAMESPACE else ()
    own = ("--image", IMAGE, "--name", f"weft-{secrets.token_hex(4)}", "--code", "snapshot", *place)
    return ("run", "--engine", "kubernetes", *own, *more)


@needs_image
def test_a_script_runs_in_two_pods_of_a_real_cluster(real_shell: Shell) -> None:
    script = real_shell.script(
        "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"
    )
    done = real_shell.weft(*flags("--pods", "2", script), timeout=600, KUBECONFIG=str(REAL))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] rank 0 of 2", "[1] rank 1 of 2"]


@needs_image
def test_an_elastic_run_grows_and_shrinks_on_a_real_cluster(real_shell: Shell) -> None:
    for name in ("steady.py", "uncompiled.py"):
        shutil.copy(WORKERS / name, real_shell.folder)
    process = real_shell.start(
        *flags("--pods", "2", "--elastic", "1:3", "steady.py", "--steps", "600", "--pause", "0.2"),
        KUBECONFIG=str(REAL),
    )
    assert process.stderr is not None
    for workers, then in ((2, 3), (3, 1), (1, None)):
        while f": {workers} worker" not in (line := process.stderr.readline()):
            assert line, "the run has ended"
        if then is not None:
            scaled = real_shell.weft("scale", "latest", "--pods", str(then), timeout=60, KUBECONFIG=str(REAL))
            assert scaled.returncode == 0, scaled.stderr
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert '"committed": 600' in out
    assert "exact: every sample consumed once" in real_shell.weft("ledger", "latest").stdout
