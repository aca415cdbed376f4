"""Workers of the contract under the real launcher, on this machine and on the virtual cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.cluster import VirtualCluster
from tests.launch.conftest import WEFT, Shell

WORKERS = Path(__file__).with_name("workers")
ROOT = Path(__file__).parents[2]


class Bench:
    """Runs a worker script, and shows what it said if it failed."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell

    def passes(self, script: str, workers: int, *args: str, **env: str) -> str:
        done = self.shell.weft(
            "run", "-n", str(workers), str(WORKERS / script), *args, timeout=50, PYTHONPATH=str(ROOT), **env
        )
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        return done.stdout

    def passes_on(self, cluster: VirtualCluster, hosts: str, script: str, *args: str, **more: str) -> str:
        env = {
            **cluster.environment,
            **more,
            "PYTHONPATH": str(ROOT),
            "XDG_CACHE_HOME": str(self.shell.folder / "cache"),
        }
        command = [WEFT, "run", "-H", hosts, "--skip-checks", "--allow-uneven", "--env", "PYTHONPATH"]
        done = cluster.run(
            [*command, WORKERS / script, *args], env=env, cwd=self.shell.folder, timeout=55, check=False
        )
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        return done.stdout


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    shell = Shell(tmp_path)
    yield Bench(shell)
    shell.close()
