"""The families of models: the view of features that each wants, the point that is tried first, and its space."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

from weft.errors import UsageError


@dataclass(frozen=True)
class ModelFamily:
    """A kind of model: the view that it wants, the point that is tried first, and the space of the others."""

    name: str
    view: str
    first: dict[str, Any]
    space: dict[str, str]
    package: str = ""  # that must be installed
    most: int = 10_000  # trials: a small space needs no more


# In this order they are tried first: boosted trees end at any deadline with a model, so that one is there early.
_TREES = {"pairs": "true,false"}
_LINES = {"pairs": "true,false", "steps": "true,false"}
FAMILIES = {
    one.name: one
    for one in (
        ModelFamily(
            "boosting",
            "trees",
            {"rate": 0.08, "leaves": 24, "least": 10, "l2": 1.0, "rows": 1.0, "columns": 0.8, "pairs": False},
            {
                "rate": "log:0.02:0.2",
                "leaves": "int:4:160:log",
                "least": "int:1:100:log",
                "l2": "log:1e-3:30",
                "rows": "float:0.5:1",
                "columns": "float:0.3:1",
                **_TREES,
            },
        ),
        ModelFamily(
            "linear",
            "linear",
            {"penalty": 1.0, "pairs": False, "steps": False},
            {"penalty": "log:1e-3:1e3", **_LINES},
            most=20,
        ),
        ModelFamily(
            "lightgbm",
            "trees",
            {"rate": 0.08, "leaves": 31, "least": 20, "l2": 1.0, "rows": 0.9, "columns": 0.8, "pairs": False},
            {
                "rate": "log:0.02:0.2",
                "leaves": "int:4:160:log",
                "least": "int:2:100:log",
                "l2": "log:1e-3:30",
                "rows": "float:0.5:1",
                "columns": "float:0.3:1",
                **_TREES,
            },
            "lightgbm",
        ),
        ModelFamily(
            "network",
            "linear",
            {
                "width": 96,
                "layers": 2,
                "rate": 3e-3,
                "decay": 0.03,
                "dropout": 0.0,
                "pairs": False,
                "steps": True,
            },
            {
                "width": "int:24:256:log",
                "layers": "int:1:3",
                "rate": "log:5e-4:1e-2",
                "decay": "log:1e-4:0.3",
                "dropout": "float:0:0.5",
                **_LINES,
            },
        ),
        ModelFamily(
            "forest",
            "trees",
            {"trees": 100, "least": 2, "columns": 0.5, "pairs": False},
            {"trees": "ordered:100,200,400", "least": "int:1:30:log", "columns": "float:0.1:1", **_TREES},
            most=16,
        ),
        ModelFamily(
            "xgboost",
            "trees",
            {"rate": 0.08, "depth": 6, "least": 2.0, "l2": 1.0, "rows": 0.9, "columns": 0.8, "pairs": False},
            {
                "rate": "log:0.02:0.2",
                "depth": "int:3:10",
                "least": "log:0.1:50",
                "l2": "log:1e-2:30",
                "rows": "float:0.5:1",
                "columns": "float:0.3:1",
                **_TREES,
            },
            "xgboost",
        ),
        ModelFamily(
            "catboost",
            "trees",
            {"rate": 0.08, "depth": 6, "l2": 3.0, "pairs": False},
            {"rate": "log:0.03:0.2", "depth": "int:4:8", "l2": "log:0.3:30", **_TREES},
            "catboost",
        ),
    )
}


def chosen_families(asked: tuple[str, ...]) -> list[ModelFamily]:
    """Return the families to try: those that were asked for, or all whose package is installed."""
    for name in asked:
        package = FAMILIES[name].package
        if package and importlib.util.find_spec(package) is None:
            raise UsageError(
                f"--model {name} must have the package {package}, got none; pip install {package}"
            )
    wanted = [one for one in FAMILIES.values() if one.name in asked or not asked]
    return [one for one in wanted if not one.package or importlib.util.find_spec(one.package) is not None]
