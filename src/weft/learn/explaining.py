"""The coefficients of a linear model by name, with standard errors, and the features of trees by importance.

    print(coefficients(model, X, y))

Standard errors come from one more pass over the rows. An L2 penalty biases the solution towards zero: errors then
measure its variation from sample to sample around the biased value, not its distance from the true one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse, stats
from sklearn.utils.validation import check_is_fitted

from weft.learn import inputs
from weft.learn.linear.base import LinearClassifier, LinearModel
from weft.learn.linear.least_squares import LinearRegression, Ridge
from weft.learn.linear.logistic import LogisticRegression
from weft.learn.solvers.losses import Logistic, Multinomial, Squared
from weft.learn.solvers.problem import Problem
from weft.learn.tables.source import is_source, open_source
from weft.learn.tables.tables import table_of
from weft.learn.threads import thread_count, thread_team

Array = np.ndarray[Any, Any]

WIDEST = 5000  # unknowns up to which the matrix of second derivatives is cheap to invert
INTERCEPT = "intercept"


class Coefficient(NamedTuple):
    """One coefficient with its standard error, test and 95 % interval; unknown values are NaN."""

    name: str
    output: Any  # the class, or the number of the target; None where there is only one output
    value: float
    error: float = np.nan
    statistic: float = np.nan  # value / error
    p: float = (
        np.nan
    )  # two-sided: the probability of a value at least as far from zero if the true one were zero
    low: float = np.nan  # lower end of the 95 % confidence interval
    high: float = np.nan  # its upper end


class Coefficients(list[Coefficient]):
    """The coefficients of a model: `print` shows a table, and `pandas.DataFrame` takes the list."""

    def __str__(self) -> str:
        wide = max(len(str(one.name)) for one in self)
        outputs = [str(one.output) for one in self if one.output is not None]
        side = max(map(len, outputs), default=0)
        known = any(not np.isnan(one.error) for one in self)
        head = ["value", *(["error", "z or t", "p", "2.5 %", "97.5 %"] if known else [])]
        lines = [" " * (wide + side + bool(side)) + "".join(f"{name:>12}" for name in head)]
        for one in self:
            numbers = [one.value, *([one.error, one.statistic, one.p, one.low, one.high] if known else [])]
            first = f"{one.output!s:{side}} " if side else ""
            lines.append(f"{first}{one.name!s:{wide}}" + "".join(f"{number:12.5g}" for number in numbers))
        return "\n".join(lines)


class Importance(NamedTuple):
    """The importance of a feature: the share of its cuts in the gain of all cuts."""

    name: str
    share: float


def explained(model: Any, X: Any = None, y: Any = None) -> list[Coefficient] | list[Importance]:
    """Return the coefficients of a linear model, or the features of trees, the most important first."""
    if isinstance(model, LinearModel):
        return coefficients(model, X, y)
    check_is_fitted(model)
    if not hasattr(model, "feature_importances_"):
        raise TypeError(f"a model must be one of weft.learn, got {type(model).__name__}")
    found = map(Importance, _names(model), map(float, model.feature_importances_))
    return sorted(found, key=lambda one: -one.share)


@dataclass(frozen=True)
class _Errors:
    """Standard errors and degrees of freedom of a model's coefficients."""

    values: Array  # (columns and intercept, outputs)
    freedom: float | None  # of a t distribution; None: a normal distribution


def coefficients(model: Any, X: Any = None, y: Any = None, sample_weight: Any = None) -> Coefficients:
    """Return the coefficients of a fitted linear model; given the rows of the fit, with standard errors.

    X may be a path, and y the name of its target. Errors are defined for `LinearRegression`, `Ridge`, and
    `LogisticRegression` without an L1 penalty.
    """
    check_is_fitted(model)
    if not isinstance(model, LinearModel):
        raise TypeError(
            f"the model must be linear to have coefficients, got {type(model).__name__}; "
            "trees have feature_importances_ and export_text"
        )
    coef = model.coef_.toarray() if sparse.issparse(model.coef_) else np.asarray(model.coef_)
    w = np.atleast_2d(coef).astype(np.float64)
    intercept = bool(getattr(model, "fit_intercept", True))
    values = (
        np.column_stack([w, np.broadcast_to(np.atleast_1d(model.intercept_), len(w))]) if intercept else w
    )
    errors = None if X is None else _errors(model, X, y, sample_weight)
    names = [*_names(model), *([INTERCEPT] if intercept else [])]
    outputs = _outputs(model, len(w))
    return Coefficients(
        _row(name, output, values[k, j], errors, j, k)
        for k, output in enumerate(outputs)
        for j, name in enumerate(names)
    )


def _row(name: str, output: Any, value: float, errors: _Errors | None, j: int, k: int) -> Coefficient:
    if errors is None:
        return Coefficient(name, output, float(value))
    error = float(errors.values[j, k])
    if not error > 0:
        return Coefficient(name, output, float(value), error)
    law = stats.norm if errors.freedom is None else stats.t(errors.freedom)
    reach = float(law.ppf(0.975)) * error
    ratio = float(value) / error
    p = 2 * float(law.sf(abs(ratio)))
    return Coefficient(
        name, output, float(value), error, ratio, p, float(value) - reach, float(value) + reach
    )


