"""The counts of tools/house.py stay within their bounds: what makes a package hard to find one's way in."""

from __future__ import annotations

import pytest
from tools import house

pytestmark = pytest.mark.xdist_group("house")  # one process makes what they share


@pytest.fixture(scope="session")
def counts() -> dict[str, house.Count]:
    """Every count by its name; parsing the package takes seconds, which collecting must not take."""
    return {count.what: count for count in house.counts()}


def test_the_house_is_in_order(counts: dict[str, house.Count]) -> None:
    over = [count for count in counts.values() if count.figure > count.bound]
    assert not over, "\n".join(f"{count.what}: {line}" for count in over for line in count.offenders)


@pytest.mark.parametrize(
    ("what", "argued"),
    [("writes to os.environ", house.MAY_WRITE_ENVIRONMENT), ("mutable module state", house.MAY_CHANGE)],
)
def test_what_the_house_allows_has_a_reason(
    counts: dict[str, house.Count], what: str, argued: dict[str, str]
) -> None:
    places = {place.partition(":")[0] for place in counts[what].offenders}
    assert places == set(argued)
