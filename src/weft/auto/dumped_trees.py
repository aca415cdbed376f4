"""Trees of LightGBM, XGBoost and CatBoost, read from what these packages dump, as nodes of an ONNX graph.

Each package compares in its own way: LightGBM takes float64 and "at most", XGBoost float32 and "less than", CatBoost
float32 and "greater than" with the same cut in all nodes of a level.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.auto.families.fitting import FittedModel
from weft.learn.onnx import OnnxGraph, _shares, _sums
from weft.learn.trees.exported import Cuts

Array = np.ndarray[Any, Any]

MOST_CODES = 256  # categories of a column that trees tell apart; see `features.view.CODED`


@dataclass(frozen=True)
class DumpedTrees:
    """The trees of a boosting: values of their nodes, the output that each adds to, and where outputs start."""

    trees: list[Cuts]
    values: list[Array]
    targets: list[int]
    start: Array  # (outputs,)
    single: bool  # rows are rounded to float32 first

    def onnx(self, graph: OnnxGraph, features: str, classes: int | None) -> str:
        """Add the trees to a graph; return the name of (batch, classes) probabilities, or (batch, 1) numbers."""
        rows = graph.cast(graph.cast(features, np.float32), np.float64) if self.single else features
        sums = _sums(graph, rows, self.trees, self.values, self.targets, len(self.start))
        raw = graph.add("Add", sums, graph.constant(self.start))
        return raw if classes is None else _shares(graph, raw, len(self.start), np.float64)


def dumped_trees(model: FittedModel) -> DumpedTrees:
    """Return the trees of a fitted model of LightGBM, XGBoost or CatBoost."""
    readers = {"lightgbm": _of_lightgbm, "xgboost": _of_xgboost, "catboost": _of_catboost}
    outputs = 1 if model.classes is None or model.classes == 2 else model.classes
    return readers[model.family](model.estimator, outputs)


def _of_lightgbm(estimator: Any, outputs: int) -> DumpedTrees:
    booster = estimator.booster_
    told = booster.dump_model(num_iteration=booster.best_iteration if booster.best_iteration > 0 else None)
    read = [_lightgbm_tree(one["tree_structure"]) for one in told["tree_info"]]
    targets = [number % outputs for number in range(len(read))]
    return DumpedTrees(
        [tree for tree, _ in read], [value for _, value in read], targets, np.zeros(outputs), False
    )


def _lightgbm_tree(root: dict[str, Any]) -> tuple[Cuts, Array]:
    nodes = list(_below(root))
    places = {id(node): place for place, node in enumerate(nodes)}
    count = len(nodes)
    feature, threshold = np.zeros(count, np.int64), np.zeros(count)
    left, right = np.full(count, -1), np.full(count, -1)
    missing, value, sides = np.zeros(count, bool), np.zeros(count), {}
    for place, node in enumerate(nodes):
        if "split_feature" not in node:
            value[place] = node["leaf_value"]
            continue
        feature[place] = node["split_feature"]
        left[place], right[place] = places[id(node["left_child"])], places[id(node["right_child"])]
        if node["decision_type"] == "==":
            sides[place] = np.isin(np.arange(MOST_CODES), [int(one) for one in node["threshold"].split("||")])
            continue
        threshold[place] = node["threshold"]
        as_zero = node["missing_type"] == "None"  # no value was missing in the fit: NaN counts as 0 then
        missing[place] = threshold[place] >= 0 if as_zero else node["default_left"]
    return Cuts(feature, threshold, left, right, missing, sides), value


def _below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node and all below it, itself first."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        if "split_feature" in one:
            waiting += [one["right_child"], one["left_child"]]


def _of_xgboost(estimator: Any, outputs: int) -> DumpedTrees:
    told = json.loads(estimator.get_booster().save_raw("json"))["learner"]
    model = told["gradient_booster"]["model"]
    trees, values = [], []
    for tree in model["trees"]:
        left = np.array(tree["left_children"])
        cut = np.array(tree["split_conditions"], np.float32)
        below = np.nextafter(cut, np.float32(-np.inf)).astype(
            np.float64
        )  # less than is at most the one before
        right, missing = np.array(tree["right_children"]), np.array(tree["default_left"], bool)
        trees.append(Cuts(np.array(tree["split_indices"]), below, left, right, missing, {}))
        values.append(cut.astype(np.float64))  # of a leaf
    start = np.array(json.loads(told["learner_model_param"]["base_score"]), np.float64).reshape(-1)
    if told["objective"]["name"] == "binary:logistic":
        start = np.log(start / (1 - start))
    return DumpedTrees(trees, values, list(model["tree_info"]), np.broadcast_to(start, outputs).copy(), True)


def _of_catboost(estimator: Any, outputs: int) -> DumpedTrees:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        estimator.save_model(str(path), format="json")
        told = json.loads(path.read_text())
    infos = told["features_info"]["float_features"]
    to_right = {one["feature_index"]: one["nan_value_treatment"] == "AsTrue" for one in infos}
    scale, bias = told["scale_and_bias"]
    trees: list[Cuts] = []
    values: list[Array] = []
    targets: list[int] = []
    for tree in told["oblivious_trees"]:
        cuts = _level_cuts(tree["splits"] or [], to_right)
        leaves = scale * np.array(tree["leaf_values"]).reshape(-1, outputs)
        for output in range(outputs):
            value = np.zeros(len(cuts.left))
            value[cuts.leaves] = leaves[:, output]
            trees.append(cuts)
            values.append(value)
            targets.append(output)
    return DumpedTrees(
        trees, values, targets, np.broadcast_to(np.array(bias, np.float64), outputs).copy(), True
    )


def _level_cuts(splits: list[dict[str, Any]], to_right: dict[int, bool]) -> Cuts:
    """Return a tree whose nodes of one level all have the same cut, the last split at the root.

    Node n has the children 2n + 1 and 2n + 2: leaves are then in the order of CatBoost's list.
    """
    depth = len(splits)
    inner = (1 << depth) - 1
    level = np.floor(np.log2(np.arange(1, inner + 1))).astype(int)
    ordered = splits[::-1]
    feature, threshold = np.zeros(2 * inner + 1, np.int64), np.zeros(2 * inner + 1)
    feature[:inner] = [ordered[k]["float_feature_index"] for k in level]
    threshold[:inner] = [np.float64(np.float32(ordered[k]["border"])) for k in level]
    left, right = np.full(2 * inner + 1, -1), np.full(2 * inner + 1, -1)
    left[:inner] = 2 * np.arange(inner) + 1
    right[:inner] = 2 * np.arange(inner) + 2
    missing = np.array([not to_right.get(int(one), False) for one in feature])
    return Cuts(feature, threshold, left, right, missing, {})