def _names(model: Any) -> list[str]:
    known = getattr(model, "feature_names_in_", None)
    return (
        [str(name) for name in known] if known is not None else [f"x{i}" for i in range(model.n_features_in_)]
    )


def _outputs(model: Any, count: int) -> list[Any]:
    if count == 1:
        return [None]
    return list(model.classes_) if isinstance(model, LinearClassifier) else list(range(count))


def _errors(model: Any, X: Any, y: Any, sample_weight: Any) -> _Errors:
    if y is None:
        raise ValueError("y must come with X for standard errors, got y=None")
    logistic = isinstance(model, LogisticRegression)
    if not (logistic or isinstance(model, LinearRegression | Ridge)) or getattr(model, "positive", False):
        raise ValueError(
            "standard errors must be of LinearRegression, Ridge or LogisticRegression, with coefficients that are "
            f"free, got {type(model).__name__}; leave X out for coefficients alone"
        )
    if is_source(X):
        X, y = _stored(model, X, y)
    else:
        X, y = inputs.checked_table(model, X, y, multi_output=not logistic, reset=False)
    weights = inputs.checked_weights(sample_weight, X)
    if (X.shape[1] + 1) * len(np.atleast_2d(model.coef_)) > WIDEST:
        raise ValueError(
            f"standard errors must be of at most {WIDEST} coefficients, got {X.shape[1]} columns; choose some"
        )
    return _logistic(model, X, y, weights) if logistic else _squares(model, X, y, weights)


def _stored(model: Any, X: Any, y: Any) -> tuple[Array, Array]:
    """Return the rows of a table on disk and their target, in float64."""
    table = open_source(X, y)
    columns = list(table.description.columns)
    if columns != _names(model):
        raise ValueError(f"the table must have the columns {_names(model)}, got {columns}")
    return np.asarray(table.features(), np.float64), table.target()


def _logistic(model: LogisticRegression, X: Any, y: Array, weights: Array) -> _Errors:
    l1, l2 = model._penalties()
    if l1 > 0:
        raise ValueError("standard errors must be of a model without an L1 penalty, got l1_ratio above 0")
    codes = np.searchsorted(model.classes_, y)
    weights = inputs.with_class_weights(weights, model.class_weight, model.classes_, codes)
    table = table_of(X, centred=False)
    found = []
    with thread_team(thread_count(model.n_jobs, table.stored)) as team:
        for output, (loss, target) in enumerate(model._problems(codes, X.dtype)):
            problem = Problem(
                table, target, weights.astype(X.dtype), loss, 0.0, model.fit_intercept, team, fine=False
            )
            found.append(_spread(problem, model, output, l2))
    return _Errors(np.hstack(found), None)


def _spread(problem: Problem, model: LogisticRegression, output: int, l2: float) -> Array:
    """Return standard errors (unknowns, outputs): the diagonal of H⁻¹ I H⁻¹, rooted.

    I is the information of the rows (second derivatives of the loss), H = I + the penalty.
    """
    loss = problem.loss
    mine = slice(None) if isinstance(loss, Multinomial) else slice(output, output + 1)
    w = np.asarray(model.coef_, np.float64)[mine].T
    b = np.asarray(model.intercept_, np.float64)[mine]
    point = np.concatenate([w.ravel(), b]) if problem.intercept else w.ravel()
    information = problem.whole_hessian(point)
    penalty = np.full(len(point), l2)
    penalty[w.size :] = 0.0
    # Softmax depends on differences of outputs alone: H is singular along their common direction.
    inverse = (
        np.linalg.inv(information + np.diag(penalty))
        if isinstance(loss, Logistic)
        else np.linalg.pinv(information + np.diag(penalty), hermitian=True)
    )
    spread = inverse @ information @ inverse
    errors: Array = np.sqrt(np.maximum(spread.diagonal(), 0)).reshape(-1, loss.outputs)
    return errors


def _squares(model: Any, X: Any, y: Array, weights: Array) -> _Errors:
    """Return standard errors by σ² H⁻¹ XᵀX H⁻¹, H = XᵀX + alpha; σ² is the squared residual per degree of freedom.

    A weight counts as that many rows.
    """
    targets = y.reshape(len(y), -1).astype(np.float64)
    left = targets - (X @ np.atleast_2d(model.coef_).T + model.intercept_)
    table = table_of(X, centred=False)
    with thread_team(thread_count(model.n_jobs, table.stored)) as team:
        problem = Problem(
            table, targets[:, 0], weights.astype(X.dtype), Squared(), 0.0, model.fit_intercept, team
        )
        information = problem.whole_hessian(np.zeros(problem.size))
    alphas = model._alphas(targets.shape[1]) if isinstance(model, Ridge) else np.zeros(targets.shape[1])
    errors = np.empty((len(information), targets.shape[1]))
    freedom = np.inf
    for k, alpha in enumerate(alphas):
        penalty = np.full(len(information), alpha)
        penalty[table.columns :] = 0.0
        inverse = np.linalg.inv(information + np.diag(penalty))
        used = float(np.trace(inverse @ information))
        freedom = min(freedom, max(float(weights.sum()) - used, 1e-300))
        sigma = float(weights @ left[:, k] ** 2) / max(float(weights.sum()) - used, 1e-300)
        errors[:, k] = np.sqrt(np.maximum(sigma * (inverse @ information @ inverse).diagonal(), 0))
    return _Errors(errors, freedom)
