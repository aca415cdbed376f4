"""Jobs of the service that run on a cluster of our own: queue, code, metrics and log as on any host."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil
from testing.shell import Shell
from tests.launch.engines.kubernetes.conftest import ClusterShell

from weft.jobs.service.attempts.on_kubernetes import pod_options, pod_settings
from weft.jobs.spec.read import convert_spec, resolve
from weft.launch.pod_settings import KubernetesConfig

SCRIPT = """
import os, time, weft
print("begins", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
weft.log({"loss": 0.5}, step=1)
print("rank", os.environ["RANK"], "of job", os.environ["WEFT_JOB_ID"])
"""


def settings_of(**fields: Any) -> tuple[KubernetesConfig, list[str]]:
    """Return the pods of an attempt, and the options of its run."""
    resolved = resolve(convert_spec({"run": "train.py", "engine": "kubernetes", **fields}))
    return pod_settings(resolved, job_id=7, number=2), pod_options(resolved, "/attempt")


def test_the_code_of_a_job_goes_along_unless_it_is_in_the_image() -> None:
    for given, code in (({}, "snapshot"), ({"code": "image"}, "image"), ({"code": "snapshot"}, "snapshot")):
        pods, _ = settings_of(kubernetes={"image": "none:1", **given})
        assert (pods.code, pods.name) == (code, "weft-7-2")


def test_pods_of_an_elastic_job_have_room_for_all_its_workers() -> None:
    pods, options = settings_of(
        workers="2:6", kubernetes={"image": "none:1", "pods": 2}, resources={"cpus": 2}
    )
    assert options[-4:] == ["--elastic", "2:6", "--per-host", "3"]
    assert pods.resources == {"cpu": "6000m"}
    _, options = settings_of(workers=6, kubernetes={"image": "none:1", "pods": 2})
    assert options[-2:] == ["-n", "6"]


def test_a_submitted_job_runs_in_pods_and_outlives_the_services_own_pod(
    on_cluster: ClusterShell, tmp_path: Path
) -> None:
    shell, cluster = on_cluster.shell, on_cluster.cluster
    shell.script(SCRIPT)
    pods = f"{{image: none:1, pods: 2, workdir: {tmp_path / 'pod'}}}"
    (shell.folder / "job.yaml").write_text(
        f"run: train.py\nengine: kubernetes\nworkers: 2\nkubernetes: {pods}\n"
    )
    env = {
        **on_cluster.env,
        "WEFT_HOME": str(tmp_path / "service"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    service = start_service(shell, env)
    submitted = shell.start("submit", "-f", "job.yaml", **env)
    cluster.wait_for("both workers", lambda: cluster.log(0).count("begins") == 2)
    (keeper,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(tmp_path / "service") in " ".join(process.info["cmdline"] or ())
        and "kubernetes" in process.cmdline()
    ]
    # As when the chart is upgraded: both are gone, the run goes on, and the next service follows it.
    for process in (service, keeper):
        process.kill()
        process.wait()
    assert all("activeDeadlineSeconds" not in job["spec"] for job in cluster.objects("jobs"))
    (tmp_path / "pod" / "go").touch()
    cluster.wait_for("the run's end", lambda: "rank 1 of job 1" in cluster.log(0))
    start_service(shell, env)
    submitted.communicate(timeout=240)  # it has told how to follow the job again, and given up, or gone on
    followed = shell.weft("logs", "1", "--follow", timeout=90, **env)
    assert {"[0] rank 0 of job 1", "[1] rank 1 of job 1"} <= set(followed.stdout.splitlines()), (
        followed.stderr
    )
    cluster.wait_for("no Job", lambda: not cluster.objects("jobs"))
    told = shell.weft("job", "show", "1", timeout=60, **env).stdout
    # Those who follow a job see its metrics if they look in time.
    assert re.search(r"^loss +0\.5 ", told, re.MULTILINE), told
    shown = json.loads(shell.weft("job", "show", "1", "--json", timeout=60, **env).stdout)
    assert shown["state"] == "completed"
    assert cluster.objects("jobs") == cluster.objects("pods") == []


def start_service(shell: Shell, env: dict[str, str]) -> subprocess.Popen[str]:
    """Start a service, and wait until it can be used."""
    service = shell.start("up", "--port", "0", **env)
    assert service.stdout is not None
    while not service.stdout.readline().startswith("weft is at "):
        assert service.poll() is None
    return service
