"""The plan file: the way to run a model, what was predicted of it, and all that the prediction was made from.

It is JSON, in a fixed order and without a date, so that two plans can be compared by `diff`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from weft.documents import fill_model, parse_document
from weft.errors import UsageError
from weft.files import write_whole
from weft.parallel.planning.candidates import candidates
from weft.parallel.planning.choice import WayChoice, choose
from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.prediction.predict import StepPrediction, predict
from weft.parallel.prediction.step import RecordedStep
from weft.parallel.prediction.way import KINDS, Change, Way
from weft.text import suggestion

FORMAT = 1
NAME = "parallel.json"  # in a run directory
CHANGED = 1.25  # a network is another one if its rate differs by more than this factor


@dataclass(frozen=True, kw_only=True)
class ParallelPlan:
    """A plan: the way to run a model on some hosts, with the prediction and what it was made from."""

    format: int
    way: Way
    reason: str
    predicted: StepPrediction
    cluster: ClusterFacts
    step: RecordedStep
    allow: Change = "rounding"

    def to_text(self) -> str:
        return json.dumps(plan_data(self), indent=2) + "\n"


def plan_data(plan: ParallelPlan) -> dict[str, Any]:
    """Return a plan as data."""
    return asdict(plan)


def make_plan(step: RecordedStep, cluster: ClusterFacts, choice: WayChoice, allow: Change) -> ParallelPlan:
    """Return the plan of a choice."""
    return ParallelPlan(
        format=FORMAT,
        way=choice.best.way,
        reason=choice.reason,
        predicted=choice.best,
        cluster=cluster,
        step=step,
        allow=allow,
    )


def plan_from(data: Any, path: Path) -> ParallelPlan:
    """Return parsed data as a plan, or refuse it with its path."""
    if isinstance(data, dict):
        known = list(ParallelPlan.__dataclass_fields__)
        for name in data:
            if name not in known:
                raise UsageError(
                    f"{path}: its fields must be among {', '.join(known)}, got {name}; {suggestion(str(name), known)}"
                )
        if data.get("format") != FORMAT:
            raise UsageError(
                f"{path} must be a plan of format {FORMAT}, got {data.get('format')!r}; make it anew by weft plan"
            )
    return fill_model(data, ParallelPlan, path)


def read_plan(path: Path) -> ParallelPlan:
    """Read a plan file."""
    return plan_from(parse_document(path), path)


def write_plan(plan: ParallelPlan, path: Path) -> None:
    """Write a plan file, whole or not at all."""
    write_whole(path, plan.to_text())


def check_for(plan: ParallelPlan, hosts: Sequence[str], workers: int) -> None:
    """Refuse a plan that was made for other hosts: as many hosts of as many workers, by whatever names."""
    planned = plan.cluster
    if len(hosts) != planned.host_count or workers != planned.world:
        raise UsageError(
            f"a plan must be made for the hosts of the run, got one for {planned.host_count} hosts x "
            f"{planned.workers_per_host} workers beside {len(hosts)} hosts with {workers} workers in all; "
            "make it anew by weft plan"
        )


def replan(plan: ParallelPlan, cluster: ClusterFacts, *, kinds: Sequence[str] = tuple(KINDS)) -> ParallelPlan:
    """Return the plan for another network or other hosts; `kinds` are what the state of a run allows."""
    ways = list(candidates(plan.step, cluster))
    if not any(way.kind in kinds for way in ways):
        ways.append(plan.way)  # a single host or worker leaves nothing to shard over, and so no candidate
    choice = choose(plan.step, cluster, allow=plan.allow, kinds=kinds, ways=ways)
    return make_plan(plan.step, cluster, choice, plan.allow)


def network_changed(plan: ParallelPlan, card_bps: float) -> bool:
    """Return whether the links are others than those the plan was made for."""
    if plan.cluster.host_count == 1 or not card_bps:
        return False
    ratio = card_bps / plan.cluster.card_bps
    return ratio > CHANGED or ratio < 1 / CHANGED


def for_hosts(plan: ParallelPlan, hosts: Sequence[str], workers_per_host: int) -> ParallelPlan:
    """Return the plan for fewer or more hosts of an elastic run: the same kind, predicted anew."""
    cluster = replace(
        plan.cluster,
        hosts=tuple(hosts),
        workers_per_host=workers_per_host,
        racks=plan.cluster.racks if len(hosts) % plan.cluster.racks == 0 else 1,
    )
    return replan(plan, cluster, kinds=(plan.way.kind,))


def same_way(plan: ParallelPlan, way: Way) -> ParallelPlan:
    """Return the plan with another way, predicted anew."""
    predicted = predict(plan.step, plan.cluster, way)
    return replace(plan, way=way, predicted=predicted, reason="the way was given")
