"""Views of a table: the features that one kind of model wants, fitted to the rows it is trained on and to no others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from weft.auto.columns import ColumnRole
from weft.auto.features.blocks import (
    CategoryCodes,
    CategoryMarks,
    CategoryMeans,
    DateParts,
    MissingMarks,
    NumberColumns,
    NumberPairs,
    ScaledBlocks,
    SteppedBlocks,
    joined_onnx,
)
from weft.auto.features.words import WordTopics, WordWeights
from weft.auto.frames import RawTable
from weft.learn.onnx import OnnxGraph

Array = np.ndarray[Any, Any]

CODED = 250  # categories of a column that trees tell apart one by one; more become means of the target
MARKED = 40  # categories that get a column of 0 and 1 each for linear models
LEAST_OF_CATEGORY = 2  # rows; a rarer category counts as unknown
PRIOR_ROWS = 10.0  # rows of the mean of all that are added to the mean of a category
INNER_PARTS = 5  # training rows get means of the other parts
PAIRED = 4  # numbers that are most related to the target make pairs
TOPICS = 16
STEPS = 8  # of a number, between its quantiles
MOST_STEPPED = 1200  # steps of all numbers
LEAST_STEPPED = 20  # known values of a number that steps are found from


@dataclass(frozen=True)
class FeatureView:
    """Fitted blocks side by side; `categorical` marks columns that are codes."""

    blocks: tuple[Any, ...]
    categorical: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.names)

    def transform(self, table: RawTable) -> Any:
        return _joined([block.transform(table) for block in self.blocks])

    def onnx(self, graph: OnnxGraph, inputs: dict[str, str]) -> str:
        return joined_onnx(graph, self.blocks, inputs)


def _joined(parts: list[Any]) -> Any:
    if any(sparse.issparse(part) for part in parts):
        return sparse.hstack([sparse.csr_matrix(part) for part in parts]).tocsr()
    return np.ascontiguousarray(np.hstack(parts))


def fit_view(
    kind: str,
    table: RawTable,
    roles: list[ColumnRole],
    targets: Array,
    *,
    pairs: bool,
    seed: int,
    steps: bool = False,
) -> tuple[FeatureView, Any]:
    """Return the view "trees" or "linear" of training rows, and their features.

    `targets` is (rows, outputs). Means of the target are those of other rows for each training row.
    """
    made = _Maker(table, targets, seed)
    named = {
        role: [one.name for one in roles if one.role == role]
        for role in ("number", "category", "date", "text")
    }
    if named["number"]:
        made.add(NumberColumns(tuple(named["number"])))
    if pairs and len(named["number"]) > 1:
        made.add(NumberPairs(best_pairs(table, named["number"], targets)))
    for name in named["date"]:
        made.add(DateParts(name, _first(table.values(name))))
    if kind == "trees":
        _add_for_trees(made, named, table)
    else:
        _add_for_lines(made, named, table, steps)
    return made.view()


def _first(seconds: Array) -> float:
    known = seconds[~np.isnan(seconds)]
    return float(known.min()) if len(known) else 0.0


class _Maker:
    """Blocks under construction, with the features of the training rows."""

    def __init__(self, table: RawTable, targets: Array, seed: int) -> None:
        self.table, self.targets, self.seed = table, targets, seed
        self.blocks: list[Any] = []
        self.parts: list[Any] = []
        self.categorical: list[int] = []

    @property
    def width(self) -> int:
        return sum(part.shape[1] for part in self.parts)

    def add(self, block: Any, part: Any = None) -> None:
        self.blocks.append(block)
        self.parts.append(block.transform(self.table) if part is None else part)

    def add_means(self, name: str) -> None:
        self.add(*fit_means(name, self.table.values(name), self.targets, self.seed))

    def scale(self) -> None:
        """Put what there is so far on one scale."""
        if not self.parts:
            return
        joined = np.hstack(self.parts)
        some = ~np.isnan(joined).all(axis=0)
        means, scales = np.zeros(joined.shape[1]), np.ones(joined.shape[1])
        means[some] = np.nanmean(joined[:, some], axis=0)
        scales[some] = np.nanstd(joined[:, some], axis=0)
        block = ScaledBlocks(tuple(self.blocks), means, np.where(scales > 1e-12, scales, 1.0))
        scaled = np.clip((joined - means) / block.scales, -block.limit, block.limit)
        self.blocks, self.parts = [block], [np.where(np.isnan(scaled), 0.0, scaled)]

    def bent(self) -> SteppedBlocks | None:
        """Return steps between quantiles of what there is so far; None where no column has enough values."""
        if not self.parts:
            return None
        joined = np.hstack(self.parts)
        count = min(STEPS, MOST_STEPPED // joined.shape[1])
        edges = [step_edges(joined[:, place], count) for place in range(joined.shape[1])]
        places = np.repeat(np.arange(len(edges)), [max(0, len(one) - 1) for one in edges])
        if not len(places):
            return None
        starts = np.concatenate([one[:-1] for one in edges])
        widths = np.concatenate([np.diff(one) for one in edges])
        return SteppedBlocks(tuple(self.blocks), places, starts, widths)

    def view(self) -> tuple[FeatureView, Any]:
        return FeatureView(tuple(self.blocks), tuple(self.categorical)), _joined(self.parts)


def _add_for_trees(made: _Maker, named: dict[str, list[str]], table: RawTable) -> None:
    for name in named["category"]:
        known = common_categories(table.values(name))
        if len(known) <= CODED:
            made.categorical.append(made.width)
            made.add(CategoryCodes(name, known))
        else:
            made.add_means(name)
    for name in named["text"]:
        words = WordWeights.of(name, table.values(name))
        weights = words.transform(table)
        directions = _directions(weights, made.seed)
        made.add(WordTopics(words, directions))


def _add_for_lines(made: _Maker, named: dict[str, list[str]], table: RawTable, steps: bool) -> None:
    known = {name: common_categories(table.values(name)) for name in named["category"]}
    for name, found in known.items():
        if len(found) > MARKED:
            made.add_means(name)
    bent = made.bent() if steps else None
    made.scale()
    if bent is not None:
        made.add(bent)
    holes = tuple(name for name in named["number"] if np.isnan(table.values(name)).any())
    if holes:
        made.add(MissingMarks(holes))
    for name, found in known.items():
        if found:
            made.add(CategoryMarks(name, found[:MARKED]))
    for name in named["text"]:
        words = WordWeights.of(name, table.values(name))
        if words.weights.size:
            made.add(words)


def step_edges(values: Array, count: int) -> Array:
    """Return where the steps of a column begin and end: at its quantiles; none where it has two values or fewer."""
    known = values[~np.isnan(values)]
    if count < 2 or len(known) < LEAST_STEPPED:
        return np.empty(0)
    found = np.unique(np.quantile(known, np.linspace(0, 1, count + 1), method="inverted_cdf"))
    return found if len(found) > 2 else np.empty(0)


def common_categories(values: Array) -> tuple[str, ...]:
    """Return the categories that are not rare, the commonest first; "" is none."""
    counts = Counter(values.tolist())
    counts.pop("", None)
    kept = [(name, count) for name, count in counts.items() if count >= LEAST_OF_CATEGORY]
    return tuple(name for name, _ in sorted(kept, key=lambda item: (-item[1], item[0])))


def fit_means(name: str, values: Array, targets: Array, seed: int) -> tuple[CategoryMeans, Array]:
    """Return the means of categories, and those of training rows: means of the other parts of the rows."""
    found, codes = np.unique(values.astype(str), return_inverse=True)
    parts = np.random.default_rng(seed).integers(0, INNER_PARTS, len(values))
    own = np.empty((len(values), targets.shape[1] + 1))
    for part in range(INNER_PARTS):
        inside = parts == part
        table = _means(codes[~inside], targets[~inside], len(found))
        own[inside] = table[codes[inside]]
    whole = _means(codes, targets, len(found))
    own[:, -1] = whole[codes, -1]
    return CategoryMeans(name, tuple(found.tolist()), whole), own


def _means(codes: Array, targets: Array, count: int) -> Array:
    """Return (categories and one for all others, outputs and logarithm of the count)."""
    rows = np.bincount(codes, minlength=count).astype(np.float64)
    prior = targets.mean(axis=0) if len(targets) else np.zeros(targets.shape[1])
    sums = np.column_stack(
        [np.bincount(codes, targets[:, k], minlength=count) for k in range(targets.shape[1])]
    )
    means = (sums + PRIOR_ROWS * prior) / (rows + PRIOR_ROWS)[:, None]
    return np.vstack([np.column_stack([means, np.log1p(rows)]), np.append(prior, 0.0)])


def best_pairs(table: RawTable, names: list[str], targets: Array) -> tuple[tuple[str, str], ...]:
    """Return the pairs of the numbers whose ranks are most related to the target's."""
    from scipy.stats import rankdata

    strength = {}
    ranks = [rankdata(targets[:, k]) for k in range(targets.shape[1])]
    for name in names:
        values = table.values(name)
        known = ~np.isnan(values)
        if known.sum() < 3 or len(np.unique(values[known])) < 2:
            continue
        own = rankdata(values[known])
        strength[name] = max(_related(own, rank[known]) for rank in ranks)
    best = sorted(strength, key=lambda name: (-strength[name], name))[:PAIRED]
    best = best if len(best) > 1 else names[:2]
    return tuple((a, b) for i, a in enumerate(best) for b in best[i + 1 :])


def _related(left: Array, right: Array) -> float:
    if right.std() == 0:
        return 0.0
    return abs(float(np.corrcoef(left, right)[0, 1]))


def _directions(weights: Any, seed: int) -> Array:
    from sklearn.decomposition import TruncatedSVD

    topics = min(TOPICS, weights.shape[1] - 1, weights.shape[0] - 1)
    if topics < 1 or weights.nnz == 0:
        return np.zeros((weights.shape[1], 1))
    found: Array = TruncatedSVD(topics, random_state=seed).fit(weights).components_.T
    return np.ascontiguousarray(found)
