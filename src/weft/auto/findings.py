"""Warnings about a table: columns that give the target away, columns that are left out, rows that differ from others.

Every finding states the figure and the threshold that it was found by.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from weft.auto.columns import LEAST_OF_CLASS, ColumnRole, Task
from weft.auto.features.view import fit_view
from weft.auto.frames import RawColumn, RawTable
from weft.auto.validation import as_targets, auc_of

Array = np.ndarray[Any, Any]

LEAK = 0.99  # AUC or R² of one column alone, on rows that its tree has not seen
DRIFT_AUC = 0.65  # of a model that tells later rows from earlier ones
MOSTLY_MISSING = 0.95
FEW_ROWS = 200
MOST_ROWS = 5000  # that the checks look at
MANY_COLUMNS = 300  # from here on, those are looked at closely that a quick look does not rule out
SCREEN_PARTS, SCREEN_SHARE = 50, 0.3  # of the target's variance that lies between the parts
DRIFTING = 3  # columns that are named


@dataclass(frozen=True)
class TableFinding:
    """A warning: its kind, the column, the figure found, the threshold, and a sentence."""

    kind: str  # leak, drift, identifier, constant, copy, other, missing, target, rare, few
    column: str
    figure: float
    threshold: float
    sentence: str

    def data(self) -> dict[str, Any]:
        return asdict(self)


def column_findings(roles: list[ColumnRole]) -> list[TableFinding]:
    """Return what roles alone tell."""
    found = []
    for role in roles:
        if role.role == "identifier":
            text = f"{role.name} is left out as an identifier: {role.why}"
            found.append(TableFinding("identifier", role.name, float(role.distinct), 0.98, text))
        elif role.role == "constant":
            text = f"{role.name} is left out, it tells nothing: {role.why}"
            found.append(TableFinding("constant", role.name, float(role.distinct), 1.0, text))
        elif role.role == "copy":
            text = f"{role.name} is left out: {role.why}"
            found.append(TableFinding("copy", role.name, 1.0, 1.0, text))
        elif role.role == "other":
            text = f"{role.name} is left out: {role.why}"
            found.append(TableFinding("other", role.name, 0.0, 0.0, text))
        elif role.used and role.missing_share > MOSTLY_MISSING:
            text = f"{role.name} is missing in {role.missing_share:.1%} of the rows (more than {MOSTLY_MISSING:.0%})"
            found.append(TableFinding("missing", role.name, role.missing_share, MOSTLY_MISSING, text))
    return found


def target_findings(column: RawColumn, task: Task, rows: int) -> list[TableFinding]:
    """Return which rows are left out for their target, and whether the others are few."""
    found = []
    holes = int(column.missing.sum())
    if holes:
        text = f"{holes:,} of {len(column.values):,} rows are left out: {task.target} is missing in them"
        found.append(TableFinding("target", task.target, holes / len(column.values), 0.0, text))
    rare = len(column.values) - holes - rows
    if rare:
        text = (
            f"{rare:,} rows are left out: their value of {task.target} is in fewer than {LEAST_OF_CLASS} rows, "
            f"so that it can neither be learned nor judged"
        )
        found.append(TableFinding("rare", task.target, float(rare), float(LEAST_OF_CLASS), text))
    if rows < FEW_ROWS:
        text = f"{rows} rows are few (fewer than {FEW_ROWS}): scores would be others with other rows"
        found.append(TableFinding("few", task.target, float(rows), float(FEW_ROWS), text))
    return found


def leak_findings(
    table: RawTable, roles: list[ColumnRole], target: Array, task: Task, seed: int
) -> list[TableFinding]:
    """Return the columns that alone predict the target: by a tree or a line, on rows that it has not seen."""
    rows = _some(len(target), seed)
    table, target = table.take(rows), target[rows]
    half = np.arange(len(rows)) % 2 == 0
    train, test = np.flatnonzero(half), np.flatnonzero(~half)
    wide = len(roles) > MANY_COLUMNS
    found = []
    for role in roles:
        if not role.used or (wide and not _may_leak(table[role.name], target, task)):
            continue
        one = RawTable({role.name: table[role.name]})
        score = _alone(one, role, target, task, train, test, seed)
        if score >= LEAK:
            name = "R²" if task.classes is None else "AUC"
            found.append(
                TableFinding(
                    "leak",
                    role.name,
                    score,
                    LEAK,
                    f"{role.name} alone predicts {task.target} ({name} {score:.4f}, at least {LEAK}): is it known "
                    f"before {task.target} is? If not, --drop {role.name}",
                )
            )
    return found


def _may_leak(column: RawColumn, target: Array, task: Task) -> bool:
    """Return whether the target's means over parts of a column's range differ as they do where it tells all."""
    if column.kind not in ("number", "date"):
        return True
    goals = as_targets(target, task)
    goals = goals[np.argsort(column.values, kind="stable")]
    spread = goals.var(axis=0)
    parts = np.array_split(goals, SCREEN_PARTS)
    between = sum(len(part) * (part.mean(axis=0) - goals.mean(axis=0)) ** 2 for part in parts if len(part))
    return bool((between / len(goals) >= SCREEN_SHARE * np.maximum(spread, 1e-300)).any())


def _some(count: int, seed: int) -> Array:
    if count <= MOST_ROWS:
        return np.random.default_rng(seed).permutation(count)
    return np.random.default_rng(seed).choice(count, MOST_ROWS, replace=False)


def _alone(
    table: RawTable, role: ColumnRole, target: Array, task: Task, train: Array, test: Array, seed: int
) -> float:
    """Return R² or the mean AUC over classes of a tree of one column."""
    from weft.learn import DecisionTreeClassifier, DecisionTreeRegressor

    goals = as_targets(target, task)
    view, rows = fit_view("trees", table.take(train), [role], goals[train], pairs=False, seed=seed)
    tested = np.nan_to_num(view.transform(table.take(test)), nan=-1.0)
    rows = np.nan_to_num(rows, nan=-1.0)
    if task.classes is None:
        tree: Any = DecisionTreeRegressor(max_depth=8, min_samples_leaf=3, random_state=seed)
        by_tree = tree.fit(rows, target[train]).predict(tested)
        by_line = [np.polyval(np.polyfit(rows[:, k], target[train], 1), tested[:, k]) for k in _varying(rows)]
        return max(_explained_share(target[test], one) for one in (by_tree, *by_line))
    if len(np.unique(target[train])) < 2:
        return 0.0
    tree = DecisionTreeClassifier(max_depth=8, min_samples_leaf=3, random_state=seed)
    shares = tree.fit(rows, target[train]).predict_proba(tested)
    each = [auc_of((target[test] == code).astype(int), shares[:, k]) for k, code in enumerate(tree.classes_)]
    return float(np.mean(each))


def _varying(rows: Array) -> list[int]:
    return [k for k in range(rows.shape[1]) if rows[:, k].std() > 0]


def _explained_share(target: Array, predicted: Array) -> float:
    """Return R²."""
    spread = max(float(np.var(target)), 1e-300)
    return 1.0 - float(np.mean((target - predicted) ** 2)) / spread


def drift_findings(
    earlier: RawTable, later: RawTable, roles: list[ColumnRole], what: str, seed: int
) -> list[TableFinding]:
    """Return whether a model can tell later rows from earlier ones (adversarial validation), and by which columns."""
    from weft.learn import GradientBoostingClassifier

    random = np.random.default_rng(seed)
    parts = [one.take(random.permutation(len(one))[: MOST_ROWS // 2]) for one in (earlier, later)]
    used = [role for role in roles if role.used]
    joined = _stacked(parts[0], parts[1], [role.name for role in used])
    late = np.repeat([0, 1], [len(parts[0]), len(parts[1])])
    order = random.permutation(len(late))
    train, test = order[::2], order[1::2]
    if not used or len(np.unique(late[train])) < 2:
        return []
    view, rows = fit_view(
        "trees", joined.take(train), used, late[train][:, None].astype(float), pairs=False, seed=seed
    )
    model = GradientBoostingClassifier(
        n_estimators=30, max_depth=4, categorical_features=list(view.categorical), random_state=seed
    ).fit(rows, late[train])
    tested = view.transform(joined.take(test))
    auc = auc_of(late[test], model.predict_proba(tested)[:, 1])
    if auc < DRIFT_AUC:
        return []
    by: dict[str, float] = {}
    for name, share in zip(view.names, model.feature_importances_, strict=True):
        column = next(role.name for role in used if name == role.name or name.startswith(f"{role.name}:"))
        by[column] = by.get(column, 0.0) + float(share)
    most = sorted(by, key=lambda name: -by[name])[:DRIFTING]
    text = (
        f"{what} differ from the rows before (AUC {auc:.3f}, at least {DRIFT_AUC}), most in "
        f"{', '.join(most)}: expect worse predictions there"
    )
    return [TableFinding("drift", most[0], auc, DRIFT_AUC, text)]


def _stacked(first: RawTable, second: RawTable, names: list[str]) -> RawTable:
    return RawTable(
        {
            name: RawColumn(name, first[name].kind, np.concatenate([first.values(name), second.values(name)]))
            for name in names
        }
    )
