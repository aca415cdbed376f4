"""Decisions about the time of a run: rows, seconds of trials, what is kept for the end, and fits that end in time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.auto.data import import_family

from weft.auto.columns import ColumnRole, Task
from weft.auto.families.fitting import Deadline, FitRequest, Judges, fit_model
from weft.auto.families.own import trees_in_time
from weft.auto.families.spaces import FAMILIES
from weft.auto.folder import ModelTrial
from weft.auto.frames import read_table
from weft.auto.running import fit
from weft.auto.search import budget
from weft.auto.search.trials import (
    SearchData,
    TrialLimits,
    comparable,
    folds_in_common,
    may_shorten,
    next_family,
    run_trial,
)
from weft.auto.validation import Fold, Splits, loss_of, some_places

NUMBERS = Task("y", "rmse", None)
CLASSES = Task("y", "log_loss", ("a", "b"))


def trial(number: int, family: str, loss: float | None, seconds: float = 1.0, folds: int = 5) -> ModelTrial:
    state = "completed" if loss is not None else "pruned"
    losses = (loss or 0.0,) * folds
    return ModelTrial(number, family, dict(FAMILIES[family].first), state, loss, losses, seconds=seconds)


def test_small_tables_are_searched_whole_and_large_ones_in_part() -> None:
    assert budget.search_rows(1_000, 20, 1, 15) == 1_000
    assert budget.search_rows(1_000_000, 20, 1, 45) == 45_000
    assert budget.search_rows(1_000_000, 20, 1, 36_000) == 1_000_000
    assert budget.search_rows(1_000_000, 500, 10, 1) == budget.FEWEST_SEARCH_ROWS


def test_first_trials_share_the_time() -> None:
    assert budget.first_trial_s(10, 1) == 10
    assert budget.first_trial_s(10, 6) == pytest.approx(2.5)


def test_reserves_follow_measured_fits_within_half_of_the_budget() -> None:
    assert budget.reserve_s((), 1, 100) == pytest.approx(12)
    one = trial(0, "boosting", 0.5, seconds=20.0)
    assert budget.fit_s(one, 1.25) == pytest.approx(5)
    assert budget.reserve_s([one], 1.25, 100) == pytest.approx(1.1 * 5 * 2.25 + 5)
    assert budget.reserve_s([one] * 4, 20, 100) == 50
    measured = replace(
        one, fit_s=6.0
    )  # folds that ran at the same time are slower than their share of the trial
    assert budget.fit_s(measured, 1.25) == pytest.approx(7.5)
    assert budget.reserve_s([measured] * 2, 1.25, 100, cores=2) == pytest.approx(1.1 * 7.5 * 2.25 + 5)


def test_final_models_fit_the_time_that_is_left() -> None:
    weights = {3: 0.5, 1: 0.3, 2: 0.2}
    whole = budget.final_plan(weights, {1: 1.0, 2: 1.0, 3: 1.0}, 100)
    assert (whole.weights, whole.rows_share) == (weights, 1.0)
    fewer = budget.final_plan(weights, {1: 30.0, 2: 5.0, 3: 10.0}, 40)
    assert fewer.weights == pytest.approx({3: 0.5 / 0.7, 2: 0.2 / 0.7})
    alone = budget.final_plan(weights, dict.fromkeys(weights, 100.0), 20)
    assert alone.weights == {3: 1.0}
    assert alone.rows_share == pytest.approx(0.1)
    late = budget.final_plan(weights, dict.fromkeys(weights, 100.0), -5)
    assert late.weights == {3: 1.0}
    assert late.rows_share == pytest.approx(0.02)
    assert budget.fits_again(4, 1.25, 10)
    assert not budget.fits_again(4, 1.25, 5)


def test_slow_models_are_left_out_unless_the_others_are_worse() -> None:
    slow, quick, poor = trial(0, "boosting", 0.5), trial(1, "lightgbm", 0.52), trial(2, "linear", 0.9)
    costs = {0: 30.0, 1: 1.0, 2: 0.1}
    assert budget.affordable([slow, quick, poor], costs, 5) == [quick, poor]
    assert budget.affordable([slow, quick, poor], costs, 50) == [slow, quick, poor]
    assert budget.affordable([slow, quick, poor], costs, 0.5) == [slow, quick, poor]
    assert budget.affordable([], {}, 5) == []


def test_fits_on_all_cores_take_as_long_as_the_longest_or_their_share() -> None:
    assert budget.together_s([3.0, 1.0], 2) == 3.0
    assert budget.together_s([3.0, 2.0, 3.0], 2) == 4.0
    assert budget.together_s([], 2) == 0.0
    plan = budget.final_plan({1: 0.5, 2: 0.5}, {1: 4.0, 2: 4.0}, 10, cores=2)
    assert plan.weights == {1: 0.5, 2: 0.5}
    assert budget.final_plan({1: 0.5, 2: 0.5}, {1: 4.0, 2: 4.0}, 10, cores=1).weights == {1: 1.0}


def test_explanations_shrink_to_the_time() -> None:
    assert budget.explain_sizes(10, 1e-6, 1e-4, 10) == budget.ExplainSizes()
    small = budget.explain_sizes(100, 1e-2, 1e-2, 1)
    assert small.asked_rows(100) < budget.ExplainSizes().asked_rows(100) / 5
    assert small.orders >= 4
    assert small.orders % 2 == 0


def test_families_that_are_too_slow_are_passed_over() -> None:
    families = [FAMILIES[name] for name in ("linear", "boosting", "catboost")]
    done = [trial(0, "linear", 0.9, 2.0), trial(1, "boosting", 0.5, 4.0), trial(2, "catboost", None, 9.0)]
    for left_s, name in ((20.0, "boosting"), (3.0, "linear")):
        chosen = next_family(done, families, left_s)
        assert chosen is not None
        assert chosen.name == name
    assert next_family(done, families, 0.05) is None
    assert next_family(done[:2], families, 3.0) is families[0]  # no time for the first trial of another
    assert next_family(done[:2], families, 5.0) is families[2]


def test_there_is_a_first_trial_however_late_it_is() -> None:
    families = [FAMILIES[name] for name in ("linear", "boosting")]
    assert next_family([], families, -3.0) is families[0]
    failed = trial(0, "linear", None)
    assert next_family([failed], families, -3.0) is families[1]
    assert next_family([failed, trial(1, "boosting", None)], families, -3.0) is None


def test_a_run_whose_time_is_over_at_once_still_makes_a_model() -> None:
    x = np.random.default_rng(0).normal(size=200)
    table = {"x": x, "y": 2 * x}
    model = fit(table, "y", minutes=0.0001, models=("linear",))
    assert [row.name for row in model.leaderboard][:2] == ["ensemble", "linear 0"]


def test_slow_first_trees_set_the_number_of_folds() -> None:
    linear, slow = trial(0, "linear", 0.9), trial(1, "boosting", 0.5, folds=2)
    assert folds_in_common([], 5) == 5
    assert may_shorten([linear])
    assert not may_shorten([linear, slow])
    assert folds_in_common([linear, slow, trial(2, "forest", None, folds=1)], 5) == 2


def test_slow_trials_are_set_aside_where_quicker_ones_are_as_good() -> None:
    slow, quick = trial(0, "boosting", 0.5, folds=1), trial(1, "lightgbm", 0.505)
    assert folds_in_common([slow, quick], 5) == 5
    assert folds_in_common([slow, replace(quick, loss=0.6, fold_losses=(0.6,) * 5)], 5) == 1
    middle = trial(2, "forest", 0.5, folds=3)
    assert folds_in_common([slow, middle, trial(3, "linear", 0.9)], 5) == 3


def test_trials_with_fewer_folds_than_those_in_common_are_not_compared() -> None:
    data, first = search_data(), FAMILIES["boosting"].first
    slow = run_trial(data, 0, "boosting", first, limits=TrialLimits(-1.0, shorten=True))
    whole = run_trial(data, 1, "boosting", first)
    assert (len(slow.fold_losses), len(whole.fold_losses)) == (1, 3)
    assert [one.number for one in comparable([slow, whole], data)] == [1]


def test_a_trial_is_judged_by_more_folds_than_needed_while_there_is_time() -> None:
    data, first = search_data(), FAMILIES["linear"].first
    hasty = run_trial(data, 0, "linear", first, limits=TrialLimits(folds=1, more_s=-1.0))
    assert (hasty.state, len(hasty.fold_losses)) == ("completed", 1)
    assert len(run_trial(data, 1, "linear", first, limits=TrialLimits(folds=1)).fold_losses) == 3


def search_data(rows: int = 90) -> SearchData:
    random = np.random.default_rng(0)
    table = read_table({"x": random.normal(size=rows), "z": random.normal(size=rows)})
    target = table.values("x") * 2 + random.normal(size=rows) / 9
    parts = np.array_split(np.arange(rows), 3)
    folds = tuple(Fold(np.setdiff1d(np.arange(rows), part), part) for part in parts)
    roles = [ColumnRole(name, "number", "number", rows, 0.0, "") for name in ("x", "z")]
    return SearchData(table, target, roles, NUMBERS, Splits(np.arange(rows), np.arange(0), folds, ""), 0)


def test_a_trial_whose_time_is_over_ends_early() -> None:
    data, over = search_data(), TrialLimits(until_s=-1.0)
    first = FAMILIES["boosting"].first
    late = run_trial(data, 1, "boosting", first, limits=over)
    assert (late.state, late.loss) == ("pruned", None)
    assert late.why.startswith("too slow")
    kept = run_trial(data, 1, "boosting", first, limits=TrialLimits(-1.0, shorten=True))
    assert (kept.state, len(kept.fold_losses)) == ("completed", 1)  # one round is a model
    whole = run_trial(data, 0, "linear", {**FAMILIES["linear"].first, "penalty": 1e9})  # as good as none
    assert len(whole.fold_losses) == 3
    both = comparable([whole, kept], data)
    assert [len(one.predicted) for one in both if one.predicted is not None] == [30, 30]
    assert both[0].loss == pytest.approx(whole.fold_losses[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("family", ["boosting", "forest", "network", "lightgbm", "xgboost", "catboost"])
def test_fits_end_at_the_deadline(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import_family(family, monkeypatch)
    random = np.random.default_rng(0)
    rows = random.normal(size=(200, 3))
    target = rows[:, 0] + random.normal(size=200)
    first = FAMILIES[family].first
    for judges in (None, Judges(rows, target)):
        rounds = None if judges else 300
        asked = FitRequest(
            first, rows, target, NUMBERS, judges=judges, rounds=rounds, deadline=Deadline(-1.0)
        )
        model, _ = fit_model(family, asked)
        assert model.cut
        assert np.isfinite(model.predict(rows)).all()
    model, _ = fit_model(family, FitRequest(first, rows, target, NUMBERS, rounds=3))
    assert not model.cut


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("family", ["boosting", "lightgbm"])
def test_a_boosting_ends_where_a_column_tells_all(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import_family(family, monkeypatch)
    rows = np.random.default_rng(0).normal(size=(400, 2))
    for task, target in ((CLASSES, (rows[:, 0] > 0).astype(int)), (NUMBERS, np.sign(rows[:, 0]) * 1e6)):
        judges = Judges(rows[:100], target[:100])
        asked = FitRequest(FAMILIES[family].first, rows[100:], target[100:], task, judges=judges)
        model, predicted = fit_model(family, asked)
        assert model.rounds is not None
        assert model.rounds < 700
        assert predicted is not None
        assert loss_of(task.metric, judges.target, predicted) < 5e-2 * max(1.0, np.abs(target).max())


def test_forests_have_the_trees_that_the_time_allows() -> None:
    assert trees_in_time(100, 1.0, math.inf) == 100
    assert trees_in_time(100, 1.0, 2.0) == 26
    assert trees_in_time(100, 1.0, -3.0) == 10


def test_samples_keep_rare_classes() -> None:
    target = np.zeros(10_000, int)
    target[:50] = 1
    places = some_places(target, CLASSES, 500, 0)
    assert (target[places] == 1).sum() == 50
    assert 500 <= len(places) <= 600
    assert (np.diff(places) > 0).all()
    assert len(some_places(target, CLASSES, 20_000, 0)) == 10_000


def test_thinned_splits_keep_sides_apart() -> None:
    folds = (Fold(np.arange(10, 20), np.arange(10)), Fold(np.arange(10), np.arange(10, 20)))
    whole = Splits(np.arange(100, 120), np.arange(100), folds, "how")
    thin = whole.thinned(np.array([1, 3, 12]))
    assert thin.search.tolist() == [101, 103, 112]
    assert [(fold.train.tolist(), fold.test.tolist()) for fold in thin.folds] == [
        ([2], [0, 1]),
        ([0, 1], [2]),
    ]
