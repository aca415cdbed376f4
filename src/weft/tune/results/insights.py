"""Insights: stated rules about a study, each with its threshold and what to do. Advice, unless `act` allows more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from weft.errors import UsageError
from weft.text import plural
from weft.tune.results.importance import ParameterImportance, importances
from weft.tune.space.domains import Domain, FloatRange, IntRange, LogRange
from weft.tune.study.state import SearchState, TrialRecord

# The thresholds of all rules, as they are shown with each finding.
THRESHOLDS: Mapping[str, float] = {
    "diverged_share": 0.2,  # of ended trials
    "diverged_least": 3,
    "plateau_trials": 20,  # ended since the best got better by more than plateau_gain
    "plateau_gain": 0.001,  # of the best value
    "overfit_loss": 0.05,  # by which the end is worse than the best step, of the curve's range
    "overfit_by": 0.7,  # of all steps, before which the best one was
    "edge_share": 0.05,  # of a range, next to its bound
    "edge_best": 5,  # trials, of which most lie at the edge
    "no_matter": 0.02,  # of the importance
    "no_matter_trials": 20,
}


class StudyInsight(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: the rule, a sentence, what to do, and the numbers behind it."""

    rule: str
    severity: str  # note, warning
    text: str
    advice: str
    evidence: dict[str, Any]
    trials: tuple[int, ...] = ()


def insights(state: SearchState, shares: Sequence[ParameterImportance] | None = None) -> list[StudyInsight]:
    """Return everything that the rules find, the most severe first; `shares` are importances that are known."""
    rules = (_diverged, _edges, _plateau, _overfitting, _ignored_flags, _started_over)
    found = [one for rule in rules for one in rule(state)]
    found += _unimportant(state, shares)
    found += [
        StudyInsight(rule="acted", severity="note", text=text, advice="as act allows", evidence={})
        for text in state.acts
    ]
    return sorted(found, key=lambda one: one.severity != "warning")


def _diverged(state: SearchState) -> Iterator[StudyInsight]:
    ended = [t for t in state if t.over and t.state != "failed"]
    bad = [t for t in ended if t.curve and not math.isfinite(t.curve[-1])]
    bad += [t for t in ended if not t.curve and t.values and not math.isfinite(t.values[0])]
    if len(bad) < THRESHOLDS["diverged_least"] or len(bad) < THRESHOLDS["diverged_share"] * len(ended):
        return
    good = [t for t in ended if t not in bad]
    text = f"{len(bad)} of {plural(len(ended), 'trial')} diverged to NaN or infinity"
    advice, where = "look at the largest values of the learning rate", {}
    for name, domain in state.space.domains.items():
        if not isinstance(domain, (FloatRange, LogRange, IntRange)):
            continue
        lowest = min((t.params[name] for t in bad if name in t.params), default=None)
        highest = max((t.params[name] for t in good if name in t.params), default=None)
        if lowest is not None and (highest is None or lowest > highest):
            text += f", all of them with {name} from {lowest:.3g} on"
            advice = f"narrow {name} to {domain.with_condition(None).text().split(':')[0]}:{domain.low!r}:{lowest:.3g}"
            where = {"parameter": name, "from": lowest}
            break
    evidence = {"diverged": len(bad), "ended": len(ended), "threshold": THRESHOLDS["diverged_share"], **where}
    numbers = tuple(t.number for t in bad)
    yield StudyInsight(
        rule="divergence", severity="warning", text=text, advice=advice, evidence=evidence, trials=numbers
    )


def _edges(state: SearchState) -> Iterator[StudyInsight]:
    count = int(THRESHOLDS["edge_best"])
    done = sorted(state.in_state("completed"), key=lambda t: (t.last_score, t.number))
    if len(done) < 2 * count:
        return
    best = done[:count]
    for name, domain in state.space.domains.items():
        places = [_place(domain, t.params[name]) for t in best if name in t.params]
        places = [place for place in places if place is not None]
        if len(places) < count:
            continue
        for side, near in (
            ("upward", sum(p >= 1 - THRESHOLDS["edge_share"] for p in places if p is not None)),
            ("downward", sum(p <= THRESHOLDS["edge_share"] for p in places if p is not None)),
        ):
            if near > count / 2:
                bound = domain.high if side == "upward" else domain.low  # type: ignore[attr-defined]
                yield StudyInsight(
                    rule="edge",
                    severity="warning",
                    text=f"{near} of the best {count} trials have {name} within "
                    f"{THRESHOLDS['edge_share']:.0%} of its bound {bound:g}",
                    advice=f"widen {name} {side}",
                    evidence={
                        "near": near,
                        "of": count,
                        "bound": bound,
                        "parameter": name,
                        "side": side,
                        "threshold": THRESHOLDS["edge_share"],
                    },
                    trials=tuple(t.number for t in best),
                )


