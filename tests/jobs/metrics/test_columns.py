from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.jobs.metrics.columns import ChunkError, Columns, join, pack, unpack
from weft.jobs.metrics.levels import buckets_of, coarsen, next_level, thin

NUMBERS = st.integers(-(2**63), 2**63 - 1)
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS, st.floats(width=64)), max_size=60)


@given(POINTS)
def test_points_are_the_same_after_packing(points: list[tuple[int, int, float]]) -> None:
    columns = Columns.of(points)
    again = unpack(pack(columns))
    assert again.steps.tolist() == columns.steps.tolist()
    assert again.times_ms.tolist() == columns.times_ms.tolist()
    np.testing.assert_array_equal(again.values, columns.values)


def test_a_typical_curve_takes_few_bytes_a_point() -> None:
    rng = np.random.default_rng(0)
    steps = np.arange(4096)
    curve = Columns(
        steps, 1_700_000_000_000 + 100 * steps + rng.integers(0, 9, 4096), np.exp(-steps / 1e3).round(4)
    )
    assert len(pack(curve)) < 10 * len(curve)


@pytest.mark.parametrize(
    "data", [b"", b"\x01", pack(Columns.of([(1, 2, 3.0)]))[:-1], b"\x02\0\0\0\0", b"\x01\x09\0\0\0"]
)
def test_damaged_chunks_are_refused(data: bytes) -> None:
    with pytest.raises(ChunkError, match="must"):
        unpack(data)


@given(st.lists(POINTS, max_size=4))
def test_joined_columns_have_all_points_in_order(parts: list[list[tuple[int, int, float]]]) -> None:
    whole = join([Columns.of(part) for part in parts] or [Columns.of([])])
    assert whole.steps.tolist() == [point[0] for part in parts for point in part]


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**12), st.floats(width=64)),
        min_size=1,
        max_size=300,
    ),
    st.integers(1, 50),
    st.booleans(),
)
def test_thinning_loses_no_spike(points: list[tuple[int, int, float]], most: int, ordered: bool) -> None:
    columns = Columns.of(sorted(points, key=lambda point: point[0]) if ordered else points)
    for buckets in (thin(buckets_of(columns), most), thin(next_level(buckets_of(columns)), most)):
        assert len(buckets) <= most
        assert int(buckets.count.sum()) == len(columns)
        known = columns.values[~np.isnan(columns.values)]
        if len(known):
            assert np.nanmin(buckets.low) == known.min()
            assert np.nanmax(buckets.high) == known.max()
        else:
            assert np.isnan(buckets.low).all()


def test_means_are_of_the_finite_values() -> None:
    columns = Columns.of([(0, 0, 1.0), (1, 0, math.inf), (2, 0, 3.0), (3, 0, math.nan)])
    whole = coarsen(buckets_of(columns), np.array([0]))
    assert whole.mean.tolist() == [2.0]
    assert (whole.low[0], whole.high[0]) == (1.0, math.inf)
    assert (whole.first_step[0], whole.last_step[0], whole.count[0]) == (0, 3, 4)


def test_levels_of_levels_equal_one_coarse_level() -> None:
    rng = np.random.default_rng(1)
    columns = Columns(np.arange(10_000), np.arange(10_000), rng.normal(size=10_000))
    twice = next_level(next_level(buckets_of(columns)))
    once = coarsen(buckets_of(columns), np.arange(0, 10_000, 64 * 64))
    np.testing.assert_array_equal(twice.low, once.low)
    np.testing.assert_array_equal(twice.last_step, once.last_step)
    np.testing.assert_allclose(twice.mean, once.mean)
