"""Made-up studies of 0, 3 and 1,000 trials, and the answers of the made-up service about them."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from testing.console.world import HOUR_MS, World, now_ms

from weft.jobs.api.types import studies
from weft.jobs.api.types.data import ModelView
from weft.tune.results.importance import ParameterImportance
from weft.tune.results.insights import StudyInsight
from weft.tune.results.interactions import ParameterInteraction
from weft.tune.results.views import StudyView, TrialView
from weft.tune.samplers.simple import random_point
from weft.tune.space.space import SearchSpace
from weft.tune.study.config import StudyConfig, check_command, check_config, convert_config

OPTIMIZERS = ("sgd", "nesterov", "adam", "adamw", "adagrad", "adadelta", "rmsprop", "nadam", "radam", "adafactor",
              "muon")  # fmt: skip
SPACE = {
    "lr": "log:1e-5:1e-1",
    "optimizer": ["adam", "adamw", "sgd"],
    "momentum": "float:0.8:0.99 if optimizer == sgd",
    "width": "int:16:512:log",
    "dropout": "float:0:0.5",
    "batch": "ordered:32,64,128,256",
}
CONFIG: dict[str, Any] = {
    "name": "digits",
    "run": "train.py --lr {lr} --optimizer {optimizer} --momentum {momentum} --width {width} --dropout {dropout} "
    "--batch {batch} --epochs {epochs}",
    "space": SPACE,
    "minimize": "loss",
    "search": "tpe",
    "schedule": "asha",
    "resource": {"name": "epochs", "min": 1, "max": 27},
    "budget": {"trials": 1200, "time": "8h"},
    "parallel": 8,
    "seed": 7,
}
INSIGHTS = (
    StudyInsight(
        rule="edge", severity="warning", text="4 of the best 5 trials have dropout within 5% of its bound 0",
        advice="widen dropout downward", evidence={"near": 4, "of": 5, "bound": 0, "threshold": 0.05}, trials=(12, 41),
    ),
    StudyInsight(
        rule="divergence", severity="warning", advice="narrow lr to log:1e-05:0.0562",
        text="31 of 150 trials diverged to NaN or infinity, all of them with lr from 0.0562 on",
        evidence={"diverged": 31, "ended": 150, "threshold": 0.2},
    ),
    StudyInsight(
        rule="plateau", severity="note", advice="stop here, or widen the space",
        text="the best of the last 20 completed trials is at most 0.1% better than what was known before",
        evidence={"gain": 0.0004, "trials": 20, "threshold": 0.001},
    ),
    StudyInsight(
        rule="no-matter", severity="note", text="batch makes at most 1.2% of the difference between trials",
        advice="fix batch, and search the others", evidence={"importance": 0.006, "threshold": 0.02},
    ),
)  # fmt: skip
IMPORTANCES = tuple(
    ParameterImportance(name=name, share=share, low=low, high=high)
    for name, share, low, high in (
        ("lr", 0.62, 0.55, 0.7), ("width", 0.17, 0.11, 0.22), ("optimizer", 0.12, 0.08, 0.17),
        ("dropout", 0.05, 0.02, 0.08), ("momentum", 0.03, 0.01, 0.06), ("batch", 0.006, 0.0, 0.012),
    )
)  # fmt: skip
INTERACTIONS = tuple(
    ParameterInteraction(first=first, second=second, share=share, low=low, high=high)
    for first, second, share, low, high in (
        ("lr", "optimizer", 0.41, 0.33, 0.52), ("lr", "width", 0.16, 0.09, 0.24),
        ("optimizer", "momentum", 0.08, 0.03, 0.15), ("dropout", "width", 0.02, 0.0, 0.05),
    )
)  # fmt: skip
RUNGS, EPOCH_S, SLOTS = (1, 3, 9, 27), 16.0, 8


@dataclass
class MadeUpStudy:
    """A study whose trials were made by a formula; a message of the stream moves it on."""

    id: int
    config: dict[str, Any]
    state: str = "running"
    begun_ms: int = 0
    trials: dict[int, TrialView] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    number: int = 1  # of events, reports among them

    @property
    def best(self) -> TrialView | None:
        done = [
            t for t in self.trials.values() if t.state == "completed" and isinstance(t.values["loss"], float)
        ]
        return min(done, key=lambda t: float(t.values["loss"] or 0), default=None)

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for trial in self.trials.values():
            found[trial.state] = found.get(trial.state, 0) + 1
        return found

    def view(self) -> StudyView:
        return StudyView(
            name=self.config["name"], state=self.state, message="", metrics={"loss": "minimize"}, search="tpe",
            schedule=str(self.config.get("schedule", "none")), trials=len(self.trials), counts=self.counts,
            best=self.best, begun_ms=self.begun_ms, budget_trials=self.config["budget"].get("trials"),
            gpu_hours=len(self.trials) * 0.031, id=self.id, user="mara", project="vision",
        )  # fmt: skip

    def put(self, trial: TrialView) -> None:
        self.number += 1
        self.trials[trial.number] = trial
        self.changed[trial.number] = self.number

    def told(self, **event: Any) -> None:
        self.number += 1
        self.events.append(event)


def loss_at(params: dict[str, Any], epoch: int, number: int) -> float | str:
    """Return a loss after some epochs: a valley in lr and width, slower for some optimizers, with noise."""
    rate, width = math.log10(params["lr"]), math.log2(params["width"])
    if rate > -1.25 and params["optimizer"] == "sgd" and epoch > 2:
        return "NaN"
    valley = 0.11 * (rate + 2.6) ** 2 + 0.012 * (width - 7.4) ** 2 + 0.25 * (params["dropout"] - 0.18) ** 2
    floor = 0.07 + valley + {"adam": 0.02, "adamw": 0.0, "sgd": 0.05}[params["optimizer"]]
    speed = (0.1 + 0.22 * math.exp(-4 * valley)) * (1 + 0.3 * math.sin(number * 1.7))
    noise = math.sin(number * 12.9898 + epoch * 78.233) * 0.015
    return float(floor + (2.3 - floor) * math.exp(-speed * epoch) + noise)


def make_study(number: int, count: int, jobs: int) -> MadeUpStudy:
    """Return a study of so many trials, run in slots by asynchronous successive halving."""
    rng = random.Random(number)
    began = now_ms() - (2 * HOUR_MS if count > 3 else HOUR_MS // 4)
    study = MadeUpStudy(
        number, CONFIG | {"name": "digits" if count > 3 else f"digits-{count}"}, begun_ms=began
    )
    space, draw = SearchSpace(SPACE), np.random.default_rng(number)
    slots = [(float(began / 1000), slot) for slot in range(SLOTS)]
    waiting: list[tuple[float, int, int]] = []  # when it may be promoted, trial, rung
    made, past = 0, count if count <= 3 else count - SLOTS  # the rest still run

    def add() -> int:
        params: dict[str, Any] = {
            name: value for name, value in random_point(space, draw).items() if value is not None
        }
        study.put(TrialView(number=made, state="waiting", params=params, values={"loss": None}, step=0))
        return made

    while made < past or waiting:
        at, slot = heapq.heappop(slots)
        if waiting and (waiting[0][0] <= at or made >= past):
            _, trial, rung = heapq.heappop(waiting)
        else:
            trial, rung = add(), 0
            made += 1
        end = _run(study, trial, rung, at, rng, jobs)
        if study.trials[trial].state == "paused" and _good(study, trial, rung):
            heapq.heappush(waiting, (end + rng.uniform(0, 120), trial, rung + 1))
        heapq.heappush(slots, (end, slot))
    while made < count:
        _run(study, add(), 0, heapq.heappop(slots)[0], rng, jobs, runs=True)
        made += 1
    return study


def _run(
    study: MadeUpStudy,
    number: int,
    rung: int,
    at_s: float,
    rng: random.Random,
    jobs: int,
    *,
    runs: bool = False,
) -> float:
    """Run a trial up to a rung; return when that ended."""
    trial = study.trials[number]
    until = RUNGS[rung]
    values = [(step, loss_at(trial.params, step, number)) for step in range(trial.step + 1, until + 1)]
    end = at_s + (until - trial.step) * EPOCH_S * rng.uniform(0.8, 1.3)
    study.told(**{"is": "started", "trial": number, "until": until, "at_s": at_s})
    diverged = any(value == "NaN" for _, value in values)
    state = "stopped" if diverged else "completed" if rung == len(RUNGS) - 1 else "paused"
    message = "loss became NaN at epoch 3" if diverged else ""
    if rng.random() < 0.006:
        state, message = "failed", "rank 0: torch.OutOfMemoryError: tried to allocate 2.25 GiB"
    if runs:
        state, message = "running", ""
    elif state == "paused":
        study.told(**{"is": "paused", "trial": number, "at_s": end})
    else:
        study.told(**{"is": "ended", "trial": number, "state": state, "at_s": end})
    over = state in ("completed", "stopped", "failed")
    study.put(
        msgspec.structs.replace(
            trial, state=state, values={"loss": values[-1][1]}, step=until, until=27 if state == "running" else until,
            starts=trial.starts + 1, message=message, begun_ms=trial.begun_ms or int(at_s * 1000),
            ended_ms=int(end * 1000) if over else None, run_s=trial.run_s + end - at_s, job_id=number % jobs + 1,
            curve=(*trial.curve, *values),
        )
    )  # fmt: skip
    return end


def _good(study: MadeUpStudy, number: int, rung: int) -> bool:
    """Return whether a trial is in the best third of those that reached its rung."""
    step = RUNGS[rung]
    there = [trial.curve[step - 1][1] for trial in study.trials.values() if len(trial.curve) >= step]
    reached = [float(value) for value in there if value != "NaN"]
    place = sum(value < float(study.trials[number].curve[step - 1][1]) for value in reached)
    return place < len(reached) / 3


def add_studies(world: World) -> None:
    """Give a world studies of 0, 3 and 1,000 trials, where it has jobs."""
    if world.jobs and not world.studies:
        for number, count in ((1, 0), (2, 3), (3, 1000)):
            world.studies[number] = make_study(number, count, len(world.jobs))


def move_on(world: World, number: int) -> dict[str, Any] | None:
    """Let a running trial of a study report once; return what the stream tells of it."""
    study: MadeUpStudy | None = world.studies.get(number)
    running = (
        [t for t in study.trials.values() if t.state == "running"]
        if study and study.state == "running"
        else []
    )
    if study is None or not running:
        return None
    trial = running[study.number % len(running)]
    step = trial.step + 1
    value = loss_at(trial.params, step, trial.number)
    state = "completed" if step >= 27 else "stopped" if value == "NaN" else "running"
    ended = now_ms() if state != "running" else None
    curve = (*trial.curve, (step, value))
    study.put(
        msgspec.structs.replace(
            trial,
            step=step,
            values={"loss": value},
            curve=curve,
            state=state,
            ended_ms=ended,
            run_s=trial.run_s + 1,
        )
    )
    if state != "running":
        study.told(**{"is": "ended", "trial": trial.number, "state": state, "at_s": now_ms() / 1000})
    best = study.best
    return {
        "topic": f"study:{number}",
        "study": number,
        "state": study.state,
        "events": study.number,
        "trials": len(study.trials),
        "counts": study.counts,
        "best": best and best.values["loss"],
    }


# -- answers --------------------------------------------------------------------------------------------------------


def _study(world: World, request: Request) -> MadeUpStudy:
    found: MadeUpStudy | None = world.studies.get(int(request.path_params["study"]))
    if found is None:
        raise HTTPException(404, "there must be such a study, got none; weft studies lists them")
    return found


def list_studies(world: World, request: Request) -> studies.StudiesAnswer:
    return studies.StudiesAnswer(
        tuple(study.view() for _, study in sorted(world.studies.items(), reverse=True))
    )


def list_algorithms(world: World, request: Request) -> studies.AlgorithmsAnswer:
    from weft.tune.samplers.base import SEARCHERS
    from weft.tune.schedulers.registry import RULES, SCHEDULERS

    return studies.AlgorithmsAnswer(tuple(SEARCHERS), tuple(SCHEDULERS), tuple(RULES), OPTIMIZERS)


def show_study(world: World, request: Request) -> studies.StudyDetail:
    study = _study(world, request)
    many = len(study.trials) > 10
    return studies.StudyDetail(
        study.view(),
        study.config,
        (),
        INSIGHTS if many else (),
        IMPORTANCES if many else (),
        study.number,
        True,
    )


def list_trials(world: World, request: Request) -> studies.TrialsAnswer:
    study, since = _study(world, request), int(request.query_params.get("since") or 0)
    found = tuple(trial for number, trial in sorted(study.trials.items()) if study.changed[number] > since)
    return studies.TrialsAnswer(found, study.number)


def list_study_events(world: World, request: Request) -> studies.StudyEventsAnswer:
    study, after = _study(world, request), int(request.query_params.get("after") or 0)
    return studies.StudyEventsAnswer(tuple(study.events[after:]), len(study.events))


def export_study(world: World, request: Request) -> Response:
    rows = [
        f"{trial.number},{trial.state},{trial.values['loss']}"
        for trial in _study(world, request).trials.values()
    ]
    return PlainTextResponse("\n".join(["trial,state,loss", *rows]), media_type="text/csv")


def _move(world: World, request: Request, state: str) -> studies.StudyAnswer:
    study = _study(world, request)
    study.state = state
    study.number += 1
    return studies.StudyAnswer(study.view())


def stop_study(world: World, request: Request) -> studies.StudyAnswer:
    return _move(world, request, "stopped")


def pause_study(world: World, request: Request) -> studies.StudyAnswer:
    return _move(world, request, "paused")


def resume_study(world: World, request: Request) -> studies.StudyAnswer:
    return _move(world, request, "running")


async def add_trial(world: World, request: Request) -> studies.StudyAnswer:
    study = _study(world, request)
    params = SearchSpace.of_config(study.config["space"], ()).check_point((await request.json())["params"])
    study.put(
        TrialView(
            number=len(study.trials),
            state="waiting",
            params=dict(params),
            values={"loss": None},
            step=0,
            given=True,
        )
    )
    return studies.StudyAnswer(study.view())


def _tell_trial(world: World, request: Request, **changes: Any) -> studies.StudyAnswer:
    study = _study(world, request)
    trial = study.trials.get(request.path_params["trial"])
    if trial is None:
        raise HTTPException(422, "a trial must exist, got none; see the list")
    study.put(msgspec.structs.replace(trial, **changes))
    return studies.StudyAnswer(study.view())


def promote_trial(world: World, request: Request) -> studies.StudyAnswer:
    return _tell_trial(world, request, state="running", held=False)


def pause_trial(world: World, request: Request) -> studies.StudyAnswer:
    return _tell_trial(world, request, state="paused", held=True)


def stop_trial(world: World, request: Request) -> studies.StudyAnswer:
    return _tell_trial(world, request, state="stopped", message="stopped on request")


def list_interactions(world: World, request: Request) -> studies.InteractionsAnswer:
    study = _study(world, request)
    return studies.InteractionsAnswer(INTERACTIONS if len(study.trials) > 100 else ())


async def keep_study_model(world: World, request: Request) -> ModelView:
    _study(world, request)
    return ModelView((await request.json())["model"], ())


async def change_study(world: World, request: Request) -> studies.StudyAnswer:
    study = _study(world, request)
    study.config = study.config | {k: v for k, v in (await request.json()).items() if v is not None}
    return studies.StudyAnswer(study.view())


async def clone_study(world: World, request: Request) -> studies.StudyAnswer:
    study, changes = _study(world, request), (await request.json())["changes"]
    config = {**study.config, **changes, "space": {**study.config["space"], **changes.get("space", {})}}
    return _begin(world, convert_config(config))


async def begin_study(world: World, request: Request) -> studies.StudyAnswer:
    body = await request.json()
    config = convert_config(body["config"])
    if body.get("dry_run"):
        space, draw = _checked(config), np.random.default_rng(config.seed)
        points = [random_point(space, draw) for _ in range(min(5, config.parallel))]
        found = [
            TrialView(number=n, state="waiting", params=dict(p), values={}, step=0)
            for n, p in enumerate(points)
        ]
        return studies.StudyAnswer(None, tuple(found))
    return _begin(world, config)


def _checked(config: StudyConfig) -> SearchSpace:
    space = check_config(config)
    check_command(config, space)
    return space


def _begin(world: World, config: StudyConfig) -> studies.StudyAnswer:
    _checked(config)
    number = max(world.studies, default=0) + 1
    world.studies[number] = MadeUpStudy(number, msgspec.to_builtins(config), begun_ms=now_ms())
    return studies.StudyAnswer(world.studies[number].view())


def remove_study(world: World, request: Request) -> None:
    world.studies.pop(_study(world, request).id)