def _place(domain: Domain, value: Any) -> float | None:
    match domain:
        case LogRange(low=low, high=high):
            return math.log(value / low) / math.log(high / low)
        case IntRange(low=low, high=high, log=True):
            return math.log(value / low) / math.log(high / low)
        case FloatRange(low=low, high=high) | IntRange(low=low, high=high):
            return float((value - low) / (high - low))
    return None


def is_plateau(state: SearchState) -> bool:
    """Return whether the best value has not got better by enough for long."""
    return next(_plateau(state), None) is not None


def _plateau(state: SearchState) -> Iterator[StudyInsight]:
    count = int(THRESHOLDS["plateau_trials"])
    ended = sorted((state.trials[n] for n in state.over), key=lambda t: (t.ended_s or 0.0, t.number))
    scores = [t.last_score for t in ended if t.state == "completed" and math.isfinite(t.last_score)]
    if len(scores) < 2 * count:
        return
    before, now = min(scores[:-count]), min(scores)
    gain = (before - now) / max(abs(before), 1e-12)
    if gain <= THRESHOLDS["plateau_gain"]:
        yield StudyInsight(
            rule="plateau",
            severity="note",
            text=f"the best of the last {count} completed trials is at most {THRESHOLDS['plateau_gain']:.1%} better "
            "than what was known before",
            advice="stop here, or widen the space",
            evidence={"gain": gain, "trials": count, "threshold": THRESHOLDS["plateau_gain"]},
        )


def _overfitting(state: SearchState) -> Iterator[StudyInsight]:
    best = state.best()
    if best is None or len(best.curve) < 5:
        return
    scores = [best.score(value) for value in best.curve]
    finite = [score for score in scores if math.isfinite(score)]
    at = scores.index(min(scores))
    span = max(finite) - min(finite) if finite else 0.0
    loss = (scores[-1] - scores[at]) / span if span > 0 else 0.0
    if at + 1 <= THRESHOLDS["overfit_by"] * len(scores) and loss > THRESHOLDS["overfit_loss"]:
        yield StudyInsight(
            rule="overfitting",
            severity="note",
            text=f"trial {best.number} was best at {best.steps[at]} of {best.step} and is {loss:.0%} of its range "
            "worse at the end",
            advice=f"train for about {best.steps[at]}, or add regularization",
            evidence={"best_step": best.steps[at], "loss": loss, "threshold": THRESHOLDS["overfit_loss"]},
            trials=(best.number,),
        )


def _ignored_flags(state: SearchState) -> Iterator[StudyInsight]:
    """Find trials with other parameters and the very same curve: a script that ignores what it is given."""
    seen: dict[tuple[float, ...], TrialRecord] = {}
    for trial in state:
        values = tuple(trial.curve) or (trial.values or ())
        if len(trial.curve) < 3 or any(not math.isfinite(v) for v in values):
            continue
        other = seen.setdefault(values, trial)
        if (
            other is trial
            or other.params == trial.params
            or other.parent is not None
            or trial.parent is not None
        ):
            continue
        differing = sorted(n for n in trial.params if trial.params[n] != other.params.get(n))
        yield StudyInsight(
            rule="ignored-flag",
            severity="warning",
            text=f"trials {other.number} and {trial.number} have the same curve to the last digit, though "
            f"{', '.join(differing)} differ",
            advice=f"look whether the script uses {differing[0]}",
            evidence={"points": len(values)},
            trials=(other.number, trial.number),
        )
        return


def _started_over(state: SearchState) -> Iterator[StudyInsight]:
    again = [t for t in state if t.repeated and t.starts > 1]
    if again:
        yield StudyInsight(
            rule="started-over",
            severity="warning",
            text=f"{plural(len(again), 'trial')} began again at the first step when promoted",
            advice="save to the folder WEFT_CHECKPOINT and go on from there, or write checkpoints: false",
            evidence={"trials": len(again)},
            trials=tuple(t.number for t in again),
        )


def _unimportant(state: SearchState, shares: Sequence[ParameterImportance] | None) -> Iterator[StudyInsight]:
    if len(state.in_state("completed")) < THRESHOLDS["no_matter_trials"] or len(state.goals) > 1:
        return
    if shares is None:
        try:
            shares = importances(state)
        except UsageError:  # scikit-learn is not here: an insight less
            return
    for one in shares:
        if one.high < THRESHOLDS["no_matter"] and len(shares) > 1:
            yield StudyInsight(
                rule="no-matter",
                severity="note",
                text=f"{one.name} makes at most {one.high:.1%} of the difference between trials",
                advice=f"fix {one.name}, and search the others",
                evidence={
                    "parameter": one.name,
                    "importance": one.share,
                    "low": one.low,
                    "high": one.high,
                    "threshold": THRESHOLDS["no_matter"],
                },
            )
