"""The test beds as pytest fixtures. A test that asks for one carries its marker, and its group, by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from testing.cluster import cluster as virtual
from testing.cluster import slurm as virtual_slurm
from testing.cluster.cluster import VirtualCluster
from testing.cluster.require import require
from testing.cluster.slurm import Slurm

_MARKERS = {"cluster": "cluster", "new_cluster": "cluster", "shared_cluster": "cluster", "slurm": "slurm"}
# Fixtures that take seconds to make: one process of xdist runs all tests of each (--dist loadgroup).
_GROUPS = {"slurm": "slurm", "server": "server"}


@pytest.hookimpl(tryfirst=True)  # before -m picks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in {_MARKERS.get(name) for name in getattr(item, "fixturenames", ())} - {None}:
            item.add_marker(str(marker))
        for group in {_GROUPS.get(name) for name in getattr(item, "fixturenames", ())} - {None}:
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def new_cluster() -> Iterator[Callable[..., VirtualCluster]]:
    """Builds clusters, with the arguments of VirtualCluster, that end with the test."""
    require(virtual.missing())
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(VirtualCluster(*args, **kwargs))


@pytest.fixture
def cluster(new_cluster: Callable[..., VirtualCluster]) -> VirtualCluster:
    """Four hosts of its own, for a test that breaks things."""
    return new_cluster(4)


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[VirtualCluster]:
    """Four hosts for all tests that leave them as they are."""
    require(virtual.missing())
    with VirtualCluster(4) as built:
        yield built


@pytest.fixture(scope="session")
def shared_slurm() -> Iterator[Slurm]:
    require(virtual.missing() or virtual_slurm.missing())
    with VirtualCluster(4) as built, Slurm(built) as started:
        yield started


@pytest.fixture
def slurm(shared_slurm: Slurm) -> Slurm:
    """Four nodes of a Slurm for all tests that end their jobs; all are idle, so the first of them are given."""
    shared_slurm.await_idle()
    return shared_slurm
