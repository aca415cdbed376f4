"""All of torch.distributed under "weft", against Gloo in the same processes."""

from __future__ import annotations

import pytest
from tests.cluster.cluster import VirtualCluster
from tests.collectives.conftest import Bench

THEMES = ("reductions.py", "copies.py", "traffic.py")


@pytest.mark.parametrize("script", THEMES)
@pytest.mark.parametrize("workers", [2, 3])
def test_on_one_host(bench: Bench, script: str, workers: int) -> None:
    bench.passes(script, workers)


def test_four_on_one_host_with_every_call_compared(bench: Bench) -> None:
    bench.passes("traffic.py", 4, WEFT_DEBUG="1")


@pytest.mark.parametrize("script", THEMES)
def test_on_uneven_hosts(bench: Bench, shared_cluster: VirtualCluster, script: str) -> None:
    bench.passes_on(shared_cluster, "h1:2,h2:1", script)


def test_on_four_hosts_of_two(bench: Bench, shared_cluster: VirtualCluster) -> None:
    bench.passes_on(shared_cluster, "h1:2,h2:2,h3:2,h4:2", "main.py")


def test_every_run_gives_the_same_bits(bench: Bench) -> None:
    runs = [sorted(bench.passes("main.py", 3, WEFT_MODE="shm").splitlines()) for _ in range(2)]
    assert runs[0] == runs[1]
    assert "0 failed" in runs[0][0]
