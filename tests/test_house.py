"""The counts of tools/house.py stay within their bounds: what makes a package hard to find one's way in."""

from __future__ import annotations

import pytest
from tools import house

# Places that may write to os.environ, each with its reason.
MAY_WRITE = {
    "weft.cli.models.export": "OpenMP reads OMP_WAIT_POLICY once, when torch is loaded into the command's own process",
    "weft.elastic.worker.group": "scripts and torch read RANK and WORLD_SIZE of the present view",
    "weft.elastic.worker.link": "a child must not find the descriptors that its parent was given",
    "weft.elastic.worker.run": "groups of a view must not try modes out; to be passed as settings",
    "weft.serve.export.quiet": "variables that torch's exporter has set are taken back",
}
COUNTS = {count.what: count for count in house.counts()}


@pytest.mark.parametrize(
    "count", [c for c in COUNTS.values() if "environ" not in c.what], ids=lambda c: str(c.what)
)
def test_the_house_is_in_order(count: house.Count) -> None:
    assert count.figure <= count.bound, "\n".join(count.offenders)


def test_nothing_else_writes_to_the_environment() -> None:
    places = {place.partition(":")[0] for place in COUNTS["writes to os.environ"].offenders}
    assert places == set(MAY_WRITE)
