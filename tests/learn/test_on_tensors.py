"""Fits by torch, as on an accelerator, on this machine's cores: the models are those of the fits by Numba."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from tests.learn.data import classes, numbers, wide

from weft import learn
from weft.errors import UsageError

torch = pytest.importorskip("torch")
THERE = "cpu:torch"
Array = np.ndarray[Any, Any]


def alike(model: Any, X: Any, y: Any, *, digits: float = 2e-3, memory: Any = None, **more: Any) -> Any:
    """Fit on both, and compare coefficients."""
    here = model.fit(X, y, **more)
    coef, intercept = here.coef_, here.intercept_
    there = type(model)(**{**model.get_params(), "device": THERE}).fit(X, y, memory=memory, **more)
    scale = np.abs(coef).max()
    assert_allclose(there.coef_, coef, atol=digits * scale)
    assert_allclose(there.intercept_, intercept, rtol=digits, atol=digits * scale)
    assert there.history_[-1].gap <= model.tol
    return there


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("multi_class", ["multinomial", "ovr"])
def test_logistic_regression(count: int, multi_class: str) -> None:
    X, y = classes(count=count)
    words = np.array(["alder", "birch", "cedar"])[y]
    model = alike(learn.LogisticRegression(multi_class=multi_class, tol=1e-8), X + 50, words)
    assert list(model.classes_) == sorted(set(words))
    assert model.score(X + 50, words) > 0.5


def test_weights_of_rows_and_classes() -> None:
    X, y = classes()
    weights = np.random.default_rng(1).random(len(y))
    model = learn.LogisticRegression(class_weight="balanced", tol=1e-8)
    alike(model, X, y, sample_weight=weights)
    alike(model.set_params(class_weight={0: 3.0, 1: 1.0}, fit_intercept=False), X, y, sample_weight=weights)


@pytest.mark.parametrize("scaling", [1.0, 5.0])
def test_support_vectors(scaling: float) -> None:
    X, y = classes(count=3)
    alike(learn.LinearSVC(C=0.1, intercept_scaling=scaling, tol=1e-8), X, y)


@pytest.mark.parametrize("outputs", [1, 2])
def test_least_squares(outputs: int) -> None:
    X, y = numbers()
    target = y if outputs == 1 else np.column_stack([y, 2 * y + X[:, 0]])
    alike(learn.LinearRegression(), X + 10, target, digits=1e-6)
    alike(learn.Ridge(alpha=5.0), X, target, digits=1e-6, sample_weight=np.linspace(0, 1, len(X)))


def test_a_sample_guides_tall_tables() -> None:
    X, y = classes(40_000, 30)
    model = alike(learn.LogisticRegression(tol=1e-6), X.astype(np.float32), y)
    assert len(model.history_) <= 6
    assert model.coef_.dtype == np.float32


def test_sparse_tables() -> None:
    X, y = wide()
    there = alike(learn.LogisticRegression(tol=1e-7), X, y, digits=5e-3)
    assert there.n_features_in_ == 5000
    alike(learn.Ridge(tol=1e-10), X, y.astype(float), digits=1e-3)
    narrow = sparse.random_array((4000, 50), density=0.2, format="csr", random_state=0)
    alike(learn.LogisticRegression(tol=1e-7), narrow, y[np.arange(4000) % 2000])


def test_rows_that_do_not_fit_stream() -> None:
    X, y = classes(30_000, 20)
    X = X.astype(np.float32) + 3
    alike(learn.LogisticRegression(tol=1e-6), X, y, memory="500KB")
    alike(learn.Ridge(), X, X[:, 0] * 2, digits=1e-4, memory="500KB")


def test_rows_on_disk_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    X, y = classes(3000, 4)
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(y=y)
    frame.to_parquet(tmp_path / "table.parquet")
    there = learn.LogisticRegression(device=THERE, tol=1e-6)
    there.fit(str(tmp_path / "table.parquet"), "y", memory="2MB")
    here = learn.LogisticRegression(tol=1e-6).fit(X, y)
    assert_allclose(there.coef_, here.coef_, atol=1e-3)
    assert list(there.feature_names_in_) == list("abcd")


def test_tensors_are_taken_as_they_are() -> None:
    X, y = classes()
    model = learn.LogisticRegression(device=THERE, tol=1e-8)
    here = learn.LogisticRegression(tol=1e-8).fit(X, y)
    for table in (torch.from_numpy(X), torch.from_numpy(X.T.copy()).T, torch.from_numpy(X).to_sparse_csr()):
        model.fit(table, torch.from_numpy(y), torch.ones(len(y)))
        assert_allclose(model.coef_, here.coef_, atol=1e-4)
        assert_array_equal(model.classes_, [0, 1])
    whole = torch.arange(12).reshape(6, 2)
    assert learn.Ridge(device=THERE).fit(whole, torch.arange(6.0)).coef_.shape == (2,)


def test_bad_values_are_named() -> None:
    X, y = classes()
    X[17, 3] = np.nan
    model = learn.LogisticRegression(device=THERE)
    with pytest.raises(ValueError, match=r"NaN or infinity: row 17, column 3"):
        model.fit(X, y)
    with pytest.raises(ValueError, match=r"NaN or infinity: row 17, column 3"):
        model.fit(sparse.csr_matrix(X), y)
    with pytest.raises(ValueError, match="got one class"):
        model.fit(X, np.ones(len(y)))
    with pytest.raises(ValueError, match="as many rows, got 300 and 3"):
        model.fit(torch.from_numpy(X), y[:3])
    with pytest.raises(ValueError, match="y contains NaN"):
        learn.Ridge(device=THERE).fit(np.nan_to_num(X), np.full(len(X), np.nan))


def test_what_an_accelerator_cannot_do_is_said() -> None:
    X, y = classes()
    for model in (
        learn.LogisticRegression(device=THERE, l1_ratio=1.0),
        learn.LinearSVC(device=THERE, loss="hinge"),
        learn.Ridge(device=THERE, positive=True),
    ):
        with pytest.raises(ValueError, match="a fit on an accelerator must"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="device must be None, 'cpu', 'cuda' or 'cuda:N', got 'tpu'"):
        learn.Ridge(device="tpu").fit(X, y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator")
def test_no_accelerator_is_told() -> None:
    X, y = classes()
    with pytest.raises(UsageError, match="must find a GPU that torch can use, got none"):
        learn.LogisticRegression(device="cuda").fit(X, y)
