"""Trees as the arrays of ONNX's TreeEnsemble: inner nodes and leaves apart, and numbered over all trees together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.learn.trees.boosted.ensemble import BoostedTree

Array = np.ndarray[Any, Any]

AT_MOST, MEMBER = 0, 6  # ONNX's numbers of the two kinds of cut that we make


@dataclass(frozen=True)
class Cuts:
    """One tree: rows go left where the feature is at most the threshold, or one of the categories of a side."""

    feature: Array
    threshold: Array
    left: Array  # negative: a leaf
    right: Array
    missing_left: Array
    sides: dict[int, Array]

    @property
    def leaves(self) -> Array:
        return np.flatnonzero(self.left < 0)


@dataclass(frozen=True)
class Ensemble:
    """The arrays that TreeEnsemble wants of all trees; leaves are in the order of the trees, and of their nodes."""

    roots: Array
    features: Array
    modes: Array
    splits: Array
    on_true: Array
    on_false: Array
    true_is_leaf: Array
    false_is_leaf: Array
    missing_is_true: Array
    members: Array  # of each membership, ended by a NaN
    leaves: tuple[int, ...]  # of each tree


def cuts_of_tree(tree: Any) -> Cuts:
    """Return the cuts of a scikit-learn `Tree`."""
    return Cuts(
        tree.feature,
        tree.threshold,
        tree.children_left,
        tree.children_right,
        tree.missing_go_to_left.astype(bool),
        {},
    )


def cuts_of_boosted(tree: BoostedTree) -> Cuts:
    return Cuts(
        tree.feature,
        tree.threshold,
        tree.left,
        tree.right,
        np.asarray(tree.missing_left, bool),
        tree.sides,
    )


def ensemble_of(trees: Sequence[Cuts]) -> Ensemble:
    """Return all trees as one ensemble."""
    parts: list[dict[str, Array]] = []
    members: list[float] = []
    nodes, leaves = 0, 0
    for tree in trees:
        part, some = _part(tree, nodes, leaves)
        parts.append(part)
        members += some
        nodes += len(part["features"])
        leaves += len(tree.leaves)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Ensemble(
        **joined, members=np.array(members, np.float64), leaves=tuple(len(t.leaves) for t in trees)
    )


def _part(tree: Cuts, first_node: int, first_leaf: int) -> tuple[dict[str, Array], list[float]]:
    """The arrays of one tree, and the members of its categorical cuts."""
    leaf = tree.left < 0
    inner = np.flatnonzero(~leaf)
    if not len(inner):  # there must be a node to start from: both its ways lead to the only leaf
        one, none = np.array([1]), np.array([0])
        end = np.array([first_leaf])
        ways = {"on_true": end, "on_false": end, "true_is_leaf": one, "false_is_leaf": one}
        rest = {"roots": none + first_node, "features": none, "modes": none, "splits": np.zeros(1)}
        return {**rest, **ways, "missing_is_true": none}, []
    place = np.where(leaf, first_leaf + np.cumsum(leaf) - 1, first_node + np.cumsum(~leaf) - 1)
    modes = np.full(len(inner), AT_MOST)
    splits = tree.threshold[inner].astype(np.float64)
    on_true, on_false = tree.left[inner].copy(), tree.right[inner].copy()
    missing = tree.missing_left[inner].astype(np.int64)
    members: list[float] = []
    for i, node in enumerate(inner.tolist()):
        side = tree.sides.get(node)
        if side is None:
            continue
        modes[i], splits[i] = MEMBER, 0.0
        if side.sum() > len(side) / 2:  # name the shorter list
            side, missing[i] = ~side, 1 - missing[i]
            on_true[i], on_false[i] = on_false[i], on_true[i]
        # A list must not be empty: no category has the number of the one after the last.
        members += [*map(float, np.flatnonzero(side) if side.any() else [len(side)]), np.nan]
    arrays = {
        "roots": np.array([first_node + int(np.searchsorted(inner, 0))]),
        "features": tree.feature[inner].astype(np.int64),
        "modes": modes,
        "splits": splits,
        "on_true": place[on_true],
        "on_false": place[on_false],
        "true_is_leaf": leaf[on_true].astype(np.int64),
        "false_is_leaf": leaf[on_false].astype(np.int64),
        "missing_is_true": missing,
    }
    return arrays, members
