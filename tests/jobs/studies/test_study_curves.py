"""Curves of a study's page: whoever asks for what is new has the same curves as one who asks for all."""

from __future__ import annotations

import random

import pytest

from weft.jobs.studies.states import MOST_LENGTHS, SeenStudy, StudyStates
from weft.tune.results.views import MOST_POINTS, TrialView, trial_view
from weft.tune.study.config import convert_config
from weft.tune.study.core import StudyCore
from weft.tune.study.events import AnyEvent

TRIALS = 3
CONFIG = {
    "space": {"x": "float:0:1"},
    "minimize": "loss",
    "search": "random",
    "budget": {"trials": TRIALS},
    "parallel": TRIALS,
}


class Viewer:
    """Somebody who keeps curves and asks for what is new."""

    def __init__(self) -> None:
        self.events, self.points = 0, 0
        self.curves: dict[int, list[tuple[int, float | str]]] = {}

    def look(self, seen: SeenStudy) -> None:
        for trial in seen.state:
            if seen.changed[trial.number] <= self.events:
                continue
            known = seen.known_reports(trial.number, self.events)
            view: TrialView = trial_view(seen.state, trial, curve=True, known=known)
            kept = self.curves.get(trial.number, [])[: view.curve_from]
            assert len(kept) == view.curve_from
            self.points += len(view.curve)
            self.curves[trial.number] = [*kept, *view.curve]
        self.events = seen.events


@pytest.mark.parametrize("seed", range(5))
def test_tails_make_the_same_curves_as_a_look_at_all(seed: int) -> None:
    draw, made = random.Random(seed), list[AnyEvent]()
    core, states = StudyCore.begin(convert_config(CONFIG), made.extend), StudyStates()
    core.actions(TRIALS)
    viewers, taken = [Viewer() for _ in range(3)], 0
    for _ in range(400):
        trial = core.state.trials[draw.randrange(TRIALS)]
        first = trial.step + 1 if draw.random() < 0.98 else draw.randint(0, trial.step + 1)
        steps = list(range(first, first + draw.choice((1, 1, 5, 20)), draw.choice((1, 1, 2))))
        core.reported_many(trial.number, steps, [draw.choice((draw.random(), float("nan"))) for _ in steps])
        seen = states.take(1, taken, made[taken:])
        taken = len(made)
        for rarely, viewer in enumerate(viewers):
            if draw.random() < 0.5**rarely:
                viewer.look(seen)
                assert viewer.curves == {
                    one.number: list(trial_view(seen.state, one, curve=True).curve) for one in seen.state
                }
    assert max(len(curve) for curve in viewers[0].curves.values()) <= MOST_POINTS + 1
    assert all(len(one.lengths) <= 2 * MOST_LENGTHS for one in seen.curves.values())


def test_a_look_at_a_curve_that_grows_costs_what_is_new() -> None:
    made = list[AnyEvent]()
    core, states, viewer = StudyCore.begin(convert_config(CONFIG), made.extend), StudyStates(), Viewer()
    core.actions(TRIALS)
    taken = 0
    for step in range(1, 1001):
        core.reported(0, step, {"loss": 1 / step})
        seen = states.take(1, taken, made[taken:])
        taken = len(made)
        viewer.look(seen)
    assert viewer.points < 4 * 1000  # all of a curve each time would be more than 100,000
