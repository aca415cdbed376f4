"""A search with scikit-learn's interface: `SearchCV(estimator, space).fit(X, y)` for weft.learn and any estimator."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state

from weft.tune.space.candidates import CandidateSpace
from weft.tune.study.config import NoPointsLeft
from weft.tune.study.study import Study
from weft.tune.trial import FunctionTrial

ALL_FAILED = "fits failed"  # in scikit-learn's error about points of which no fit succeeded


class SearchCV(BaseSearchCV):  # type: ignore[misc]  # scikit-learn has no types
    """Cross-validated search over a space, by any of the searches of `weft.tune`.

    `space` maps names of parameters to domains or their text, `{"C": "log:1e-3:1e3"}`, to lists of values of any kind,
    or to distributions of scipy's; a list of such mappings is searched as a whole. `trials` points are tried, fewer
    where a grid has no more, `batch` of them at a time, each by cross-validation in `n_jobs` processes. The search goes
    by the metric that `refit` names, or by the first of several. All else is as in RandomizedSearchCV:
    `best_params_`, `best_estimator_`, `cv_results_`, from which points are left out whose fits all fail. `study_` is
    the study, which holds labels where values are objects.
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        space: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        trials: int = 20,
        search: str | dict[str, Any] = "tpe",
        batch: int = 1,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool | str | Callable[..., int] = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        random_state: Any = 0,
        error_score: float | str = np.nan,
        return_train_score: bool = False,
    ) -> None:
        super().__init__(
            estimator=estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.space = space
        self.trials = trials
        self.search = search
        self.batch = batch
        self.random_state = random_state

    def _run_search(
        self, evaluate_candidates: Callable[..., Mapping[str, Any]], *, callback_ctx: Any = None
    ) -> None:  # the context is of scikit-learn 1.9 and later
        more: dict[str, Any] = {}
        if hasattr(self, "_checked_cv_orig"):
            more["cv"] = _KeptSplits(self._checked_cv_orig)

        if callback_ctx is None:
            self._search(lambda points: evaluate_candidates(points, **more))
            return
        batches = -(-self.trials // self.batch)
        fits = self.trials * self.n_splits_
        whole = _task(self, callback_ctx, "search", fits if batches == 1 else batches, sequential=batches > 1)

        def evaluate(points: list[dict[str, Any]]) -> Mapping[str, Any]:
            if batches == 1:
                return evaluate_candidates(points, **more, callback_ctx=whole)
            part = _task(self, whole, "batch", len(points) * self.n_splits_)
            found = evaluate_candidates(points, **more, callback_ctx=part)
            part.call_on_fit_task_end(estimator=self)
            return found

        self._search(evaluate)
        whole.call_on_fit_task_end(estimator=self)

    def _search(self, evaluate: Callable[[list[dict[str, Any]]], Mapping[str, Any]]) -> None:
        space = CandidateSpace(self.space)
        every = space.size is not None and space.size <= self.trials
        study = self.study_ = Study(
            space.domains,
            maximize="score",
            search="grid" if every else self.search,
            seed=_seed(self.random_state),
            budget={"trials": self.trials},
        )
        tried = judged = 0
        wrong: ValueError | None = None
        while tried < self.trials:
            asked = _ask(study, min(self.batch, self.trials - tried))
            if not asked:
                break
            tried += len(asked)
            try:
                results = evaluate([space.params_of(trial.params) for trial in asked])
            except ValueError as error:
                if ALL_FAILED not in str(error):
                    raise
                wrong = error
                text = f"{len(asked)} points are left out: {str(error).strip()}"
                warnings.warn(text, FitFailedWarning, stacklevel=2)
                for trial in asked:
                    study.tell(trial, failed="its fits failed")
                continue
            for trial, score in zip(asked, results[self._goal(results)][judged:], strict=True):
                if np.isfinite(score):
                    study.tell(trial, float(score))
                else:
                    study.tell(trial, failed="its fits failed")
            judged += len(asked)
        if wrong is not None and not judged:
            raise wrong

    def _goal(self, results: Mapping[str, Any]) -> str:
        """Return the results that the search goes by."""
        named = f"mean_test_{self.refit}" if isinstance(self.refit, str) else "mean_test_score"
        return named if named in results else next(name for name in results if name.startswith("mean_test_"))


def _task(search: Any, above: Any, name: str, most: int, *, sequential: bool = False) -> Any:
    """Return the context of a task that begins, for scikit-learn's callbacks."""
    made = above.subcontext(task_name=name, max_subtasks=most, sequential_subtasks=sequential)
    return made.call_on_fit_task_begin(estimator=search)


class _KeptSplits:
    """The folds of a search, drawn once, so that all points are judged by the same rows."""

    def __init__(self, cv: Any) -> None:
        self._cv = cv
        self._kept: list[Any] | None = None

    def split(self, *data: Any, **more: Any) -> Iterator[Any]:
        """Return the folds as they were drawn first."""
        if self._kept is None:
            self._kept = list(self._cv.split(*data, **more))
        return iter(self._kept)


def _ask(study: Study, count: int) -> list[FunctionTrial]:
    """Return the next trials, fewer where nothing is left to try."""
    found: list[FunctionTrial] = []
    try:
        while len(found) < count:
            found.append(study.ask())
    except NoPointsLeft:
        pass
    return found


def _seed(given: Any) -> int:
    """Return the seed that scikit-learn's `random_state` stands for."""
    if isinstance(given, numbers.Integral):
        return int(given)
    return int(check_random_state(given).randint(2**31))
