"""What people train with, under "weft" and under Gloo: the same parameters."""

from __future__ import annotations

import pytest
from testing.cluster.cluster import VirtualCluster
from tests.collectives.conftest import Bench


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.long)])
def test_on_one_host(bench: Bench, workers: int) -> None:
    bench.passes("training.py", workers)


def test_on_uneven_hosts(bench: Bench, shared_cluster: VirtualCluster) -> None:
    bench.passes_on(shared_cluster, "h1:2,h2:1", "training.py")
