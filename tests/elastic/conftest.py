"""Elastic runs on the virtual cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testing.cluster.cluster import VirtualCluster
from testing.elastic.watched import Watched


@pytest.fixture
def on_hosts(
    new_cluster: Callable[..., VirtualCluster], tmp_path: Path
) -> Iterator[Callable[[int], Watched]]:
    """Builds a cluster of so many hosts for one elastic run."""
    built: list[Watched] = []

    def build(hosts: int) -> Watched:
        built.append(Watched(new_cluster(hosts), tmp_path))
        return built[-1]

    yield build
    for watched in built:
        watched.close()
