"""Schedulers on a simulated back end: laws that hold for every seed, and results that do not depend on the order."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft.tune as tune
from weft.tune.runners.simulated import CROSSING_SPACE, CrossingCurves, SimulatedRun, SimulatedStudy
from weft.tune.schedulers.actions import ExtendTrial, PauseTrial, ResumeTrial, StartTrial
from weft.tune.schedulers.halving import bracket_pattern, rungs
from weft.tune.study.config import ResourceRange, StudyError, convert_config
from weft.tune.study.core import StudyCore
from weft.tune.study.events import AnyEvent, TrialCloned, decode_event, encode_event
from weft.tune.study.state import SearchState

NINE = {"min": 1, "max": 9}


def settings_of(**more: Any) -> Any:
    return convert_config(
        {
            "space": CROSSING_SPACE,
            "minimize": "loss",
            "search": "random",
            "schedule": "asha",
            "resource": {"min": 1, "max": 27},
            "budget": {"trials": 40},
            **more,
        }
    )


def simulate(
    config: Any, *, workers: int = 4, order: int | None = None, events: list[AnyEvent] | None = None
) -> SimulatedRun:
    record = None if events is None else events.extend
    core = StudyCore.begin(config, record)
    shuffle = None if order is None else random.Random(order)
    return SimulatedStudy(core, CrossingCurves(config.seed), workers=workers, shuffle=shuffle).run()


def test_rungs_and_brackets() -> None:
    assert rungs(1, 27, 3) == (1, 3, 9, 27)
    assert rungs(1, 20, 3) == (1, 3, 9, 20)
    assert rungs(5, 5, 3) == (5,)
    assert {most: ResourceRange(max=most).first for most in (1, 5, 9, 27, 81, 100, 1000)} == {
        1: 1, 5: 1, 9: 1, 27: 1, 81: 3, 100: 4, 1000: 37,
    }  # fmt: skip
    assert rungs(ResourceRange(max=27).first, 27, 3) == (1, 3, 9, 27)
    assert ResourceRange(min=5, max=27).first == 5
    # Hyperband's own figures for R = 81, eta = 3: 81, 34, 15, 8, 5.
    pattern = bracket_pattern(5, 3)
    assert [pattern.count(bracket) for bracket in range(5)] == [81, 34, 15, 8, 5]


@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**31),
    workers=st.integers(1, 9),
    orders=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    schedule=st.sampled_from(["none", "asha", "hyperband", "pbt", "median"]),
    checkpoints=st.booleans(),
)
def test_a_seed_gives_one_result_however_reports_interleave(
    seed: int, workers: int, orders: tuple[int, int], schedule: str, checkpoints: bool
) -> None:
    config = settings_of(
        seed=seed, schedule=schedule, checkpoints=checkpoints, budget={"trials": 16}, resource=NINE
    )
    one, other = (simulate(config, workers=workers, order=order) for order in orders)
    assert one.started == other.started
    assert [(t.params, t.state, t.steps, t.values) for t in one.state] == [
        (t.params, t.state, t.steps, t.values) for t in other.state
    ]


def test_suggestions_by_tpe_do_not_depend_on_the_order_either() -> None:
    config = settings_of(search="tpe", schedule="hyperband", budget={"trials": 30}, seed=5)
    one, other = simulate(config, order=1), simulate(config, order=2)
    assert [t.params for t in one.state] == [t.params for t in other.state]


@settings(max_examples=8)
@given(seed=st.integers(0, 2**31), workers=st.integers(1, 9), eta=st.sampled_from([2, 3, 4]))
def test_asha_promotes_only_the_best_and_trains_no_step_twice(seed: int, workers: int, eta: int) -> None:
    result = simulate(settings_of(seed=seed, schedule={"name": "asha", "eta": eta}), workers=workers)
    levels = rungs(1, 27, eta)
    assert result.steps == sum(trial.step for trial in result.state)
    assert all(trial.step in levels for trial in result.state)
    for low, high in itertools.pairwise(levels):
        here = [(t.score_at(low), t.number) for t in result.state if t.score_at(low) is not None]
        beyond = {t.number for t in result.state if t.step >= high}
        best = {number for _, number in sorted(here)[: len(here) // eta]}
        assert best <= beyond  # none that deserved to go on was left
        assert len(beyond) <= len(best) * 2 + 2  # some had deserved it when few were there to compare with


def test_asha_needs_far_fewer_steps_than_running_all_for_about_the_same_loss() -> None:
    config = settings_of(budget={"trials": 100}, seed=1)
    asha, every = simulate(config), simulate(settings_of(budget={"trials": 100}, seed=1, schedule="none"))
    assert asha.steps < 0.2 * every.steps
    assert asha.best[-1][1] < every.best[-1][1] + 0.1


def test_slots_are_kept_busy() -> None:
    config = settings_of(budget={"time": 40}, schedule="asha")
    assert simulate(config, workers=30).busy_share > 0.95


def test_a_free_slot_goes_to_a_promotion_before_a_new_trial() -> None:
    core = StudyCore.begin(settings_of(budget={"trials": 9}))
    first = core.actions(3)
    assert [type(one) for one in first] == [ResumeTrial] * 3
    for number, loss in enumerate((0.3, 0.1, 0.2)):
        core.reported(number, 1, {"loss": loss})
    actions = core.scheduler.decide(core.state, 0, 6)
    # Trial 1 is the best third: it goes on without a pause. The two others give their slots to new trials.
    assert actions == [
        PauseTrial(0),
        PauseTrial(2),
        ExtendTrial(1, 3),
        StartTrial(1, 0),
        StartTrial(1, 0),
    ]


def test_population_training_copies_good_weights() -> None:
    events: list[AnyEvent] = []
    config = settings_of(
        schedule={"name": "pbt", "population": 8, "interval": 3}, budget={"trials": 8}, seed=2
    )
    result = simulate(config, workers=8, events=events)
    clones = [one for one in events if type(one).__name__ == "TrialCloned"]
    assert clones
    for one in clones:
        assert one.trial != one.source  # type: ignore[union-attr]
    assert len(result.state.trials) == 8
    assert all(trial.step == 27 for trial in result.state)
    for trial in result.state:
        result.state.space.check_point(trial.params)


@pytest.mark.parametrize(("population", "workers"), [(2, 2), (3, 2), (4, 2), (4, 4), (9, 4)])
def test_in_a_small_population_the_worst_of_those_known_copies_the_best(
    population: int, workers: int
) -> None:
    schedule = {"name": "pbt", "population": population, "interval": 3}
    for seed in range(3):
        events: list[AnyEvent] = []
        config = settings_of(schedule=schedule, budget={"trials": population}, seed=seed)
        simulate(config, workers=workers, events=events)
        looks: dict[int, int] = {}  # by the step, how often a trial copied there
        state = SearchState()
        for event in events:
            if isinstance(event, TrialCloned):
                limit = state.trials[event.trial].until or 0
                scores = {trial.number: trial.score_at(limit) for trial in state}
                known = sorted((s, number) for number, s in scores.items() if s is not None)
                order = [number for _, number in known]
                share = max(1, len(order) // 4)
                assert event.trial in order[-share:]
                assert event.source in order[:share]
                looks[limit] = looks.get(limit, 0) + 1
            state.apply(event)
        assert sum(looks.values()) >= 4, (
            "of eight looks at each trial, the worst copied at half of them at least"
        )


def test_a_state_is_what_its_events_make() -> None:
    events: list[AnyEvent] = []
    result = simulate(settings_of(schedule="hyperband"), events=events)
    again = SearchState.of(events)
    assert [(t.params, t.steps, t.curve, t.state, t.values) for t in again] == [
        (t.params, t.steps, t.curve, t.state, t.values) for t in result.state
    ]


def test_a_study_cut_anywhere_suggests_what_it_would_have() -> None:
    """One trial after the other, cut after each event: the rest is as without the fault."""
    config = settings_of(search="tpe", schedule="none", budget={"trials": 14}, seed=9, resource=NINE)
    events: list[AnyEvent] = []
    simulate(config, workers=1, events=events)
    whole = [one.params for one in events if type(one).__name__ == "TrialAdded"]  # type: ignore[union-attr]
    for cut in range(1, len(events), 61):
        core = StudyCore(SearchState.of(events[:cut]))
        core.interrupted("cut")
        trained = {trial.number: trial.step for trial in core.state}
        simulation = SimulatedStudy(core, CrossingCurves(config.seed), workers=1)
        simulation._trained.update(trained)
        assert [trial.params for trial in simulation.run().state] == whole


def test_divergence_ends_a_trial_and_rules_stop_others() -> None:
    config = settings_of(schedule="none", stop_if=[{"name": "threshold", "above": 2.0, "after": 2}])
    core = StudyCore.begin(config)
    core.actions(3)
    core.reported(0, 1, {"loss": math.nan})
    core.reported(1, 1, {"loss": 5.0})
    core.reported(2, 2, {"loss": 5.0})
    core.actions(0)
    assert [core.state.trials[n].state for n in range(3)] == ["stopped", "running", "stopped"]
    assert "diverged" in core.state.trials[0].message
    assert "above 2" in core.state.trials[2].message


def test_the_median_rule_stops_the_worse_half() -> None:
    result = simulate(
        settings_of(schedule={"name": "median", "after": 3}, budget={"trials": 30}, resource=NINE)
    )
    states: list[str] = [trial.state for trial in result.state]
    assert states.count("stopped") >= 8
    assert states.count("completed") >= 5


@pytest.mark.parametrize(
    ("budget", "about"),
    [
        ({"time": 40}, "its time of 40 s is over"),
        ({"no_better_for": 4}, "nothing better came in 4 trials"),
        ({"gpu_hours": 0.05}, "GPU-hours are used"),
    ],
)
def test_budgets_end_a_study(budget: dict[str, float], about: str) -> None:
    result = simulate(settings_of(schedule="none", budget=budget, gpus=1.0))
    assert result.state.state == "completed"
    assert about in result.state.message
    assert not result.state.in_state("running")


@pytest.mark.parametrize("end", ["stop", "time"])
def test_trials_that_ended_with_their_study_go_on_with_it(end: str) -> None:
    config = settings_of(schedule="none", budget={"trials": 9, "time": 100})
    core = StudyCore.begin(config, at_s=0.0)
    core.actions(2, 1.0)
    core.reported(0, 1, {"loss": 0.5}, at_s=2.0)
    core.actions(0, 3.0)
    if end == "stop":
        core.stop_all(at_s=10.0)
    else:
        core.actions(0, 100.0)
    assert [trial.state for trial in core.state] == ["stopped", "stopped"]
    assert core.state.over == [0, 1]
    if end == "stop":
        core.move("running", at_s=1000.0)
        assert core.state.ran_s(1000.0) == 10.0
    else:
        core.extend({"budget": {"trials": 9, "time": 200}}, at_s=1000.0)
        assert core.state.ran_s(1000.0) == 100.0
    assert [trial.state for trial in core.state] == ["paused", "waiting"]
    assert core.state.over == []
    assert {one.trial for one in core.actions(2, 1001.0) if isinstance(one, ResumeTrial)} == {0, 1}
    assert core.state.state == "running"
    core.completed(0, [0.4], at_s=1002.0)
    assert core.state.over == [0]


@pytest.mark.parametrize(
    ("more", "gpus"),
    [
        ({"gpus": 0.5}, 0.5),
        ({"job": {"resources": {"gpus": 2}}}, 2),
        ({"job": {"workers": "2:4", "resources": {"gpus": 1}}}, 4),
        ({"gpus": 1, "job": {"workers": 3, "resources": {"gpus": 1}}}, 3),
        ({"job": {"workers": "all", "resources": 7}}, 0),
    ],
)
def test_gpus_of_a_trial_are_those_of_its_job(more: dict[str, Any], gpus: float) -> None:
    assert settings_of(**more).trial_gpus == gpus


def test_time_does_not_count_while_nobody_runs_the_study() -> None:
    events: list[AnyEvent] = []
    core = StudyCore.begin(settings_of(budget={"time": 40}), events.extend, at_s=0.0)
    core.actions(1, 1.0)
    core.reported(0, 1, {"loss": 0.5}, at_s=9.0)
    core.interrupted("its process was gone", at_s=5000.0)  # kill -9, and a new process much later
    assert core.state.ran_s(5000.0) == 9.0
    core.pause_all(at_s=5001.0)
    core.move("running", at_s=9001.0)
    assert core.state.ran_s(9002.0) == 11.0
    assert core.actions(1, 9002.0)
    assert SearchState.of(events).ran_s(9002.0) == 11.0


@pytest.mark.parametrize(
    ("more", "must"),
    [
        ({"schedule": "asah"}, "did you mean asha?"),
        ({"schedule": "ashaa", "resource": None}, "did you mean asha?"),
        ({"schedule": {"name": "asha", "eta": 1}}, "eta must be between"),
        ({"schedule": {"name": "asha", "etta": 3}}, "options among eta, brackets"),
        ({"search": "tpee"}, "did you mean tpe?"),
        ({"resource": None}, "no resource"),
        ({"minimize": []}, "minimize or maximize a metric"),
        ({"budget": {"gpu_hours": 1}}, "must have trials with GPUs, got none"),
        ({"maximize": "loss"}, "loss in both"),
        ({"points": [{"lr": 1}]}, "lr must be in"),
        ({"resource": {"min": 9, "max": 3}}, "at most resource.max"),
        ({"minimize": ["loss", "bytes"]}, "must have one metric"),
        ({"budget": {"time": "soon"}}, "budget.time must be a time"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(more: dict[str, Any], must: str) -> None:
    with pytest.raises((StudyError, ValueError), match=must):
        StudyCore.begin(settings_of(**more))


def test_a_study_whose_trials_all_fail_ends_with_the_last_words() -> None:
    core = StudyCore.begin(settings_of(schedule="none", failures=3))
    for action in core.actions(3):
        core.failed(action.trial, "exit code 1; its last lines: no such file")  # type: ignore[union-attr]
    core.actions(3)
    assert core.state.state == "failed"
    assert "no such file" in core.state.message


def test_a_study_of_few_trials_that_all_fail_has_failed() -> None:
    study = tune.Study({"x": "float:0:1"}, minimize="loss")
    with pytest.raises(
        StudyError, match="all of the first 2 trials failed; the last of them: the function must"
    ):
        study.optimize(lambda trial: None, trials=2)
    assert study.state.state == "failed"


def test_a_metric_that_never_comes_is_told_with_those_that_did() -> None:
    core = StudyCore.begin(settings_of(schedule="none"))
    core.actions(1)
    core.reported(0, 1, {"los": 1.0, "accuracy": 0.5})
    core.completed(0)
    assert core.state.state == "failed"
    assert "loss must be reported, got accuracy, los" in core.state.message


def test_reports_that_come_together_make_the_same_state_as_one_by_one() -> None:
    told: list[AnyEvent] = []
    one, many = StudyCore.begin(settings_of()), StudyCore.begin(settings_of(), told.extend)
    for core in (one, many):
        core.actions(1)
    steps, values = [1, 2, 3, 5, 4], [3.0, math.nan, 1.0, 0.5, 0.7]
    for step, value in zip(steps, values, strict=True):
        one.reported(0, step, {"loss": value})
    many.reported_many(0, steps, values)
    assert sum(type(event).__name__ == "TrialCurve" for event in told) == 1
    again = SearchState.of([decode_event(encode_event(event)) for event in told])
    for state in (many.state, again):
        assert state.trials[0].steps == one.state.trials[0].steps == [1, 2, 3, 4, 5]
        assert repr(state.trials[0].curve) == repr(one.state.trials[0].curve)
    count = len(told)
    many.reported_many(0, [1, 3], [3.0, 1.0], fresh=False)  # known already
    assert len(told) == count
