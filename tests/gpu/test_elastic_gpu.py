"""Elastic runs whose workers share one accelerator: a worker dies, the other goes on, a third one joins."""

from __future__ import annotations

from pathlib import Path

import pytest
from testing.elastic.local_run import TRAIN, LocalRun

from weft.elastic.history.ledger import check

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]
# NCCL takes two ranks on one device only if they say that they are on different hosts.
APART = f"""
import os, runpy, sys
os.environ["NCCL_HOSTID"] = str(os.getpid())
sys.argv[0] = {TRAIN!r}
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("flags", [(), ("--mode", "nccl")])
def test_a_worker_that_dies_is_replaced(tmp_path: Path, flags: tuple[str, ...]) -> None:
    script = tmp_path / "train.py"
    script.write_text(APART)
    fault = "localhost/1.0:20:kill-forward"
    args = ["--epochs", "10", "--length", "200", "--fault", fault]
    run = LocalRun(tmp_path, "2:2", 2, args, flags, str(script)).start().finish(timeout=200)
    assert run.code == 0, run.output
    assert run.fired(fault)
    assert len({result["digest"] for result in run.results}) == 1
    assert len(run.results) == 2
    assert check(run.run_dir).exact
