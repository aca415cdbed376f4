"""A search with scikit-learn's interface: `SearchCV(estimator, space).fit(X, y)` for weft.learn and any estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection._search import BaseSearchCV

from weft.tune.study.study import Study


class SearchCV(BaseSearchCV):  # type: ignore[misc]  # scikit-learn has no types
    """Cross-validated search over a space, by any of the searches of `weft.tune`.

    `space` maps names of parameters to domains or their text, `{"C": "log:1e-3:1e3"}`. `trials` points are tried,
    `batch` of them at a time, each by cross-validation in `n_jobs` processes. All else is as in RandomizedSearchCV:
    `best_params_`, `best_estimator_`, `cv_results_`; `study_` is the study.
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        space: Mapping[str, Any],
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
        random_state: int = 0,
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

    def _run_search(self, evaluate_candidates: Callable[..., Mapping[str, Any]]) -> None:
        name = self.refit if isinstance(self.refit, str) else "score"
        study = Study(
            self.space,
            maximize="score",
            search=self.search,
            seed=self.random_state,
            budget={"trials": self.trials},
        )
        self.study_ = study
        done = 0
        while done < self.trials:
            asked = [study.ask() for _ in range(min(self.batch, self.trials - done))]
            results = evaluate_candidates([trial.params for trial in asked])
            for trial, score in zip(asked, results[f"mean_test_{name}"][done:], strict=True):
                if np.isfinite(score):
                    study.tell(trial, float(score))
                else:
                    study.tell(trial, failed="its fits failed")
            done += len(asked)
