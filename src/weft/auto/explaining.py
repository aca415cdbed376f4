"""Explanations of a model by raw columns: importance, Shapley values, partial dependence, fairness, calibration.

All of them ask the whole pipeline, with raw columns changed, so that a date, a text or a category counts as one column
whatever features were made of it. Shapley values are sampled: columns are given to a row one after the other in random
orders, from rows of a background; the values of a row add up to its prediction less the mean of the background. Of a
wide table the columns that matter are explained, and all others are given together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from weft.auto.columns import ColumnRole, Task
from weft.auto.frames import RawColumn, RawTable
from weft.auto.search.budget import ExplainSizes
from weft.auto.validation import auc_of, loss_of

Array = np.ndarray[Any, Any]

BACKGROUND_ROWS = 32
REASONS = 3  # columns that are named for a row
CURVES = 6  # columns whose dependence is drawn
POINTS = 20  # of a curve
FOUR_FIFTHS = (
    0.8  # a group that is chosen less often than this share of the most chosen one's rate is warned of
)
MOST_EXPLAINED = 60  # columns that are explained one by one; the others are one more, together
SCREENED_ROWS = 100  # by which these are chosen
SMALL_GROUP = 20  # rows; smaller groups tell nothing


class RawModel(Protocol):
    """A model that can be asked: its task, its raw columns and its raw answers."""

    task: Task
    columns: list[ColumnRole]

    @property
    def kinds(self) -> dict[str, str]: ...

    def raw(self, table: RawTable) -> Array: ...


@dataclass(frozen=True)
class ColumnImportance:
    """A column's importance: by how much the loss grows without it, and its mean absolute Shapley value."""

    name: str
    loss_growth: float
    mean_shapley: float


@dataclass(frozen=True)
class ReasonCode:
    """The effect of a column on one prediction, with the column's value."""

    column: str
    value: str
    effect: float


@dataclass(frozen=True)
class ExplainedRow:
    """One prediction taken apart: `base` plus all effects is `predicted`; `reasons` are the largest effects."""

    row: int  # place among the held-out rows
    base: float
    predicted: float
    rest: float  # the sum of the effects that are not among the reasons
    reasons: tuple[ReasonCode, ...]


@dataclass(frozen=True)
class Dependence:
    """The mean prediction where a column has each of some values in all rows."""

    column: str
    values: tuple[Any, ...]  # numbers, or names of categories
    means: tuple[float, ...]


@dataclass(frozen=True)
class GroupOutcome:
    """The outcome of one group: how often it is chosen, and how right the model is about it."""

    column: str
    group: str
    rows: int
    rate: float  # of the favourable outcome: the last class, or predictions above the median
    ratio: float  # to the rate of the group that is chosen most
    loss: float
    warned: bool  # the ratio is below four fifths


@dataclass(frozen=True)
class Explanation:
    """The explanation of a model, by rows that it was not trained on."""

    output: str  # what effects are of: the probability of a class, or the target
    importance: list[ColumnImportance]
    rows: list[ExplainedRow]
    dependence: list[Dependence]
    groups: list[GroupOutcome]
    calibration: list[tuple[float, float, int]] = field(
        default_factory=list
    )  # mean predicted, share true, rows
    confusion: list[list[int]] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return asdict(self)


def explain(
    model: RawModel,
    seen: RawTable,
    held: RawTable,
    truth: Array,
    fairness: tuple[str, ...],
    seed: int,
    sizes: ExplainSizes,
    whole: Array | None = None,
) -> Explanation:
    """Return the explanation of a model that was fitted to `seen` rows, by held-out ones.

    `whole` is what the model predicts for the held-out rows, where that is known.
    """
    random = np.random.default_rng(seed)
    some = np.sort(random.permutation(len(held))[: sizes.judged])
    table = RawTable({name: held[name].take(some) for name in model.kinds})
    output, asked = _output(model)
    predicted = model.raw(table)
    explained = random.permutation(len(table))[: sizes.explained]
    background = some_background(model, seen, random)
    names = telling_columns(asked, table, list(model.kinds), random)
    others = tuple(name for name in model.kinds if name not in set(names))
    prose = {role.name for role in model.columns if role.role == "text"}
    parts = [*((name,) for name in names), *([others] if others else [])]
    values, base = shapley_values(asked, table.take(explained), background, parts, random, sizes.orders)
    growth = permutation_growth(model, table, names, truth[some], random)
    importance = sorted(
        (
            ColumnImportance(name, growth[name], float(np.abs(values[:, k]).mean()))
            for k, name in enumerate(names)
        ),
        key=lambda one: -one.mean_shapley,
    )
    drawn = [one.name for one in importance if one.name not in prose][:CURVES]
    curves = [dependence_of(asked, table, name) for name in drawn]
    if whole is None:
        whole = model.raw(RawTable({name: held[name] for name in model.kinds}))
    return Explanation(
        output,
        importance,
        _reasons(table.take(explained), some[explained], values, base, names),
        curves,
        [one for column in fairness for one in group_outcomes(held[column], whole, truth, model.task)],
        _calibration(predicted, truth[some], model.task),
        _confusion(whole, truth, model.task),
        _scores(whole, truth, model.task),
    )


