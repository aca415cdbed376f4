"""Every check that scikit-learn has for an estimator, on each of ours; none is expected to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import weft.learn


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([getattr(weft.learn, name)() for name in weft.learn.__all__])  # type: ignore[untyped-decorator]
def test_scikit_learn_is_content(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_every_name_is_there() -> None:
    assert set(weft.learn.__all__) <= set(dir(weft.learn))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = weft.learn.nothing
