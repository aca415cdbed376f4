"""One number sets every time-out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.elastic.config import ElasticConfig
from weft.elastic.timing import Timing
from weft.errors import UsageError


@given(st.floats(0.4, 3600))
def test_the_ladder_rises(detect_within: float) -> None:
    timing = Timing(detect_within)
    assert timing.look_s < timing.beat_s < timing.retry_s < timing.silence_s < timing.broken_s < detect_within
    assert timing.stuck_s(0.0) == detect_within
    assert timing.stuck_s(detect_within) == 3 * detect_within


@pytest.mark.parametrize("detect_within", [0.0, 0.1, -1.0, 4000.0, float("nan")])
def test_what_cannot_be_kept_is_refused(detect_within: float) -> None:
    with pytest.raises(UsageError, match="detect_within must be between"):
        Timing(detect_within)


@pytest.mark.parametrize(("least", "most"), [(3, 2), (0, 2), (-1, 1)])
def test_more_at_least_than_at_most_is_refused(least: int, most: int) -> None:
    with pytest.raises(UsageError, match="1 <= MIN <= MAX"):
        ElasticConfig(least=least, most=most)
