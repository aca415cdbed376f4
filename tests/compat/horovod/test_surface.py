"""The surface of `horovod.torch`, on one, two and three ranks."""

from __future__ import annotations

import pytest
from tests.compat.horovod.conftest import WORKERS, HorovodRuns


@pytest.mark.parametrize("ranks", [2, 3])
def test_scripts_find_what_they_rely_on(horovod_runs: HorovodRuns, ranks: int) -> None:
    script = str(WORKERS / "surface.py")
    told = horovod_runs.passes("run", "-n", str(ranks), script, str(horovod_runs.folder))
    assert told.count("checks passed") == ranks


def test_a_script_without_a_launcher_is_a_world_of_one(horovod_runs: HorovodRuns) -> None:
    done = horovod_runs.python(str(WORKERS / "surface.py"), str(horovod_runs.folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 of 1" in done.stdout
