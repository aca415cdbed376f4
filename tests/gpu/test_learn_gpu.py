"""Linear models on an accelerator: the same as on this machine's cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.learn.data import classes, numbers, wide

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "squared"])
@pytest.mark.parametrize("shape", [(1, 1), (1000, 100), (513, 16), (3000, 129), (50, 2048)])
def test_one_read_is_as_good_as_two(loss: str, shape: tuple[int, int]) -> None:
    from weft.learn.gpu.fused import fused_pass
    from weft.learn.gpu.losses import TensorLoss

    rows, columns = shape
    X = torch.randn(rows, columns, device="cuda")
    w, weights = torch.randn(columns + 1, device="cuda"), torch.rand(rows, device="cuda")
    y = torch.where(torch.rand(rows, device="cuda") < 0.5, 1.0, -1.0)
    margins = X.double() @ w[:-1].double() + w[-1].double()
    value, slope = TensorLoss(loss).value_and_slope(margins, y.double(), weights.double())
    want = torch.cat([X.double().T @ slope, slope.sum()[None], value[None]])
    for table in (X, X.T.contiguous().T):
        got = fused_pass(table, w, y, weights, loss)
        assert float((got - want).norm() / want.norm()) < 1e-5
        assert torch.equal(got, fused_pass(table, w, y, weights, loss))


def test_dense_fits() -> None:
    from weft import learn

    X, y = classes(40_000, 30)
    X = X.astype(np.float32)
    here = learn.LogisticRegression(tol=1e-6).fit(X, y)
    there = learn.LogisticRegression(tol=1e-6, device="cuda").fit(X, y)
    assert_allclose(there.coef_, here.coef_, atol=2e-3)
    on_it = torch.from_numpy(X).cuda()
    taken = learn.LogisticRegression(tol=1e-6).fit(on_it, torch.from_numpy(y).cuda())
    assert_allclose(taken.coef_, there.coef_, atol=2e-3)
    assert_allclose(taken.predict_proba(on_it), here.predict_proba(X), atol=2e-3)
    X, y = numbers(5000)
    assert_allclose(
        learn.Ridge(device="cuda").fit(X, y).coef_, learn.Ridge().fit(X, y).coef_, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("locked", [True, False])
def test_rows_stream_from_the_host(locked: bool) -> None:
    from weft import learn

    X, y = classes(60_000, 20)
    X = X.astype(np.float32)
    X.flags.writeable = locked  # what cannot be locked in place goes by way of buffers
    here = learn.LogisticRegression(tol=1e-6, device="cuda").fit(X, y)
    streamed = learn.LogisticRegression(tol=1e-6, device="cuda").fit(X, y, memory="1MB")
    assert_allclose(streamed.coef_, here.coef_, atol=2e-3)


def test_sparse_fits_and_arrays_of_others() -> None:
    from weft import learn

    X, y = wide()
    here = learn.LogisticRegression(tol=1e-7).fit(X, y)
    there = learn.LogisticRegression(tol=1e-7, device="cuda").fit(X, y)
    assert_allclose(there.coef_, here.coef_, atol=5e-3 * np.abs(here.coef_).max())
    cupy: Any = pytest.importorskip("cupy")
    X, y = classes()
    taken = learn.LinearSVC(tol=1e-8).fit(cupy.asarray(X), cupy.asarray(y))
    assert_allclose(taken.coef_, learn.LinearSVC(tol=1e-8).fit(X, y).coef_, atol=1e-3)
