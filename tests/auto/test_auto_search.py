"""Decisions of the search: splits, losses, the next family, the blend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from weft.auto.columns import Task
from weft.auto.families.spaces import FAMILIES
from weft.auto.folder import ModelTrial
from weft.auto.search.ensemble import best_power, blended, greedy_weights, sharpened
from weft.auto.search.trials import Suggestions, hopeless, next_family
from weft.auto.validation import auc_of, loss_of, split_rows
from weft.errors import DataError

CLASSES = Task("y", "log_loss", (0, 1))
NUMBERS = Task("y", "rmse", None)


def trial(number: int, family: str, loss: float | None, seconds: float = 1.0) -> ModelTrial:
    params = dict(FAMILIES[family].first)
    return ModelTrial(
        number, family, params, "completed" if loss else "failed", loss, (loss or 0,), seconds=seconds
    )


def test_held_out_rows_are_in_no_fold() -> None:
    target = np.random.default_rng(0).integers(0, 2, 500)
    splits = split_rows(target, CLASSES, time=None, group=None, seed=0)
    assert set(splits.search) | set(splits.held) == set(range(500))
    assert not set(splits.search) & set(splits.held)
    assert sorted(splits.judged) == list(range(len(splits.search)))
    for fold in splits.folds:
        assert not set(fold.train) & set(fold.test)


def test_by_time_the_future_judges_the_past() -> None:
    random = np.random.default_rng(0)
    time = random.permutation(300).astype(float)
    splits = split_rows(random.normal(size=300), NUMBERS, time=time, group=None, seed=0)
    assert time[splits.search].max() < time[splits.held].min()
    for fold in splits.folds:
        assert time[splits.search][fold.train].max() < time[splits.search][fold.test].min()


def test_by_group_no_group_is_on_both_sides() -> None:
    random = np.random.default_rng(0)
    group = random.integers(0, 40, 400).astype(str)
    splits = split_rows(random.normal(size=400), NUMBERS, time=None, group=group, seed=0)
    assert not set(group[splits.search]) & set(group[splits.held])
    for fold in splits.folds:
        inside = group[splits.search]
        assert not set(inside[fold.train]) & set(inside[fold.test])
    with pytest.raises(DataError, match="--group must have at least 10 groups, got 2"):
        split_rows(random.normal(size=400), NUMBERS, time=None, group=group > "3", seed=0)


def test_time_must_be_known_and_leave_every_class() -> None:
    time = np.arange(100.0)
    with pytest.raises(DataError, match="must leave rows of every class to train on, got none of 1"):
        split_rows((time > 60).astype(int), CLASSES, time=time, group=None, seed=0)
    time[3] = np.nan
    with pytest.raises(DataError, match="--time must be known in every row, got 1 rows without"):
        split_rows(np.zeros(100), NUMBERS, time=time, group=None, seed=0)


def test_losses_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    target = random.integers(0, 2, 200)
    score = np.round(random.random(200), 1)  # with ties
    shares = np.column_stack([1 - score * 0.98 - 0.01, score * 0.98 + 0.01])
    assert auc_of(target, score) == pytest.approx(roc_auc_score(target, score))
    assert loss_of("log_loss", target, shares) == pytest.approx(log_loss(target, shares))
    assert loss_of("accuracy", target, shares) == pytest.approx(np.mean((shares[:, 1] > 0.5) != target))


def test_every_family_is_tried_and_the_best_gets_the_most_time() -> None:
    families = [FAMILIES[name] for name in ("linear", "boosting", "forest")]
    trials: list[ModelTrial] = []
    losses = {"linear": 0.9, "boosting": 0.5, "forest": 0.7}
    for number in range(40):
        chosen = next_family(trials, families)
        assert chosen is not None
        trials.append(trial(number, chosen.name, losses[chosen.name]))
    counts = {name: sum(one.family == name for one in trials) for name in losses}
    assert [one.family for one in trials[:3]] == ["linear", "boosting", "forest"]
    assert counts["boosting"] > counts["forest"] > counts["linear"] > 1


def test_a_small_space_is_done_at_some_point() -> None:
    linear = FAMILIES["linear"]
    trials = [trial(number, "linear", 0.5) for number in range(linear.most)]
    assert next_family(trials, [linear]) is None
    assert next_family(trials[:-1], [linear]) is linear


def test_bad_first_folds_end_a_trial() -> None:
    assert hopeless([2.0], [1.0, 1.1])
    assert not hopeless([1.1], [1.0, 1.1])
    assert not hopeless([2.0, 2.0], [1.0, 1.1])
    assert not hopeless([2.0], [])


def test_the_blend_is_never_worse_than_the_best_model() -> None:
    random = np.random.default_rng(0)
    target = random.normal(size=500)
    predicted = {n: (target + random.normal(size=500))[:, None] for n in range(5)}
    predicted[5] = random.normal(size=(500, 1)) * 5
    weights = greedy_weights(predicted, target, "rmse")
    best = min(loss_of("rmse", target, one) for one in predicted.values())
    assert sum(weights.values()) == pytest.approx(1)
    assert 5 not in weights
    assert loss_of("rmse", target, blended(predicted, weights)) < 0.7 * best  # errors are independent


def test_a_blend_becomes_as_sure_as_it_can_be() -> None:
    random = np.random.default_rng(0)
    target = random.integers(0, 3, 2000)
    right = np.where(np.eye(3)[target] == 1, 0.8, 0.1)
    told = sharpened(random.permutation(right), 1.0)  # labels are drawn by these shares
    target = np.array([random.choice(3, p=one) for one in told])
    for power in (0.5, 2.0):
        unsure = sharpened(told, 1 / power)
        assert best_power(unsure, target) == pytest.approx(power, rel=0.15)
        assert loss_of("log_loss", target, sharpened(unsure, power)) == pytest.approx(
            loss_of("log_loss", target, told)
        )
    assert best_power(told, target) == pytest.approx(1.0, rel=0.1)
    assert best_power(told[:50], target[:50]) == 1.0  # too few to tell


def test_suggestions_go_on_from_finished_trials() -> None:
    """A study that is made again from trials has seen them: it suggests what the one that ran them would."""
    whole = Suggestions([], seed=3)
    done: list[ModelTrial] = []
    for number in range(4):
        params = whole.next("boosting", number)
        done.append(ModelTrial(number, "boosting", params, "completed", 1.0 + number, (1.0,), seconds=1.0))
        whole.take(done[-1])
    assert done[0].params == FAMILIES["boosting"].first
    points: list[Any] = [tuple(one.params.values()) for one in done]
    again = tuple(Suggestions(done, seed=3).next("boosting", 4).values())
    assert len(set(points)) == 4
    assert again not in points
