"""The objects that a dry run prints, applied by a client that is not ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
from tests.launch.engines.kubernetes.conftest import ClusterShell

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
HELLO = "import os\nprint(f'hello of {os.environ[\"RANK\"]}', flush=True)\n"
WAITS = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"
ALL = ("get", "list", "watch", "create", "patch", "delete")


def kubectl(on_cluster: ClusterShell, *words: str, given: str = "") -> str:
    """Call kubectl to its end; return what it prints."""
    done = subprocess.run(
        ["kubectl", *words],
        env={**os.environ, **on_cluster.env, "HOME": str(on_cluster.shell.folder)},
        input=given,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_dry_run_prints_runs_without_us(on_cluster: ClusterShell) -> None:
    """Its pods carry out the run themselves, and tell the outcome by the Job and in the log of the first one."""
    cluster = on_cluster.cluster
    cluster.anonymous, cluster.rules = True, dict.fromkeys(cluster.rules, ALL)
    script = on_cluster.shell.script(HELLO)
    printed = on_cluster.run("--pods", "2", "--per-host", "1", "--name", "alone", "--dry-run", script).stdout
    # There are no schemas to look fields up in; our own server checks them.
    made = kubectl(on_cluster, "create", "--validate=false", "-f", "-", given=printed)
    assert made.splitlines() == [
        f"{kind}/{name} created"
        for kind, name in (
            ("secret", "alone"),
            ("configmap", "alone-code"),
            ("service", "alone"),
            ("job.batch", "alone"),
        )
    ]
    assert "condition met" in kubectl(
        on_cluster, "wait", "--for=condition=Complete", "job/alone", "--timeout=180s"
    )
    log = kubectl(on_cluster, "logs", "-l", "batch.kubernetes.io/job-completion-index=0", "--tail=-1")
    said = sorted(line for line in log.splitlines() if line.startswith("["))
    assert said == ["[0] hello of 0", "[1] hello of 1"]
    kubectl(on_cluster, "delete", "job", "alone")
    assert cluster.has_none("jobs")
    assert kubectl(on_cluster, "get", "pods", "-o", "name") == ""


def test_a_pod_is_evicted_by_a_request_of_its_own(on_cluster: ClusterShell) -> None:
    """As a drained node has it: a run of a fixed size fails by it, and says what took its pod away."""
    cluster = on_cluster.cluster
    cluster.anonymous = True
    cluster.rules[("", "pods/eviction")] = ("create",)
    process = on_cluster.start("--pods", "2", on_cluster.shell.script(WAITS))
    cluster.wait_for("both workers", lambda: cluster.log(0).count("here") == 2)
    name = cluster.pod(1)["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/team/pods/{name}/eviction"
    kubectl(on_cluster, "create", "--raw", path, "-f", "-", given=json.dumps(eviction))
    _, err = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "weft: train-1 is taken away: EvictionByEvictionAPI" in err
    assert "weft: failed" in err
