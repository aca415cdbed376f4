"""Elastic runs on the virtual cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from testing.cluster.cluster import VirtualCluster
from testing.elastic.local_run import Reference, undisturbed
from testing.elastic.watched import Watched
from testing.forking.hosts import HostForks
from testing.forking.server import ForkServer


@pytest.fixture
def reference(forks: ForkServer) -> Reference:
    """Results of trainings that nothing disturbs, in one process each."""
    return partial(undisturbed, forks)


@pytest.fixture
def on_hosts(
    new_cluster: Callable[..., VirtualCluster], forks: ForkServer, tmp_path: Path
) -> Iterator[Callable[[int], Watched]]:
    """Builds a cluster of so many hosts for one elastic run, whose agents and workers are forks."""
    with ExitStack() as stack:

        def build(hosts: int) -> Watched:
            cluster = new_cluster(hosts)
            stack.enter_context(HostForks(cluster, forks))
            return stack.enter_context(closing(Watched(cluster, tmp_path)))

        yield build
