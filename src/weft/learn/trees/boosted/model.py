"""The base of both kinds of boosting: checking, rounds, when to stop, predictions."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from math import ceil
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from weft.learn import inputs
from weft.learn.tables.sizes import share_out
from weft.learn.tables.source import is_source
from weft.learn.threads import ThreadTeam, thread_count, thread_team
from weft.learn.trees.boosted.constraints import constraints_of
from weft.learn.trees.boosted.ensemble import (
    BoostedTree,
    as_regressor,
    boosted_trees,
    importances,
    predictors,
)
from weft.learn.trees.boosted.losses import (
    BoostingLoss,
)
from weft.learn.trees.boosted.moving import add_coded_round, align, can_be_coded
from weft.learn.trees.boosted.rate import LEAST, automatic_rate, mean_weight
from weft.learn.trees.boosted.rounds import RoundSettings, Rows, boosting_round
from weft.learn.trees.boosted.statistics import (
    NO_STATISTICS,
    TargetStatistics,
    large_columns,
    ordered_statistics,
)
from weft.learn.trees.decision_tree import count_features
from weft.learn.trees.growth.binning import MOST, Codes, code_table, find_bins
from weft.learn.trees.growth.categories import Categories, check_codes, find_categories
from weft.learn.trees.growth.grown import Grown
from weft.learn.trees.growth.rules import Constraints
from weft.learn.trees.growth.stored import StoredCodes, code_sparse_table, is_sparse_enough
from weft.learn.trees.packed import PackedCache
from weft.learn.workers.group import current_workers, shared_seed, sum_over_workers
from weft.learn.workers.joint_fit import joint_fit, refuse_workers, solving

Array = np.ndarray[Any, Any]
ENDLESS = 1 << 30


class GradientBoosting(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The base of both kinds of boosting."""

    trees_: list[list[BoostedTree]]  # of each round, one for each output
    start_: Array
    train_score_: Array
    validation_loss_: Array  # where there were held-out rows
    _loss: BoostingLoss
    _categories: Categories
    _statistics: TargetStatistics = NO_STATISTICS

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    @joint_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        monitor: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        memory: str | int | None = None,
    ) -> Self:
        """Fit trees to rows X (dense, sparse or a frame) and their targets y.

        `monitor(round, self, locals)` is called after every round; the fit ends where it returns True. With
        `n_iter_no_change` a share of the rows, or `X_val` and `y_val`, tell when to stop. X may be a path, a glob or a
        pyarrow dataset, and y its target's name: rows then stay on disk, within `memory`.
        """
        self._check()
        room = None
        if is_source(X):
            X, y = inputs.opened(X, y, memory)
        if is_source(X):
            X, y = inputs.stored_table(self, X, y, memory, missing=True)
            room = share_out(memory, X.shape[1]).codes_bytes
            self._categories = Categories((), {})
        else:
            X, y = self._validated(X, y)
        weights = inputs.checked_weights(sample_weight, X)
        y = self._encoded(y, weights)
        random = check_random_state(self.random_state)
        held: Any = None
        given: Any = None
        large = () if sparse.issparse(X) or room else large_columns(X, self._categories)
        self._statistics = NO_STATISTICS
        if large:
            refuse_workers(self, " where a column has more categories than bins")
        if self.n_iter_no_change is not None:
            refuse_workers(self, " where n_iter_no_change tells when to stop")
        if self.n_iter_no_change is not None and X_val is not None:
            given = X_val, y_val, sample_weight_val
        elif self.n_iter_no_change is not None:
            X, y, weights, held = self._held_out(np.asarray(X) if room else X, y, weights)
        if large:
            X = self._with_statistics(X, large, y, weights, random)
            held = held and (self._statistics.applied(held[0]), *held[1:])
        if given is not None:
            held = self._given(*given)
        with thread_team(thread_count(self.n_jobs, X.size)) as team, solving(self):
            self._fit(X, y, weights, held, random, monitor, team, room)
        return self

    def _fit(
        self,
        X: Any,
        y: Array,
        weights: Array,
        held: Any,
        random: np.random.RandomState,
        monitor: Any,
        team: ThreadTeam,
        room: int | None,
    ) -> None:
        settings = self._settings(X, weights)
        codes = self._codes(X, random, team, room, plain=not settings.constraints.any)
        if not (self.warm_start and hasattr(self, "trees_")):
            self.trees_, scores = [], []
            self.start_ = np.zeros(self._loss.outputs) if self.init == "zero" else self._start(y, weights)
        else:
            scores = list(self.train_score_[:-1])  # the last is found again
        if self.n_estimators < len(self.trees_):
            raise ValueError(
                f"n_estimators must be at least {len(self.trees_)}, which a warm start has, got {self.n_estimators}"
            )
        table = X.tocsr() if sparse.issparse(X) else X
        raw = np.asfortranarray(self._raw(table, team))
        tested = None
        if held is not None:
            tested = np.asfortranarray(self._raw(held[0], team))
            dense = isinstance(codes, Codes) and not sparse.issparse(held[0])
            bins: Any = codes.bins
            held = *held, code_table(held[0], bins, team, grouped=True) if dense else None
        if not (self.trees_ and self.learning_rate == "auto" and hasattr(self, "learning_rate_")):
            self.learning_rate_ = self._rate(raw, y, weights)
        settings = replace(settings, rate=self.learning_rate_)
        rows = Rows(codes, y, weights, raw)
        alive = np.flatnonzero(weights > 0).astype(np.int32)
        past: list[float] = []
        if hasattr(self, "validation_loss_"):  # of an earlier fit
            del self.validation_loss_
        waiting: list[list[tuple[Grown, Array]]] = []
        asked = monitor is not None or tested is not None  # for the trees so far
        for done in range(len(self.trees_), self.n_estimators):
            chosen, rest = self._sample(alive, random)
            seed = shared_seed(int(random.randint(1 << 31)))
            now = self._settings_now(settings, random)
            grown, score = boosting_round(rows, chosen, self._loss, now, team, seed=seed)
            if isinstance(codes, Codes) and (len(rest) or tested is not None):
                align(grown, codes)
            waiting.append(grown)
            if asked:
                self._take(waiting, codes)
            scores += [score] if done else []  # that of the round before
            if len(rest):
                self._add_round(grown, codes, table, rest, raw, team)
            stalled = tested is not None and self._stalls(grown, codes, tested, held, past, team)
            if (monitor is not None and monitor(done, self, {"raw": raw, "y": y})) or stalled:
                break
        self._take(waiting, codes)
        if tested is not None:
            self.validation_loss_ = np.array(past)  # after each of these rounds
        self._packed = PackedCache()
        self.train_score_ = np.array([*scores, self._loss.value(raw, y, weights)][: len(self.trees_)])
        self.n_estimators_ = self.n_iter_ = len(self.trees_)

    def first_rounds(self, count: int) -> Self:
        """Return the model as it was after so many rounds; the two share their trees."""
        check_is_fitted(self)
        if not 1 <= inputs.check_count("count", count) <= len(self.trees_):
            raise ValueError(f"count must be between 1 and {len(self.trees_)}, got {count!r}")
        model = copy(self)
        model.trees_, model.train_score_ = self.trees_[:count], self.train_score_[:count]
        model.n_estimators_ = model.n_iter_ = count
        if hasattr(self, "validation_loss_"):
            before = len(self.trees_) - len(self.validation_loss_)  # rounds of earlier fits
            model.validation_loss_ = self.validation_loss_[: max(0, count - before)]
        model._packed = PackedCache()
        return model

    def _take(self, waiting: list[list[tuple[Grown, Array]]], codes: Codes | StoredCodes) -> None:
        """Make the rounds that wait part of the model."""
        each = self._loss.outputs
        flat = [one for grown in waiting for one in grown]
        trees = boosted_trees([grown for grown, _ in flat], codes.bins, [values for _, values in flat])
        self.trees_ += [trees[start : start + each] for start in range(0, len(trees), each)]
        waiting.clear()

    def _with_statistics(
        self, X: Array, large: tuple[int, ...], y: Array, weights: Array, random: np.random.RandomState
    ) -> Array:
        """Put statistics of the target in the place of columns of too many categories."""
        classes = self._loss.outputs
        targets = y[:, None].astype(np.float64) if classes == 1 else np.eye(classes)[y]
        X, self._statistics = ordered_statistics(X, large, targets, weights, random)
        small = tuple(column for column in self._categories.columns if column not in large)
        self._categories = Categories(small, self._categories.known)
        return X

    def _codes(
        self, X: Any, random: np.random.RandomState, team: ThreadTeam, room: int | None, *, plain: bool
    ) -> Codes | StoredCodes:
        """Return the bins of all values; of a sparse table and `plain` trees, of the stored ones alone."""
        if plain and is_sparse_enough(X) and not self._categories.columns and current_workers() is None:
            return code_sparse_table(X, self.max_bins)
        bins = find_bins(X, self.max_bins, random, self._categories.mask(X.shape[1]))
        return code_table(X, bins, team, grouped=True, room=room)

    def _start(self, y: Array, weights: Array) -> Array:
        """Return the best constant; with several workers, from the sums over the rows of all."""
        if current_workers() is None:
            return self._loss.start(y, weights)
        if hasattr(self._loss, "leaf"):
            refuse_workers(self, f" where loss={self.loss!r}")
        if hasattr(self, "classes_"):
            codes = np.arange(len(self.classes_))
            (counts,) = sum_over_workers([np.bincount(y.astype(np.intp), weights, minlength=len(codes))])
            return self._loss.start(codes, counts)
        total, weight = sum_over_workers([float(y @ weights), float(weights.sum())])
        return self._loss.start(np.array([total / weight]), np.ones(1))

    def _sample(self, alive: Array, random: np.random.RandomState) -> tuple[Array, Array]:
        """The rows of one round, and those that take no part in it."""
        if self.subsample >= 1.0:
            return alive, alive[:0]
        count = max(1, int(self.subsample * len(alive)))
        mask = np.zeros(len(alive), bool)
        mask[random.choice(len(alive), count, replace=False)] = True
        return alive[mask], alive[~mask]

    def _add_round(
        self,
        grown: list[tuple[Grown, Array]],
        codes: Codes | StoredCodes,
        X: Any,
        rows: Array,
        raw: Array,
        team: ThreadTeam,
    ) -> None:
        """Move the raw predictions of rows, of a table X with these codes, that took no part in a round."""
        if isinstance(codes, Codes) and can_be_coded(grown, codes):
            add_coded_round(grown, codes, rows, raw, team)
            return
        trees = boosted_trees([one for one, _ in grown], codes.bins, [values for _, values in grown])
        part = np.ascontiguousarray(raw[rows])
        for one in predictors([trees]):
            one.add_to(X[rows], part, team)
        raw[rows] = part

    def _stalls(
        self,
        grown: list[tuple[Grown, Array]],
        codes: Codes | StoredCodes,
        tested: Array,
        held: Any,
        past: list[float],
        team: ThreadTeam,
    ) -> bool:
        """Whether the held-out loss has not improved by `tol` for `n_iter_no_change` rounds."""
        X, y, weights, own = held
        self._add_round(grown, codes if own is None else own, X, np.arange(len(y)), tested, team)
        past.append(self._loss.value(tested, y, weights))
        patience = int(self.n_iter_no_change)
        return len(past) > patience and min(past[-patience:]) + self.tol >= min(past[:-patience])

    def _settings_now(self, settings: RoundSettings, random: np.random.RandomState) -> RoundSettings:
        """Return the settings of the next round; kinds of boosting whose trees differ override this."""
        return settings

    def _given(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Array, Array]:
        """Return the rows to test on that the user brought."""
        X = self._read(X, fitted=False)
        y = np.asarray(y)
        if hasattr(self, "classes_"):
            unknown = set(np.unique(y).tolist()) - set(self.classes_.tolist())
            if unknown:
                raise ValueError(f"y_val must hold classes of y, got {sorted(unknown)}")
            y = np.searchsorted(self.classes_, y)
        return X, y, inputs.checked_weights(sample_weight, X)

    def _held_out(self, X: Any, y: Array, weights: Array) -> tuple[Any, Array, Array, Any]:
        X, test, y, truth, weights, heavy = train_test_split(
            X,
            y,
            weights,
            test_size=self.validation_fraction,
            random_state=self.random_state,
            stratify=y if hasattr(self, "classes_") else None,
        )
        test = test.tocsr() if sparse.issparse(test) else np.ascontiguousarray(test)
        return X, y, weights, (test, truth, heavy)

    def _settings(self, X: Any, weights: Array) -> RoundSettings:
        rows, columns = X.shape
        leaf, split = self.min_samples_leaf, self.min_samples_split
        leaf = leaf if isinstance(leaf, Integral) else ceil(leaf * rows)
        leaf = max(int(leaf), ceil(self.min_weight_fraction_leaf * rows))
        split = split if isinstance(split, Integral) else max(2, ceil(split * rows))
        self.max_features_ = count_features(self.max_features, columns)
        return RoundSettings(
            rate=LEAST,  # until raw predictions tell more, see _rate
            max_depth=ENDLESS if self.max_depth is None else int(self.max_depth),
            min_split=max(int(split), 2 * leaf),
            min_rows=leaf,
            min_gain=float(self.min_impurity_decrease) * float(weights.sum()),
            max_features=self.max_features_,
            max_leaves=self.max_leaf_nodes or 0,
            l2=float(self.l2_regularization) * mean_weight(weights),  # light rows bear a lighter penalty
            constraints=self._constraints(),
        )

    def _rate(self, raw: Array, y: Array, weights: Array) -> float:
        """Return the learning rate: as asked for, or by what the rows tell."""
        if self.learning_rate == "auto":
            return automatic_rate(self._loss, raw, y, weights, int(self.n_estimators))
        return float(self.learning_rate)

    def _constraints(self) -> Constraints:
        """Return what trees must keep to; kinds of boosting without these parameters have none."""
        monotonic = getattr(self, "monotonic_cst", None)
        names, columns = getattr(self, "feature_names_in_", None), self.n_features_in_
        categorical = self._categories.mask(columns)
        categorical[[one.column for one in self._statistics.columns]] = True
        origins = self._statistics.origins(columns)
        interaction = getattr(self, "interaction_cst", None)
        found = constraints_of(monotonic, interaction, columns, names, categorical).of_columns(origins)
        if found.signs is not None and self._loss.outputs > 1:
            raise ValueError(
                f"monotonic_cst must have one output, got {self._loss.outputs} classes; leave it out"
            )
        return found

    def _raw(self, X: Any, team: ThreadTeam | None) -> Array:
        """Raw predictions of validated rows."""
        raw = np.empty((X.shape[0], len(self.start_)))
        raw[:] = self.start_
        if self.trees_:
            cache = getattr(self, "_packed", None) or PackedCache()
            for one in cache.of(self.trees_, lambda: predictors(self.trees_)):
                one.add_to(X, raw, team)
        return raw

    def _read(self, X: Any, *, fitted: bool = True) -> Any:
        """Return a table to predict, checked."""
        if fitted and not self._statistics.columns and inputs.are_plain_rows(self, X):
            return X
        if fitted:
            check_is_fitted(self)
        X = validate_data(
            self,
            self._categories.encoded(X),
            reset=False,
            accept_sparse="csr",
            dtype=[np.float32, np.float64],
            ensure_all_finite="allow-nan",
        )
        return X if sparse.issparse(X) else self._statistics.applied(X)

    def _predict_raw(self, X: Any) -> Array:
        X = self._read(X)
        if X.shape[0] * len(self.trees_) < inputs.FEW:
            return self._raw(X, None)
        with thread_team(thread_count(self.n_jobs, X.size)) as team:
            return self._raw(X, team)

    def _staged_raw(self, X: Any) -> Iterator[Array]:
        X = self._read(X)
        raw = np.empty((X.shape[0], len(self.start_)))
        raw[:] = self.start_
        with thread_team(1) as team:
            for each in self.trees_:
                for one in predictors([each]):
                    one.add_to(X, raw, team)
                yield raw.copy()

    @property
    def feature_importances_(self) -> Array:
        """What each feature's cuts gained, as shares of one."""
        check_is_fitted(self)
        origins = self._statistics.origins(self.n_features_in_)
        shares = importances([tree for each in self.trees_ for tree in each], len(origins))
        return np.bincount(origins, shares, minlength=self.n_features_in_)

    @property
    def estimators_(self) -> Array:
        """The trees as scikit-learn's, (rounds, outputs): to be drawn, or taken elsewhere."""
        check_is_fitted(self)
        if self._statistics.columns:
            raise ValueError(
                "trees must cut numbers only to become scikit-learn's, got statistics of categories; use predict"
            )
        return np.array([[as_regressor(tree, self.n_features_in_) for tree in each] for each in self.trees_])

    def _validated(self, X: Any, y: Any) -> tuple[Any, Array]:
        self._categories = find_categories(X, self.categorical_features)
        X, y = inputs.validated(
            self,
            self._categories.encoded(X),
            y,
            accept_sparse="csc",
            dtype=[np.float32, np.float64],
            ensure_all_finite=False,
            y_numeric=not isinstance(self, ClassifierMixin),
        )
        if not sparse.issparse(X):
            check_codes(X, self._categories.columns)
        return X, y

    def _check(self) -> None:
        if not isinstance(self.learning_rate, str):
            inputs.check_number("learning_rate", self.learning_rate)
        elif self.learning_rate != "auto":
            raise ValueError(
                f"learning_rate must be a number at least 0 or 'auto', got {self.learning_rate!r}"
            )
        inputs.check_count("n_estimators", self.n_estimators, least=1)
        inputs.check_number("l2_regularization", self.l2_regularization)
        inputs.check_number("min_impurity_decrease", self.min_impurity_decrease)
        if self.max_depth is not None:
            inputs.check_count("max_depth", self.max_depth, least=1)
        if not 0 < inputs.check_number("subsample", self.subsample) <= 1:
            raise ValueError(f"subsample must be above 0 and at most 1, got {self.subsample!r}")
        if not 2 <= inputs.check_count("max_bins", self.max_bins) <= MOST:
            raise ValueError(f"max_bins must be between 2 and {MOST}, got {self.max_bins!r}")
        inputs.check_choice("init", self.init, (None, "zero"))
        inputs.check_choice("ccp_alpha", float(self.ccp_alpha), (0.0,))

    def _encoded(self, y: Array, weights: Array) -> Array:
        """Set the loss, and return y in the form that the loss takes."""
        raise NotImplementedError
