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
