"""Jobs of the service that run on a cluster of our own: queue, code, metrics and log as on any host."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psutil
from tests.launch.engines.kubernetes.conftest import ClusterShell

SCRIPT = """
import os, time, weft
print("begins", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
weft.log({"loss": 0.5}, step=1)
print("rank", os.environ["RANK"], "of job", os.environ["WEFT_JOB_ID"])
"""


def test_a_submitted_job_runs_in_pods_and_outlives_its_keeper(
    on_cluster: ClusterShell, tmp_path: Path
) -> None:
    shell, cluster = on_cluster.shell, on_cluster.cluster
    shell.script(SCRIPT)
    pods = f"{{image: none:1, pods: 2, code: snapshot, workdir: {tmp_path / 'pod'}}}"
    (shell.folder / "job.yaml").write_text(
        f"run: train.py\nengine: kubernetes\nworkers: 2\nkubernetes: {pods}\n"
    )
    env = {
        **on_cluster.env,
        "WEFT_HOME": str(tmp_path / "service"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    service = shell.start("up", "--port", "0", **env)
    assert service.stdout is not None
    while not service.stdout.readline().startswith("log in once with"):
        assert service.poll() is None
    submitted = shell.start("submit", "-f", "job.yaml", **env)
    cluster.wait_for("both workers", lambda: cluster.log(0).count("begins") == 2)
    (keeper,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(tmp_path / "service") in " ".join(process.info["cmdline"] or ())
        and "kubernetes" in process.cmdline()
    ]
    keeper.kill()  # as when the service's own pod is replaced; the run goes on, and another keeper follows it
    (tmp_path / "pod" / "go").touch()
    out, err = submitted.communicate(timeout=90)
    assert submitted.returncode == 0, err
    assert {"[0] rank 0 of job 1", "[1] rank 1 of job 1"} <= set(out.splitlines())
    told = shell.weft("job", "show", "1", timeout=60, **env).stdout
    # Those who follow a job see its metrics if they look in time.
    assert re.search(r"^loss +0\.5 ", told, re.MULTILINE), told
    shown = json.loads(shell.weft("job", "show", "1", "--json", timeout=60, **env).stdout)
    assert shown["state"] == "completed"
    assert cluster.objects("jobs") == cluster.objects("pods") == []
