"""Answers of the made-up service about models of tables: one search that runs, and one that is over."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from testing.console.world import World, now_ms

from weft.jobs.api.types import auto, data
from weft.jobs.api.types.jobs import JobView

COLUMNS = (
    ("order", "identifier", "number", 48_210, "whole numbers that count the rows"),
    ("carrier", "category", "text", 6, "text with few distinct values"),
    ("weight_kg", "number", "number", 3_120, "numbers"),
    ("sent", "date", "date", 41_007, "timestamps"),
    ("note", "text", "text", 30_555, "11.3 words on average"),
    ("distance_km", "number", "number", 9_801, "numbers"),
    ("arrival_scan", "number", "number", 2, "numbers"),
    ("depot", "constant", "text", 1, "one value"),
)
MODELS = (
    ("catboost 5", 0.2411, 0.38), ("boosting 7", 0.2419, 0.31), ("lightgbm 2", 0.2432, 0.2),
    ("network 3", 0.2507, 0.11), ("xgboost 6", 0.2512, 0.0), ("forest 4", 0.2688, 0.0), ("linear 0", 0.3121, 0.0),
)  # fmt: skip
CARRIERS = ("Circus", "Owl", "Swift", "Turtle", "Mule", "")
CLASSES = ("late", "on time")


@dataclass
class TablesWorld:
    """What changes: how often each search was looked at, which has a new model each time, and what is served."""

    looks: Counter[int] = field(default_factory=Counter)
    served: list[str] = field(default_factory=list)


def _over(world: World, job: int) -> bool:
    return bool(world.jobs[job]["state"] == "completed")


def _view(world: World, job: int) -> dict[str, Any]:
    over = _over(world, job)
    return {
        "job": world.view(job), "table": "orders@2/orders.parquet" if job % 2 else "orders.csv", "target": "arrival",
        "metric": "log_loss", "score": 0.2385 if over else 0.2402, "model": "orders-arrival@1" if over else None,
    }  # fmt: skip


def list_auto_runs(world: World, request: Request) -> auto.AutoRunsAnswer:
    jobs = [job for job, found in world.jobs.items() if found["state"] in ("running", "completed")]
    return auto.AutoRunsAnswer(tuple(auto.AutoRunView(**_view(world, job)) for job in reversed(jobs[-5:])))


def _board(known: int, over: bool) -> tuple[auto.AutoBoardRow, ...]:
    def row(name: str, score: float, weight: float, seconds: float = 0.0, **params: Any) -> auto.AutoBoardRow:
        held = score * 1.01 if over and (weight or name == "baseline") else None
        return auto.AutoBoardRow(
            name=name, score=score, held_score=held, weight=weight, seconds=seconds, params=params
        )

    rows = [
        row(name, score, weight, 14.2, rate=0.0471, leaves=48, least=21, pairs=False)
        for name, score, weight in MODELS[-known:]
    ]
    return (row("ensemble", rows[0].score or 0.0, 1.0, 96.0), *rows, row("baseline", 0.6871, 0.0))


def _dependence() -> tuple[auto.AutoDependence, ...]:
    steps = [number / 19 for number in range(20)]
    return (
        auto.AutoDependence(
            column="distance_km", values=tuple(12 + 1400 * step for step in steps),
            means=tuple(0.2 + 0.5 / (1 + math.exp(6 - 12 * step)) for step in steps),
        ),
        auto.AutoDependence(column="carrier", values=CARRIERS, means=(0.21, 0.34, 0.3, 0.66, 0.47, 0.41)),
        auto.AutoDependence(
            column="sent", values=tuple(1.7e9 + 3.1e7 * step for step in steps),
            means=tuple(0.4 + 0.12 * math.sin(9 * step) for step in steps),
        ),
    )  # fmt: skip


def _explanation() -> auto.AutoExplanation:
    importance = [
        ("distance_km", 0.141),
        ("carrier", 0.118),
        ("sent", 0.061),
        ("note", 0.032),
        ("weight_kg", 0.0101),
    ]
    reasons = (
        auto.AutoReason(column="distance_km", value="1204", effect=0.214),
        auto.AutoReason(column="carrier", value="Swift", effect=-0.082),
    )
    return auto.AutoExplanation(
        output="probability of on time",
        importance=tuple(
            auto.AutoImportance(name=name, loss_growth=size / 2, mean_shapley=size) for name, size in importance
        ),
        rows=tuple(
            auto.AutoExplainedRow(row=row, base=0.41, predicted=0.56, rest=0.018, reasons=reasons)
            for row in (7, 19, 23)
        ),
        dependence=_dependence(),
        groups=tuple(
            auto.AutoGroup(
                column="carrier", group=name, rows=900 - 90 * place, rate=0.6 - 0.05 * place,
                ratio=1 - 0.083 * place, loss=0.24, warned=place > 2,
            )
            for place, name in enumerate(CARRIERS[:-1])
        ),
        calibration=tuple((step / 10, (step / 10) ** 1.1, 120) for step in range(1, 10)),
        confusion=((4120, 610), (388, 4524)),
        scores={"auc": 0.951, "accuracy": 0.897},
    )  # fmt: skip


def show_auto_run(world: World, request: Request) -> auto.AutoRunDetail:
    job = request.path_params["job"]
    if job not in world.jobs:
        raise HTTPException(404, f"there is no run {job}")
    over = _over(world, job)
    world.tables.looks[job] += 1
    known = len(MODELS) if over else min(len(MODELS), world.tables.looks[job])
    board = _board(known, over)
    files = (("report.html", 214_000), ("report.pdf", 391_000), ("model.onnx", 2_310_000))
    sentences = (
        ("leak", "arrival_scan", 0.998, 0.99, "arrival_scan alone predicts the target with an AUC of 0.998"),
        (
            "drift",
            "sent",
            0.71,
            0.65,
            "the last fifth of the rows is told from the others with an AUC of 0.71",
        ),
        ("identifier", "order", 48_210.0, 0.98, "order is left out as an identifier"),
    )
    return auto.AutoRunDetail(
        **_view(world, job), doing="boosting 8", spent_s=412.0 if over else 96.0 + 2 * known, budget_s=600.0,
        models=len(board), rows=48_210 if over else None,
        validation="5 folds at random" if over else "", classes=CLASSES if over else (), leaderboard=board,
        columns=tuple(
            auto.AutoColumn(name=name, role=role, kind=kind, distinct=distinct, missing_share=0.03, why=why)
            for name, role, kind, distinct, why in COLUMNS
        ),
        findings=tuple(
            auto.AutoFinding(kind=kind, column=column, figure=figure, threshold=threshold, sentence=sentence)
            for kind, column, figure, threshold, sentence in sentences
        ),
        notes=("models were chosen by 20,000 of 38,568 rows",) if over else (),
        explanation=_explanation() if over else None,
        files=tuple(
            auto.AutoRunFile(name, f"/api/v1/jobs/{job}/files/attempt-1/outputs/{name}", size)
            for name, size in files
        ) if over else (),
        deployments=tuple(world.tables.served) if over else (),
    )  # fmt: skip


def finish_auto_run(world: World, request: Request) -> JobView:
    world.jobs[request.path_params["job"]].update(state="completed", ended_ms=now_ms(), workers=0)
    return world.view(request.path_params["job"])


def _look(file: str, **more: Any) -> auto.TableLook:
    columns = tuple(
        auto.TableColumnView(name=name, kind=kind, example=why)  # type: ignore[arg-type]
        for name, _, kind, _, why in (*COLUMNS, ("arrival", "", "text", 2, "on time"))
    )
    return auto.TableLook(file=file, columns=columns, rows=48_210, **more)


async def add_table(world: World, request: Request) -> auto.TableLook:
    name = request.query_params["name"]
    if not await request.body():
        raise HTTPException(422, "a table must be a readable csv file, got: Empty CSV file; mend the file")
    return _look(name, upload="a" * 64)


def look_at_table(world: World, request: Request) -> auto.TableLook:
    return _look("orders.parquet", dataset=request.query_params["dataset"])


async def begin_auto_run(world: World, request: Request) -> auto.AutoRunView:
    asked = msgspec.json.decode(await request.body(), type=auto.NewAutoRun)
    if asked.target == "depot":
        raise HTTPException(422, "the target must have two values or more, got one in depot; choose another")
    job = next(job for job, found in world.jobs.items() if found["state"] == "running")
    return auto.AutoRunView(**_view(world, job))


async def add_deployment(world: World, request: Request) -> data.DeploymentView:
    asked = msgspec.json.decode(await request.body(), type=data.NewDeployment)
    world.tables.served.append(asked.name)
    return data.DeploymentView(
        name=asked.name, model="orders-arrival", version=1, previous=(), state="starting", message=None, url=None,
        user="mara", created_ms=now_ms(), changed_ms=now_ms(), mine=True,
    )  # fmt: skip
