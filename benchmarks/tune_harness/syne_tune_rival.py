"""Syne Tune's ASHA, which stops trials, on our curves and a simulated clock; its own Python runs it, it prints JSON."""

from __future__ import annotations

import heapq
import json
import sys
from datetime import datetime
from typing import Any

from syne_tune.backend.trial_status import Trial  # type: ignore[import-not-found]
from syne_tune.config_space import lograndint, loguniform, uniform  # type: ignore[import-not-found]
from syne_tune.optimizer.baselines import ASHA  # type: ignore[import-not-found]

from weft.tune.runners.simulated import CrossingCurves

MOST = 81
START_S = 0.1


def main(seed: int, workers: int, most_s: float) -> None:
    curves = CrossingCurves(seed)
    space: dict[str, Any] = {
        "lr": loguniform(1e-4, 1e-1),
        "width": lograndint(16, 256),
        "decay": uniform(0, 1),
    }
    scheduler: Any = ASHA(
        {**space, "epochs": MOST},
        metric="loss",
        time_attr="epoch",
        max_t=MOST,
        grace_period=1,
        reduction_factor=3,
        do_minimize=True,
        random_seed=seed,
    )
    heap: list[tuple[float, int, int]] = []
    trials: dict[int, Any] = {}
    done: dict[int, int] = {}
    ended: list[tuple[float, dict[str, Any]]] = []
    now = busy = 0.0
    running = 0

    def fill() -> None:
        nonlocal running
        while running < workers:
            suggestion = scheduler.suggest()
            if suggestion is None:
                return
            if getattr(suggestion, "spawn_new_trial_id", True):
                number = len(trials)
                trials[number] = Trial(
                    trial_id=number, config=suggestion.config, creation_time=datetime.now()
                )
                scheduler.on_trial_add(trials[number])
            else:
                number = int(suggestion.checkpoint_trial_id)
            step = done.get(number, 0) + 1
            heapq.heappush(heap, (now + START_S + curves.step_s(trials[number].config), number, step))
            running += 1

    fill()
    while heap:
        moment, number, step = heapq.heappop(heap)
        if moment > most_s:
            busy += (most_s - now) * running
            now = most_s
            break
        busy += (moment - now) * running
        now = moment
        trial = trials[number]
        done[number] = step
        loss = curves(trial.config, step)
        result = {"loss": loss, "epoch": step}
        decision = scheduler.on_trial_result(trial, result)
        if step >= MOST:
            scheduler.on_trial_complete(trial, result)
            ended.append((loss, trial.config))
            running -= 1
        elif str(decision).upper().endswith(("STOP", "PAUSE")):
            running -= 1
        else:
            heapq.heappush(heap, (now + curves.step_s(trial.config), number, step + 1))
        fill()
    best = min(ended, key=lambda one: one[0])[1] if ended else None
    kept = None if best is None else {name: float(best[name]) for name in ("lr", "width", "decay")}
    print(json.dumps({"best": kept, "busy": busy / (now * workers), "trials": len(trials)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
