"""Elastic runs on a cluster of our own: pods that die, come back, are added, fall silent and are taken away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.launch.engines.kubernetes.conftest import ClusterShell

WORKERS = Path(__file__).parents[4] / "testing" / "elastic" / "workers"


class SteadyRun:
    """A training on the pods of a cluster, with a pause in each step until it is told to hurry."""

    def __init__(self, on_cluster: ClusterShell, pods: int, steps: int, pause: str, *more: str) -> None:
        here = on_cluster.shell.folder
        for name in ("steady.py", "uncompiled.py"):
            shutil.copy(WORKERS / name, here)
        self._cluster, self._hurry = on_cluster.cluster, here.parent / "pod" / "hurry"
        self.process = on_cluster.start(
            *("--pods", str(pods), "--elastic", "1:3", "steady.py", *more),
            *("--steps", str(steps), "--pause", pause, "--hurry", str(self._hurry)),
        )

    def await_text(self, text: str, before: int = 0, what: str = "") -> None:
        """Wait until the log of the first pod has a text more than `before` times."""
        self._cluster.wait_for(
            what or text,
            lambda: self._cluster.log(0).count(text) > before or self.process.poll() is not None,
        )
        assert self.process.poll() is None, self.process.communicate()

    def finish(self) -> tuple[str, str]:
        """Have it hurry, and return what it printed on both streams when it has ended well."""
        self._hurry.touch()
        out, err = self.process.communicate(timeout=240)
        assert self.process.returncode == 0, err
        return out, err


@pytest.mark.long
def test_pods_are_lost_added_and_taken_away_and_no_sample_is(on_cluster: ClusterShell) -> None:
    cluster = on_cluster.cluster
    run = SteadyRun(on_cluster, 2, 300, "0.4")

    def await_view(workers: int, before: int) -> None:
        """Wait for another view of so many workers than those `before`."""
        run.await_text(f": {workers} worker{'s' * (workers > 1)} (", before, f"{workers} workers")

    await_view(2, 0)
    cluster.kill_pod(1)
    await_view(1, 0)
    await_view(2, 1)  # the pod that Kubernetes puts in its place has joined
    cluster.delete_pod(1)  # its node is drained: the pod leaves in peace, and is replaced all the same
    await_view(1, 1)
    await_view(2, 2)
    assert on_cluster.weft("scale", "latest", "--pods", "3").stdout == "3 pods\n"
    await_view(3, 0)
    cluster.freeze_pod(2)
    await_view(2, 3)  # nobody told that it is lost
    assert on_cluster.weft("scale", "latest", "--pods", "1").returncode == 0
    await_view(1, 2)
    out, err = run.finish()
    assert '"committed": 300' in out
    assert "weft: steady-1 is taken away: EvictionByEvictionAPI: Eviction API: evicting" in err
    checked = on_cluster.shell.weft("ledger", "latest")
    assert checked.returncode == 0
    assert "exact: every sample consumed once, steps 0 to 299" in checked.stdout
    changes = on_cluster.shell.weft("timeline", "latest").stdout
    assert "1 -> 2" in changes
    assert "2 -> 3" in changes
    assert cluster.objects("jobs") == []


@pytest.mark.long
def test_a_run_goes_on_when_its_first_pod_is_lost(on_cluster: ClusterShell) -> None:
    """It is killed, then drained; the API server restarts meanwhile. The workers of the other pods never stop."""
    cluster = on_cluster.cluster
    run = SteadyRun(on_cluster, 3, 400, "0.3", "--tell")
    run.await_text(": 3 workers (")
    cluster.kill_pod(0)
    cluster.restart()
    run.await_text("steady-2 is back")  # in the log of the new first pod
    run.await_text(": 3 workers (")
    cluster.delete_pod(0)  # SIGTERM: its node is drained
    run.await_text("steady-2 is back")
    run.await_text(": 3 workers (")
    out, _ = run.finish()
    steps = [line.rpartition(" ")[2] for line in out.splitlines() if "steady-1/0.0 step" in line]
    assert steps == [str(number) for number in range(400)]  # one worker, from the first step to the last
    checked = on_cluster.shell.weft("ledger", "latest")
    assert "exact: every sample consumed once, steps 0 to 399" in checked.stdout
    assert cluster.objects("jobs") == []


@pytest.mark.long
def test_a_run_goes_on_when_its_first_pods_node_is_cut_off(on_cluster: ClusterShell) -> None:
    """Nothing of it ends: its processes go on alone, and its object leaves for ever. Nor does anybody wait for it."""
    cluster = on_cluster.cluster
    on_cluster.set(grace_s=3600)
    run = SteadyRun(on_cluster, 3, 400, "0.3")
    run.await_text(": 3 workers (")
    cluster.cut_pod(0)
    cluster.give_up_pod(0)
    run.await_text("steady-2 is back")  # in the log of the new first pod
    run.await_text(": 3 workers (")
    out, err = run.finish()
    assert '"committed": 400' in out
    assert "weft: steady-0 is taken away: DeletionByTaintManager" in err
    checked = on_cluster.shell.weft("ledger", "latest")
    assert "exact: every sample consumed once, steps 0 to 399" in checked.stdout


def test_only_elastic_jobs_can_be_scaled(on_cluster: ClusterShell) -> None:
    script = on_cluster.shell.script("import time\ntime.sleep(600)\n")
    assert on_cluster.run("--detach", script).returncode == 0
    refused = on_cluster.weft("scale", "latest", "--pods", "3")
    assert refused.returncode == 2
    assert "must be elastic" in refused.stderr
