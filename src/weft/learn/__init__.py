"""Estimators with scikit-learn's names and meaning, many times faster: change the import, keep the script.

    from weft.learn import LogisticRegression

Numba, SciPy and scikit-learn are loaded when the first name is used; torch only by `together()`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "LogisticRegression": "weft.learn.linear.logistic",
    "LinearRegression": "weft.learn.linear.least_squares",
    "Ridge": "weft.learn.linear.least_squares",
    "Lasso": "weft.learn.linear.elastic_net",
    "ElasticNet": "weft.learn.linear.elastic_net",
    "LinearSVC": "weft.learn.linear.svc",
    "DecisionTreeClassifier": "weft.learn.trees.decision_tree",
    "DecisionTreeRegressor": "weft.learn.trees.decision_tree",
    "GradientBoostingClassifier": "weft.learn.trees.boosting",
    "GradientBoostingRanker": "weft.learn.trees.ranker",
    "GradientBoostingRegressor": "weft.learn.trees.boosting",
    "RandomForestClassifier": "weft.learn.trees.forest",
    "RandomForestRegressor": "weft.learn.trees.forest",
    "coefficients": "weft.learn.explaining",
    "export_svg": "weft.learn.trees.picture",
    "export_text": "weft.learn.trees.picture",
    "shap_values": "weft.learn.trees.shapley",
    "to_onnx": "weft.learn.onnx",
    "together": "weft.learn.workers.group",
}

__all__ = [
    "DecisionTreeClassifier",
    "DecisionTreeRegressor",
    "ElasticNet",
    "GradientBoostingClassifier",
    "GradientBoostingRanker",
    "GradientBoostingRegressor",
    "Lasso",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "RandomForestClassifier",
    "RandomForestRegressor",
    "Ridge",
    "coefficients",
    "export_svg",
    "export_text",
    "shap_values",
    "to_onnx",
    "together",
]

if TYPE_CHECKING:
    from weft.learn.explaining import coefficients
    from weft.learn.linear.elastic_net import ElasticNet, Lasso
    from weft.learn.linear.least_squares import LinearRegression, Ridge
    from weft.learn.linear.logistic import LogisticRegression
    from weft.learn.linear.svc import LinearSVC
    from weft.learn.onnx import to_onnx
    from weft.learn.trees.boosting import GradientBoostingClassifier, GradientBoostingRegressor
    from weft.learn.trees.decision_tree import DecisionTreeClassifier, DecisionTreeRegressor
    from weft.learn.trees.forest import RandomForestClassifier, RandomForestRegressor
    from weft.learn.trees.picture import export_svg, export_text
    from weft.learn.trees.ranker import GradientBoostingRanker
    from weft.learn.trees.shapley import shap_values
    from weft.learn.workers.group import together


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'weft.learn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
