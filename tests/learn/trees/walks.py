"""Two trees compared split for split."""

from __future__ import annotations

from typing import Any

import numpy as np


def same_splits(ours: Any, theirs: Any) -> int:
    """Walk two of scikit-learn's `Tree`s together; returns how many nodes are alike, and asserts that they are.

    Where two cuts are equally good, either may be taken: the walk ends there.
    """
    alike, waiting = 0, [(0, 0)]
    while waiting:
        a, b = waiting.pop()
        assert ours.n_node_samples[a] == theirs.n_node_samples[b]
        np.testing.assert_allclose(ours.value[a], theirs.value[b], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(ours.impurity[a], theirs.impurity[b], rtol=1e-9, atol=1e-9)
        first, second = ours.children_left[a], theirs.children_left[b]
        if (first < 0) != (second < 0):
            # Rounding decides whether a node of one class is worth a split.
            assert (
                max(ours.impurity[a], theirs.impurity[b]) < 1e-9 or _gain(ours, a) + _gain(theirs, b) < 1e-9
            )
            continue
        if first < 0:
            alike += 1
            continue
        if ours.feature[a] != theirs.feature[b] or ours.threshold[a] != theirs.threshold[b]:
            np.testing.assert_allclose(_gain(ours, a), _gain(theirs, b), rtol=1e-9, atol=1e-9)
            continue
        assert ours.missing_go_to_left[a] == theirs.missing_go_to_left[b]
        alike += 1
        waiting.append((first, second))
        waiting.append((ours.children_right[a], theirs.children_right[b]))
    return alike


def _gain(tree: Any, node: int) -> float:
    """How much impurity the node's split takes away, weighted."""
    sums = tree.weighted_n_node_samples * tree.impurity
    left, right = tree.children_left[node], tree.children_right[node]
    return float(sums[node] - sums[left] - sums[right]) if left >= 0 else 0.0
