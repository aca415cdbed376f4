"""The counts of tools/house.py stay within their bounds: what makes a package hard to find one's way in."""

from __future__ import annotations

import pytest
from tools import house

# Places that may write to os.environ, each with its reason.
MAY_WRITE = {
    "weft.elastic.worker.group": "scripts and torch read RANK and WORLD_SIZE of the present view",
}
WRITES = "writes to os.environ"


pytestmark = pytest.mark.xdist_group("house")  # one process makes what they share


@pytest.fixture(scope="module")
def counts() -> dict[str, house.Count]:
    """Every count by its name; parsing the package takes seconds, which collecting must not take."""
    return {count.what: count for count in house.counts()}


def test_the_house_is_in_order(counts: dict[str, house.Count]) -> None:
    over = [count for count in counts.values() if count.what != WRITES and count.figure > count.bound]
    assert not over, "\n".join(f"{count.what}: {line}" for count in over for line in count.offenders)


def test_nothing_else_writes_to_the_environment(counts: dict[str, house.Count]) -> None:
    places = {place.partition(":")[0] for place in counts[WRITES].offenders}
    assert places == set(MAY_WRITE)
