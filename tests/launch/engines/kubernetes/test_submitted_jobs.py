"""Jobs of the service that run on a cluster of our own: queue, code, metrics and log as on any host."""

from __future__ import annotations

import json
from pathlib import Path

from tests.launch.engines.kubernetes.conftest import ClusterShell

SCRIPT = """
import os, weft
weft.log({"loss": 0.5}, step=1)
print("rank", os.environ["RANK"], "of job", os.environ["WEFT_JOB_ID"])
"""


def test_a_submitted_job_runs_in_pods(on_cluster: ClusterShell, tmp_path: Path) -> None:
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
    done = shell.weft("submit", "-f", "job.yaml", timeout=90, **env)
    assert done.returncode == 0, done.stderr
    assert {"[0] rank 0 of job 1", "[1] rank 1 of job 1"} <= set(done.stdout.splitlines())
    assert "loss 0.5" in done.stdout + done.stderr
    shown = json.loads(shell.weft("job", "show", "1", "--json", timeout=60, **env).stdout)
    assert shown["state"] == "completed"
    assert cluster.objects("jobs") == cluster.objects("pods") == []
