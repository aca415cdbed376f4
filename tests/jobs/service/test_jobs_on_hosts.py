from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

from testing.cluster.cluster import VirtualCluster

ROOT = Path(__file__).parents[3]


def test_jobs_run_on_hosts_that_ssh_reaches(shared_cluster: VirtualCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "testing.jobs.cluster_story", str(tmp_path)]
    env = {**os.environ, **shared_cluster.environment, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    story = shared_cluster.popen(command, env=env, cwd=ROOT)
    output, errors = story.communicate(timeout=200)
    assert story.returncode == 0, errors
    found = json.loads(output)
    assert "h9" in found["refused"]
    workers = Counter(place.split()[0] for place in found["all"])
    assert workers == {"head": 2, "h1": 2, "h2": 2}, found
    assert len(set(found["all"])) == 6  # each has a processor of its own
    assert [place.split()[0] for place in found["labelled"]] == ["h2"]
    assert {place.split()[0] for place in found["drained"]} == {"h2"}
    assert found["states"] == {"head": "drained", "h1": "drained", "h2": "up"}


def test_code_and_data_are_carried_to_hosts_that_share_no_folder(
    shared_cluster: VirtualCluster, tmp_path: Path
) -> None:
    place = f"/run/weft-apart-{os.getpid()}"  # each host has a /run of its own
    command = [sys.executable, "-m", "testing.jobs.cluster_story", place]
    env = {**os.environ, **shared_cluster.environment, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    story = shared_cluster.popen(command, env=env, cwd=ROOT)
    output, errors = story.communicate(timeout=200)
    assert story.returncode == 0, errors
    found = json.loads(output)
    assert found["state"] == "completed", found
    assert found["text"] == ["h1 weft warp", "h2 weft warp"]  # both outputs came back
    assert found["checkpoints"] == ["at-h1", "at-h2"]
    assert [text.split()[0] for text in found["mpi"]] == ["h1", "h2"], (
        found
    )  # mpirun's workers have theirs, too
    left = shared_cluster.run(["sh", "-c", f"ls {place}/data/jobs/1"], on="h1").stdout
    assert left.split() == []
