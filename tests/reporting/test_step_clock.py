"""Times of steps that a worker of a job reports by itself."""

from __future__ import annotations

from weft.reporting.names import STEP_METRIC
from weft.reporting.reporter import Reporter
from weft.reporting.steps import LEAST_S, StepClock


class Optimizer:
    """Anything that steps."""


def test_steps_of_the_first_optimizer_are_timed_and_short_ones_together() -> None:
    told: list[tuple[dict[str, float], int]] = []
    now = [0.0]
    clock = StepClock(lambda values, step: told.append((values, step)), lambda: now[0])
    mine, other = Optimizer(), Optimizer()
    clock.stepped(mine)
    for pause_s in (0.1, 0.3):
        now[0] += pause_s
        clock.stepped(mine)
        clock.stepped(other)
    assert [(round(values[STEP_METRIC], 6), step) for values, step in told] == [(0.1, 1), (0.3, 2)]
    for _ in range(4):
        now[0] += LEAST_S / 3.9
        clock.stepped(mine)
    assert len(told) == 3
    assert abs(told[2][0][STEP_METRIC] - LEAST_S / 3.9) < 1e-9
    assert told[2][1] == 6
    del mine
    now[0] += 60.0
    clock.stepped(other)  # the pause between two optimizers is no step
    now[0] += 0.2
    clock.stepped(other)
    assert round(told[3][0][STEP_METRIC], 6) == 0.2


def test_a_script_that_logs_its_steps_knows_better() -> None:
    reporter = Reporter()
    reporter._start = lambda: None  # type: ignore[method-assign]  # nothing is written here
    reporter.note_step({STEP_METRIC: 0.1}, 1)
    reporter.log({STEP_METRIC: 0.2}, None)
    reporter.note_step({STEP_METRIC: 0.3}, 2)
    assert [(step, values) for _, step, values in reporter._entries] == [
        (1, {STEP_METRIC: 0.1}),
        (0, {STEP_METRIC: 0.2}),  # its own count is not disturbed
    ]