def reasons_of(
    model: RawModel, rows: RawTable, background: RawTable, names: list[str], seed: int
) -> list[ExplainedRow]:
    """Return the predictions of rows taken apart by some columns; all others are given together."""
    random = np.random.default_rng(seed)
    _, asked = _output(model)
    others = tuple(name for name in model.kinds if name not in set(names))
    parts = [*((name,) for name in names), *([others] if others else [])]
    values, base = shapley_values(asked, rows, background, parts, random, ExplainSizes().orders)
    return _reasons(rows, np.arange(len(rows)), values, base, names)


def _output(model: RawModel) -> tuple[str, Callable[[RawTable], Array]]:
    """Return what is explained (the last class's probability, or the number) and how to ask for it."""
    classes = model.task.classes
    if classes is None:
        return model.task.target, lambda table: model.raw(table)[:, 0]
    return f"probability of {model.task.target} = {classes[-1]}", lambda table: model.raw(table)[:, -1]


def some_background(model: RawModel, seen: RawTable, random: Any) -> RawTable:
    """Return the few rows that effects are relative to."""
    some = seen.take(random.permutation(len(seen))[:BACKGROUND_ROWS])
    return RawTable({name: some[name] for name in model.kinds})


def telling_columns(
    asked: Callable[[RawTable], Array],
    table: RawTable,
    names: list[str],
    random: Any,
    most: int = MOST_EXPLAINED,
) -> list[str]:
    """Return the columns that predictions hang on most: groups of them are shuffled, and the better half is kept."""
    some = table.take(np.arange(min(len(table), SCREENED_ROWS)))
    known = asked(some)
    shuffled = random.permutation(len(some))
    left = list(names)
    while len(left) > most:
        size = -(-len(left) // most)
        groups = [left[start : start + size] for start in range(0, len(left), size)]
        moved = {}
        for place, group in enumerate(groups):
            changed = {name: replace(some[name], values=some.values(name)[shuffled]) for name in group}
            moved[place] = float(np.abs(asked(RawTable({**some.columns, **changed})) - known).mean())
        if size == 1:
            best = sorted(moved, key=lambda place: -moved[place])[:most]
        else:
            best = sorted(moved, key=lambda place: -moved[place])[: max(1, min(len(groups) // 2, most))]
        left = [name for place in sorted(best) for name in groups[place]]
    return left


def shapley_values(
    asked: Callable[[RawTable], Array],
    rows: RawTable,
    background: RawTable,
    parts: list[tuple[str, ...]],
    random: Any,
    count_orders: int,
) -> tuple[Array, Array]:
    """Return sampled Shapley values (rows, parts), and the base of each row, to which they add up.

    A part is a column, or several that are given together.
    """
    count, width = len(rows), len(parts)
    total, base = np.zeros((count, width)), np.zeros(count)
    orders = _orders(width, random, count_orders)
    for number, order in enumerate(orders):
        others = background.take((np.arange(count) + number * 7) % len(background))
        answers = asked(_staircase(rows, others, parts, order)).reshape(width + 1, count)
        base += answers[0]
        for step, column in enumerate(order):
            total[:, column] += answers[step + 1] - answers[step]
    return total / len(orders), base / len(orders)


def _orders(width: int, random: Any, count: int) -> list[list[int]]:
    found: list[list[int]] = []
    while len(found) < count:
        order = random.permutation(width).tolist()
        found += [order, order[::-1]]
    return found


def _staircase(rows: RawTable, others: RawTable, parts: list[tuple[str, ...]], order: list[int]) -> RawTable:
    """Return the background's rows, then those with one, two and more parts of the explained rows."""
    steps = {part: step for step, part in enumerate(order)}
    made = {}
    for part, names in enumerate(parts):
        for name in names:
            own, other = rows.values(name), others.values(name)
            levels = [other if level <= steps[part] else own for level in range(len(parts) + 1)]
            made[name] = RawColumn(name, rows[name].kind, np.concatenate(levels))
    return RawTable(made)


def permutation_growth(
    model: RawModel, table: RawTable, names: list[str], truth: Array, random: Any
) -> dict[str, float]:
    """Return by how much the loss grows where a column's values are shuffled among rows."""
    metric = model.task.metric
    least = loss_of(metric, truth, model.raw(table))
    found = {}
    for name in names:
        shuffled = table.with_values(name, table.values(name)[random.permutation(len(table))])
        found[name] = loss_of(metric, truth, model.raw(shuffled)) - least
    return found


def dependence_of(asked: Callable[[RawTable], Array], table: RawTable, name: str) -> Dependence:
    """Return the partial dependence on a column: at quantiles of numbers, at the commonest categories."""
    column = table[name]
    known = column.values[~column.missing]
    if column.kind == "text":
        found, counts = np.unique(known.astype(str), return_counts=True)
        points: list[Any] = found[np.argsort(-counts, kind="stable")][:8].tolist()
    else:
        points = np.unique(np.quantile(known, np.linspace(0.02, 0.98, POINTS))).tolist() if len(known) else []
    some = table.take(np.arange(min(len(table), 200)))
    means = []
    for point in points:
        filled = np.empty(len(some), column.values.dtype)
        filled[:] = point
        means.append(float(asked(some.with_values(name, filled)).mean()))
    return Dependence(name, tuple(points), tuple(means))


def _reasons(
    rows: RawTable, places: Array, values: Array, base: Array, names: list[str]
) -> list[ExplainedRow]:
    found = []
    for i, place in enumerate(places.tolist()):
        order = np.argsort(-np.abs(values[i, : len(names)]))[:REASONS]  # not those given together
        reasons = tuple(
            ReasonCode(names[k], shown_value(rows[names[k]], i), float(values[i, k])) for k in order.tolist()
        )
        whole = float(base[i] + values[i].sum())
        rest = whole - float(base[i]) - sum(reason.effect for reason in reasons)
        found.append(ExplainedRow(int(place), float(base[i]), whole, rest, reasons))
    return sorted(found, key=lambda one: one.row)


def shown_value(column: RawColumn, row: int) -> str:
    """Return a raw value as a person writes it."""
    value = column.values[row]
    if column.missing[row]:
        return "missing"
    if column.kind == "date":
        return str(np.datetime64(int(value), "s")).replace("T00:00:00", "")
    return f"{value:.5g}" if column.kind == "number" else value if len(value) < 40 else value[:39] + "…"


def group_outcomes(column: RawColumn, predicted: Array, truth: Array, task: Task) -> list[GroupOutcome]:
    """Return how each group of a column fares: the four-fifths rule on the rate of the favourable outcome."""
    shown = np.array([shown_value(column, row) for row in range(len(column.values))])
    if task.classes is None:
        chosen = predicted[:, 0] > np.median(predicted[:, 0])
    else:
        chosen = predicted.argmax(axis=1) == len(task.classes) - 1
    names = [name for name in np.unique(shown) if (shown == name).sum() >= SMALL_GROUP]
    rates = {name: float(chosen[shown == name].mean()) for name in names}
    most = max(rates.values(), default=0.0)
    found = []
    for name in names:
        ratio = rates[name] / most if most else 1.0
        inside = shown == name
        loss = loss_of(task.metric, truth[inside], predicted[inside])
        found.append(
            GroupOutcome(
                column.name, str(name), int(inside.sum()), rates[name], ratio, loss, ratio < FOUR_FIFTHS
            )
        )
    return found


def _calibration(predicted: Array, truth: Array, task: Task) -> list[tuple[float, float, int]]:
    """Return ten parts of the rows by predicted probability of the last class: mean, share that is true, rows."""
    if task.classes is None:
        return []
    share, right = predicted[:, -1], truth == len(task.classes) - 1
    parts = np.array_split(np.argsort(share, kind="stable"), 10)
    return [(float(share[p].mean()), float(right[p].mean()), len(p)) for p in parts if len(p)]


def _confusion(predicted: Array, truth: Array, task: Task) -> list[list[int]]:
    if task.classes is None:
        return []
    count = len(task.classes)
    places = truth * count + predicted.argmax(axis=1)
    return [
        [int(n) for n in row] for row in np.bincount(places, minlength=count * count).reshape(count, count)
    ]


def _scores(predicted: Array, truth: Array, task: Task) -> dict[str, float]:
    """Return all scores of held-out rows, whatever the metric of the run."""
    if task.classes is None:
        spread = float(np.mean((truth - truth.mean()) ** 2))
        rmse = loss_of("rmse", truth, predicted)
        return {
            "rmse": rmse,
            "mae": loss_of("mae", truth, predicted),
            "r2": 1 - rmse**2 / spread if spread else 0.0,
        }
    found = {
        "log_loss": loss_of("log_loss", truth, predicted),
        "accuracy": 1 - loss_of("accuracy", truth, predicted),
    }
    return {**found, "auc": auc_of(truth, predicted[:, 1])} if len(task.classes) == 2 else found
