"""The table of ways that `weft plan` prints, and the same as data. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.parallel.planning.candidates import PLAIN_DDP, PLAIN_FSDP
from weft.parallel.planning.choice import WayChoice
from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.prediction.predict import StepPrediction
from weft.parallel.prediction.step import RecordedStep
from weft.text import format_seconds, format_size, format_table, plural

HEAD = ("", "way", "step", "computing", "card", "uplink", "copies", "memory", "changes")


def render_choice(
    choice: WayChoice, step: RecordedStep, cluster: ClusterFacts, *, every: bool = False
) -> str:
    """Return the report: what it is about, the ways that change nothing or rounding, those apart, and the reason."""
    shown = choice.predictions if every else summary(choice)
    plain = [each for each in shown if each.changes != "more"]
    apart = [each for each in shown if each.changes == "more"]
    lines = [_about(step, cluster), "", *_table(plain, choice, cluster)]
    if apart:
        lines += ["", "apart, since they change what is computed:", *_table(apart, choice, cluster)]
    return "\n".join([*lines, "", f"best: {choice.best.way}", f"why: {choice.reason}"])


def summary(choice: WayChoice) -> list[StepPrediction]:
    """Return the best way of each kind for each change, and the ways that people begin with."""
    seen: set[tuple[str, str, bool]] = set()
    found = []
    for each in choice.predictions:
        key = (each.way.kind, each.changes, each.way.local_steps > 1)
        if each is choice.best or each.way in (PLAIN_DDP, PLAIN_FSDP) or key not in seen:
            found.append(each)
        seen.add(key)
    return found


def _about(step: RecordedStep, cluster: ClusterFacts) -> str:
    model = f"{step.name}: {format_size(step.parameter_bytes)} of parameters in {plural(len(step.layers), 'layer')}"
    passes = f", {step.passes} passes a step" if step.passes > 1 else ""
    times = "" if step.timed else f" (computed from shapes for {step.device})"
    where = f"{plural(cluster.host_count, 'host')} x {plural(cluster.workers_per_host, 'worker')}"
    link = f", {cluster.card_bps * 8 / 1e9:.3g} Gbit/s ({cluster.source})" if cluster.host_count > 1 else ""
    return f"{model}, {format_seconds(step.compute_s)} of compute a step{passes}{times}\n{where}{link}"


def _table(rows: Sequence[StepPrediction], choice: WayChoice, cluster: ClusterFacts) -> list[str]:
    table = [HEAD, *(_cells(each, choice) for each in rows)]
    keep = [
        column
        for column, name in enumerate(HEAD)
        if name not in ("uplink", "copies") or any(row[column] != "-" for row in table[1:])
    ]
    return format_table([tuple(row[column] for column in keep) for row in table], {"", "way", "changes"})


def _cells(each: StepPrediction, choice: WayChoice) -> tuple[str, ...]:
    return (
        "*" if each is choice.best else "",
        str(each.way),
        format_seconds(each.step_s, padded=True),
        f"{each.computing_share:.0%}",
        *(
            format_size(count) if count else "-"
            for count in (each.card_bytes, each.uplink_bytes, each.copy_bytes)
        ),
        format_size(each.peak_bytes) + ("" if each.fits else ": too much"),
        each.changes,
    )


def choice_data(choice: WayChoice) -> Iterator[dict[str, Any]]:
    """Yield each prediction as data, quickest first."""
    for each in choice.predictions:
        yield prediction_data(each) | {"best": each is choice.best}


def prediction_data(each: StepPrediction) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(each) | {
        "name": str(each.way),
        "computing_share": each.computing_share,
        "changes": each.changes,
    }
