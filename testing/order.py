"""The order of tests that several processes share: those that take long come first, so that all end together."""

from __future__ import annotations

import pytest

LONG = ("long", "cluster", "slurm", "mpi", "clients")  # markers of tests that take seconds


@pytest.hookimpl(trylast=True)  # fixtures have given their markers, and -m has picked
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # set by xdist
        items.sort(key=takes_long, reverse=True)


def takes_long(item: pytest.Item) -> bool:
    """Return whether a test is marked as one that takes seconds."""
    return any(item.get_closest_marker(name) is not None for name in LONG)
