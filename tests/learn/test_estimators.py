"""Every check that scikit-learn has for an estimator, on each of ours; none fails that its own twin passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import weft.learn

ENSEMBLES = ("RandomForestClassifier", "RandomForestRegressor")
RANKER = "GradientBoostingRanker"  # scikit-learn has no such kind: rows are judged within queries
BOOSTED = ("GradientBoostingClassifier", "GradientBoostingRegressor")


def made(name: str) -> Any:
    """One of our estimators, with few trees where there are many: the checks fit hundreds of times, few rows each."""
    kind = getattr(weft.learn, name)
    if name in BOOSTED:
        return kind(n_estimators=5, min_samples_leaf=1)
    return kind(n_estimators=5) if name in ENSEMBLES else kind()


def expected_failures(estimator: Any) -> dict[str, str]:
    """What scikit-learn expects of its own twin."""
    name = type(estimator).__name__
    if name not in ENSEMBLES:
        return {}
    return {
        f"check_sample_weight_equivalence_on_{form}_data": "rows are drawn, not weighted"
        for form in ("dense", "sparse")
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [made(name) for name in weft.learn.__all__ if name[0].isupper() and name != RANKER],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_is_content(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_every_name_is_there() -> None:
    assert set(weft.learn.__all__) <= set(dir(weft.learn))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = weft.learn.nothing
