"""The examples in Horovod's idiom run unchanged, and learn."""

from __future__ import annotations

import re
from pathlib import Path

from tests.compat.horovod.conftest import HorovodRuns

EXAMPLES = Path(__file__).parents[3] / "examples" / "horovod"


def test_digits_are_learnt(horovod_runs: HorovodRuns) -> None:
    script = str(EXAMPLES / "digits.py")
    told = horovod_runs.passes("run", "-n", "2", script, "--epochs", "2", "--fp16-allreduce")
    accuracy = re.findall(r"epoch 2: .* accuracy ([\d.]+)", told)
    assert [float(each) > 0.5 for each in accuracy] == [True]


def test_digits_are_learnt_by_elastic_workers(horovod_runs: HorovodRuns) -> None:
    script = str(EXAMPLES / "elastic_digits.py")
    told = horovod_runs.passes("run", "--elastic", "1:2", script, "--epochs", "1")
    assert "epoch 0: 2 workers, accuracy" in told
