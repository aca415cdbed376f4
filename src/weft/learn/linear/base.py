"""Base classes of linear models: predictions from `coef_` and `intercept_`, and the attributes that a fit sets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from weft.learn import inputs
from weft.learn.gpu.place import home_of
from weft.learn.solvers.history import Progress
from weft.learn.solvers.solution import FitResult, Solution

Array = np.ndarray[Any, Any]


class LinearModel(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A model whose prediction is X @ coef_.T + intercept_."""

    tol: float
    coef_: Any
    intercept_: Any
    n_iter_: Any
    history_: list[Progress]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _margins(self, X: Any) -> Array:
        """Return X @ coef_.T + intercept_; a table on an accelerator is multiplied there."""
        if inputs.are_plain_rows(self, X) and isinstance(self.coef_, np.ndarray):
            return np.asarray(X @ self.coef_.T + self.intercept_)
        check_is_fitted(self)
        if home_of(X) is not None:
            from weft.learn.gpu.fits import margins_on

            return margins_on(self, X)
        X = validate_data(self, X, accept_sparse="csr", reset=False, dtype=[np.float64, np.float32])
        margins: Array = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        return margins

    def _finish(self, result: FitResult, max_iter: int) -> Self:
        """Set the fitted attributes, wherever the fit ran; warn where a solver did not converge."""
        solutions = result.solutions
        w = np.hstack([solution.coef for solution in solutions])
        b = np.concatenate([solution.intercept for solution in solutions])
        self.coef_ = (w[:, 0] if result.flat else w.T).astype(result.dtype)
        self.intercept_ = (b[0] if result.flat else b).astype(result.dtype)
        self.history_ = [step for solution in solutions for step in solution.history.steps]
        self._set_passes(solutions)
        if not all(solution.converged for solution in solutions):
            gap = max(solution.history.gap for solution in solutions)
            warnings.warn(
                f"the gap to the optimum must fall to tol={self.tol:g}, got {gap:.2g} after max_iter={max_iter}; "
                "raise max_iter or tol, or scale the features",
                ConvergenceWarning,
                stacklevel=4,  # the caller of `fit`, which has a decorator
            )
        return self

    def _set_passes(self, solutions: Sequence[Solution]) -> None:
        """Set `n_iter_`, and what else an estimator tells about its solver."""
        self.n_iter_ = np.array([solution.passes for solution in solutions], np.int32)


class LinearClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """A linear classifier: `coef_` has one row for two classes, and one row for each of several classes."""

    classes_: Array

    def decision_function(self, X: Any) -> Array:
        """Return the margins: (rows,) for two classes, (rows, classes) for several."""
        margins = self._margins(X)
        return margins.ravel() if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> Array:
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: Array = self.classes_[codes]
        return labels

    def densify(self) -> Self:
        """Make `coef_` a dense array again."""
        check_is_fitted(self)
        if sparse.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self

    def sparsify(self) -> Self:
        """Make `coef_` a sparse matrix: smaller and faster where an L1 penalty left most coefficients at zero."""
        check_is_fitted(self)
        self.coef_ = sparse.csr_matrix(self.coef_)
        return self


def probabilities(margins: Array, *, multinomial: bool) -> Array:
    """Return class probabilities (rows, classes) from margins: (rows,) for two classes, (rows, classes) for several.

    `multinomial` takes the softmax; models of one class against the rest are scaled to add up to 1.
    """
    if margins.ndim == 1:
        second = expit(margins)
        return np.column_stack([1 - second, second])
    if multinomial:
        shares: Array = softmax(margins, axis=1)
        return shares
    shares = expit(margins)
    totals = shares.sum(axis=1, keepdims=True)
    # Far from the data every class may have a probability of zero: then all are equally likely.
    return np.where(totals > 0, shares / np.where(totals > 0, totals, 1), 1 / shares.shape[1])
