"""What workers log on other hosts reaches the launcher's run directory: by ssh and in elastic runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from testing.cluster.cluster import VirtualCluster
from testing.shell import WEFT

pytestmark = pytest.mark.cluster

SCRIPT = """
import weft
for step in range(50):
    weft.log({"loss": 0.5}, step=step)
"""
ELASTIC = """
import torch, weft
from torch.utils.data import TensorDataset
run = weft.elastic.join()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = run.loader(TensorDataset(torch.randn(640, 4)), batch=64, micro=8)
run.register(model=model, optimizer=optimizer)
for epoch in run.epochs(2):
    for (rows,) in loader:
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
        if run.applied:
            weft.log({"rank": run.rank}, step=run.committed)
"""


@pytest.mark.parametrize("how", ["plain", "elastic"])
def test_lines_of_other_hosts_come_through_their_agents(
    cluster: VirtualCluster, tmp_path: Path, how: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT if how == "plain" else ELASTIC)
    names = ",".join(host.name for host in cluster.hosts[:2])
    options = ("--per-host", "1", "--skip-checks", "--run-dir", "run")
    elastic = () if how == "plain" else ("--elastic", "2:2")
    done = cluster.run(
        [WEFT, "run", "-H", names, *options, *elastic, "train.py"],
        env={**cluster.environment, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        cwd=tmp_path,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        text = (tmp_path / "run" / "metrics" / f"rank-{rank}.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        steps = [line[1] for line in lines]
        if how == "plain":
            assert steps == list(range(50))
        else:
            assert steps == list(range(steps[0], steps[0] + len(steps)))
            assert len(steps) >= 19  # of 20 steps, all but one that a worker may have joined after
            assert all(line[2]["rank"] == (line[3] if len(line) > 3 else rank) for line in lines)
