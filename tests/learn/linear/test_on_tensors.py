"""Fits by torch, as on an accelerator, on this machine's cores: the models are those of the fits by Numba."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.linear_model import ElasticNet as SkElasticNet
from sklearn.linear_model import LogisticRegression as SkLogisticRegression
from sklearn.svm import LinearSVC as SkLinearSVC
from tests.learn.data import classes, hinge_objective, numbers, wide

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


@pytest.mark.parametrize("scaling", [1.0, 5.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_hinge_loss(intercept: bool, scaling: float) -> None:
    X, y = classes()
    weights = np.random.default_rng(1).random(len(y))
    weights[:9] = 0
    settings: dict[str, Any] = {"C": 0.3, "fit_intercept": intercept, "intercept_scaling": scaling}
    model = learn.LinearSVC(loss="hinge", tol=1e-7, max_iter=10**6, **settings)
    alike(model, X, y, sample_weight=weights)
    if scaling == 1.0 and intercept:
        rival = SkLinearSVC(loss="hinge", tol=1e-9, max_iter=10**6, **settings).fit(X, y)
        ours = learn.LinearSVC(loss="hinge", tol=1e-5, device=THERE, **settings).fit(X, y)
        best, value = (hinge_objective(model, X, y, C=0.3, power=1) for model in (rival, ours))
        assert value <= best * (1 + 1e-5)
        assert ours.history_[-1].objective == pytest.approx(value, rel=1e-6)


def test_hinge_loss_of_several_classes_and_sparse_tables() -> None:
    X, y = classes(count=3)
    model = learn.LinearSVC(loss="hinge", C=0.1, tol=1e-5, max_iter=10**6)
    alike(model, X, y, digits=2e-2)
    alike(model, sparse.csr_matrix(X), y, digits=2e-2)
    X, y = wide(300, 1500)
    there = learn.LinearSVC(loss="hinge", tol=1e-3, device=THERE).fit(X, y)
    here = learn.LinearSVC(loss="hinge", tol=1e-6).fit(X, y)
    best, value = (hinge_objective(model, X, y, C=1.0, power=1) for model in (here, there))
    assert value <= best * (1 + 1e-3)


@pytest.mark.parametrize("ratio", [1.0, 0.4])
@pytest.mark.parametrize("count", [2, 3])
def test_l1_logistic_regression(count: int, ratio: float) -> None:
    X, y = classes(columns=12, count=count)
    model = alike(learn.LogisticRegression(l1_ratio=ratio, C=0.05, tol=1e-9), X + 50, y)
    assert ratio < 1 or (model.coef_ == 0).any()
    alike(learn.LogisticRegression(l1_ratio=ratio, C=0.05, tol=1e-9), sparse.csr_matrix(X), y)
    if count == 2:
        options = {"C": 0.05, "l1_ratio": ratio, "solver": "saga", "tol": 1e-9, "max_iter": 10**5}
        rival = SkLogisticRegression(**options).fit(X, y)
        ours = learn.LogisticRegression(C=0.05, l1_ratio=ratio, tol=1e-8, device=THERE).fit(X, y)
        assert_allclose(ours.coef_, rival.coef_, atol=1e-4)


def test_l1_support_vectors() -> None:
    X, y = classes(columns=12)
    model = alike(learn.LinearSVC(penalty="l1", C=0.02, tol=1e-8), X, y)
    assert (model.coef_ == 0).any()


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_lasso_and_elastic_net(ratio: float, positive: bool) -> None:
    X, y = numbers(columns=20)
    settings: dict[str, Any] = {"alpha": 0.1, "l1_ratio": ratio, "positive": positive}
    weights = np.random.default_rng(1).random(len(y))
    model = learn.ElasticNet(tol=1e-10, **settings)
    alike(model, X + 7, y, digits=1e-5, sample_weight=weights)
    alike(model, sparse.csr_matrix(X), np.column_stack([y, -y]), digits=1e-5)
    rival = SkElasticNet(tol=1e-12, max_iter=10**6, **settings).fit(X, y)
    ours = learn.ElasticNet(tol=1e-10, device=THERE, **settings).fit(X, y)
    assert_allclose(ours.coef_, rival.coef_, atol=1e-6)
    assert_allclose(ours.intercept_, rival.intercept_, atol=1e-6)
    assert ours.dual_gap_ <= 1e-9


def test_lasso_of_many_columns_of_float32() -> None:
    X, y = numbers(2000, 600)
    X = X.astype(np.float32)
    there = alike(learn.Lasso(0.05, tol=1e-5), X, y.astype(np.float32))
    assert there.coef_.dtype == np.float32
    again = learn.Lasso(0.05, tol=1e-5, warm_start=True, device=THERE).fit(X, y)
    cold = len(again.history_)
    assert len(again.fit(X, y).history_) < cold
    alike(learn.Lasso(0.05, tol=1e-5), X, y.astype(np.float32), memory="2MB")


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


@pytest.mark.parametrize("tol", [1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("device", ["cpu", THERE])
def test_least_squares_of_a_wide_table_close_the_gap(device: str, tol: float) -> None:
    X, y = wide()
    model = learn.Ridge(tol=tol, device=device).fit(X, y.astype(float))
    assert model.solver_ == "cg"
    assert model.history_[-1].gap <= tol


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


def test_rows_on_disk_stream(tmp_path: Path, own_cache: None) -> None:
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
        learn.LogisticRegression(device=THERE, solver="dual"),
        learn.LinearSVC(device=THERE, dual=True),
        learn.Ridge(device=THERE, positive=True),
    ):
        with pytest.raises((UsageError, ValueError), match="a fit on an accelerator must"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="device must be None, 'cpu', 'cuda' or 'cuda:N', got 'tpu'"):
        learn.Ridge(device="tpu").fit(X, y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator")
def test_no_accelerator_is_told() -> None:
    X, y = classes()
    with pytest.raises(UsageError, match="must find a GPU that torch can use, got none"):
        learn.LogisticRegression(device="cuda").fit(X, y)
