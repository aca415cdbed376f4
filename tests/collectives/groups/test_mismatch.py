"""Ranks that bring different sizes, or call in another order: an error on each, never others' bytes or a crash."""

from __future__ import annotations

import pytest
from testing.cluster.cluster import VirtualCluster
from tests.collectives.conftest import Bench


@pytest.mark.parametrize("options", [(), ("--debug",)])
def test_on_one_host(bench: Bench, options: tuple[str, ...]) -> None:
    done = bench.runs("mismatch.py", 3, options=("--mode", "shm", *options))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-3000:]


@pytest.mark.parametrize("hosts", ["h1:1,h2:1", "h1:2,h2:2"])
@pytest.mark.parametrize("options", [(), ("--debug",)])
def test_between_hosts(
    bench: Bench, shared_cluster: VirtualCluster, hosts: str, options: tuple[str, ...]
) -> None:
    bench.passes_on(shared_cluster, hosts, "mismatch.py", options=("--mode", "shm,ring", *options))
