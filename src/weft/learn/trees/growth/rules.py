"""The rules of splitting, decided once for all nodes: when a node may be split, and what a cut is judged by."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from weft.learn.trees.growth.packing import Packing
from weft.learn.trees.kernels.split import PAIR

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Constraints:
    """The constraints of a tree: how its value may turn with each feature, and which features may meet on a path."""

    signs: Array | None = None  # (features,): 1 up, -1 down, 0 either way
    sets: Array | None = None  # (sets, features) bool: all features of a path are of one set

    def of_columns(self, origins: Array) -> Constraints:
        """Return the constraints of a table whose columns come from these."""
        return Constraints(
            None if self.signs is None else self.signs[origins],
            None if self.sets is None else self.sets[:, origins],
        )

    @property
    def any(self) -> bool:
        return self.signs is not None or self.sets is not None


@dataclass(frozen=True)
class SplitRules:
    """The rules by which a node may be split and a cut is judged."""

    packing: Packing
    criterion: int
    max_depth: int = 1 << 30
    min_split: int = 2
    min_rows: int = 1
    min_weight: float = 0.0
    min_gain: float = 0.0
    l2: float = 0.0
    classes: bool = False  # the target is a class: a node of one class is a leaf
    max_features: int = 1 << 30
    max_leaves: int = 0  # 0: any number; else those that gain most are split
    constraints: Constraints = field(default_factory=lambda: Constraints())

    @cached_property
    def asked(self) -> int | None:
        """The criterion as kernels take it: None, where N and A share the only word."""
        return None if self.packing.paired and self.criterion == PAIR else self.criterion

    @property
    def kinds(self) -> tuple[int | None, int | None, int | None]:
        """The criterion as `search_group` takes it, in the place of the packing that it reads: paired, counted, any."""
        if self.asked is None:
            return self.criterion, None, None
        counted = self.packing.counted and self.criterion == PAIR
        return (None, self.criterion, None) if counted else (None, None, self.criterion)

    @cached_property
    def limits(self) -> Array:
        least = max(float(self.min_rows) if self.packing.fields[0].scale == 1.0 else 0.0, self.min_weight)
        # Sides that hold no row are never looked at, so that one row need not be counted.
        rows = self.min_rows if self.min_rows > 1 else 0
        return np.array(
            [rows, self.min_weight, self.l2, self.min_gain, float(self.classes), least], np.float64
        )
