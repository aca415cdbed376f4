"""Workers of the contract under the real launcher, on this machine and on the virtual cluster.

On this machine, launcher and workers are forks of a process that has torch loaded (testing/forking), and so are agents
and workers on the hosts of virtual clusters.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from testing.cluster.cluster import VirtualCluster
from testing.forking.hosts import HostForks
from testing.forking.server import TRAINERS, ForkServer
from testing.shell import WEFT, Shell

HERE = Path(__file__).parent
WORKERS = HERE / "workers"
PATH = str(Path(__file__).parents[2])  # for the workers


class Bench:
    """Runs a worker script, and shows what it said if it failed."""

    def __init__(self, shell: Shell, forks: ForkServer) -> None:
        self.shell, self.forks = shell, forks

    def runs(
        self, script: str, workers: int, *args: str, options: Sequence[str] = (), **env: str
    ) -> subprocess.CompletedProcess[str]:
        command = ["run", "-n", str(workers), *options, str(WORKERS / script), *args]
        variables = {"PYTHONPATH": PATH, **env}
        if "mpi" in options:  # mpirun starts its own workers
            command[1:1] = ["--python", self.forks.python]
            return self.shell.weft(*command, timeout=200, **variables)
        return self.forks.run(
            command, env=self.shell.environment(variables), cwd=self.shell.folder, timeout=200
        )

    def passes(self, script: str, workers: int, *args: str, options: Sequence[str] = (), **env: str) -> str:
        done = self.runs(script, workers, *args, options=options, **env)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        return done.stdout

    def starts_on(
        self,
        cluster: VirtualCluster,
        hosts: str,
        script: str,
        *args: str,
        options: Sequence[str] = (),
        **more: str,
    ) -> subprocess.Popen[str]:
        env = {
            **cluster.environment,
            **more,
            "PYTHONPATH": PATH,
            "XDG_CACHE_HOME": str(self.shell.folder / "cache"),
        }
        command = [WEFT, "run", "-H", hosts, "--skip-checks", "--allow-uneven", "--env", "PYTHONPATH"]
        if cluster.python is not None:
            command += ["--python", cluster.python]
        return cluster.popen([*command, *options, WORKERS / script, *args], env=env, cwd=self.shell.folder)

    def passes_on(
        self,
        cluster: VirtualCluster,
        hosts: str,
        script: str,
        *args: str,
        options: Sequence[str] = (),
        **more: str,
    ) -> str:
        with self.starts_on(cluster, hosts, script, *args, options=options, **more) as process:
            try:
                output, errors = process.communicate(timeout=200)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == 0, output[-8000:] + errors[-2000:]
        return output


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one process of xdist run all tests that use the shared cluster here: each host loads torch once."""
    for item in items:
        if HERE in item.path.parents and "shared_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("collectives on hosts"))


@pytest.fixture(scope="session")
def shared_cluster(shared_cluster: VirtualCluster, forks: ForkServer) -> Iterator[VirtualCluster]:
    """Four hosts for all tests that leave them as they are, where agents and workers are forks."""
    with HostForks(shared_cluster, forks.load(*TRAINERS)):
        yield shared_cluster


@pytest.fixture
def new_cluster(
    new_cluster: Callable[..., VirtualCluster], forks: ForkServer
) -> Iterator[Callable[..., VirtualCluster]]:
    """Builds clusters that end with the test, where agents and workers are forks."""
    with ExitStack() as stack:

        def build(*args: Any, **kwargs: Any) -> VirtualCluster:
            cluster = new_cluster(*args, **kwargs)
            stack.enter_context(HostForks(cluster, forks.load(*TRAINERS)))
            return cluster

        yield build


@pytest.fixture
def bench(tmp_path: Path, forks: ForkServer) -> Iterator[Bench]:
    shell = Shell(tmp_path)
    yield Bench(shell, forks)
    shell.close()
