"""Fitted models as ONNX, to be served anywhere: the same labels, probabilities and predictions.

    onnx.save(to_onnx(model), "model.onnx")

The input is "X", (batch, features). A classifier answers "label" and "probabilities" (LinearSVC: "scores"), a regressor
"prediction". Arithmetic is that of `predict`: trees compare float32 values with float64 thresholds and add up in
float64.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from weft.learn.linear.base import LinearClassifier, LinearModel
from weft.learn.trees.boosted.losses import Exponential, LogLink
from weft.learn.trees.boosted.model import GradientBoosting
from weft.learn.trees.decision_tree import HistogramTree
from weft.learn.trees.exported import Cuts, cuts_of_boosted, cuts_of_tree, ensemble_of
from weft.learn.trees.forest import HistogramForest

if TYPE_CHECKING:
    from onnx import ModelProto

Array = np.ndarray[Any, Any]

OPSET, ML_OPSET, IR = 18, 5, 10  # TreeEnsemble, with float64 and memberships, came with 5
CATEGORIES = 255


def to_onnx(model: Any, *, dtype: Any = np.float32) -> ModelProto:
    """The fitted `model` as ONNX; `dtype` (float32 or float64) is that of its input and of the numbers it answers.

    Columns of categories that came as a frame's are numbers here: the places of the categories in the lists that the
    model's metadata keeps under "categories", and NaN for any other.
    """
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be float32 or float64, got {kind.name}")
    model = getattr(model, "model_", model)  # Snap ML's spellings wrap ours
    check_is_fitted(model)
    graph = OnnxGraph(kind)
    if isinstance(model, LinearModel):
        _linear(graph, model)
    elif isinstance(model, GradientBoosting):
        _boosted(graph, model)
    elif isinstance(model, HistogramTree | HistogramForest):
        _trees(graph, model)
    else:
        raise TypeError(
            f"the model must be a fitted estimator of weft.learn, got {type(model).__name__}; "
            "scikit-learn's own are exported by skl2onnx"
        )
    return graph.model(model)


class OnnxGraph:
    """An ONNX graph under construction: each call adds a node and returns the name of what comes out of it."""

    def __init__(self, dtype: np.dtype[Any]):
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outputs: list[Any] = []

    def constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        array = np.asarray(value)
        if array.dtype.kind in "OUS":
            array = array.astype(str).astype(object)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, *args: str, out: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        name = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(args), [name], **attributes))
        return name

    def cast(self, value: str, dtype: Any, out: str | None = None) -> str:
        return self.add("Cast", value, out=out, to=_type(np.empty(0, dtype)))

    def answer(self, value: str, name: str, columns: int | None) -> None:
        """Make numbers an output, in the dtype of the input; columns=None: one number a row."""
        self.cast(value, self.dtype, out=name)
        self._answer(name, _type(np.empty(0, self.dtype)), columns)

    def labels(self, codes: str, classes: Array) -> None:
        """Make the classes of these places the output "label"."""
        if classes.dtype.kind in "iu":
            classes = classes.astype(np.int64)
        self.add("Gather", self.constant(classes), codes, out="label", axis=0)
        self._answer("label", _type(classes), None)

    def _answer(self, name: str, kind: int, columns: int | None) -> None:
        from onnx import helper

        shape: list[str | int | None] = ["batch"] if columns is None else ["batch", columns]
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def model(self, model: Any) -> ModelProto:
        from onnx import checker, helper

        rows = helper.make_tensor_value_info(
            "X", _type(np.empty(0, self.dtype)), ["batch", int(model.n_features_in_)]
        )
        graph = helper.make_graph(self.nodes, type(model).__name__, [rows], self.outputs, self.constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        made = helper.make_model(graph, opset_imports=opsets, producer_name="weft", ir_version=IR)
        helper.set_model_props(made, _notes(model))
        checker.check_model(made)
        return made


def _type(array: Array) -> int:
    """ONNX's number of an array's type."""
    from onnx import TensorProto, helper

    return int(
        TensorProto.STRING if array.dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(array.dtype)
    )


def _notes(model: Any) -> dict[str, str]:
    """What the numbers do not tell: the estimator, its columns, and what the codes of categories stand for."""
    notes = {"estimator": type(model).__name__}
    if hasattr(model, "feature_names_in_"):
        notes["feature_names"] = json.dumps([str(name) for name in model.feature_names_in_])
    known = model._categories.known if isinstance(model, GradientBoosting) else {}
    if known:
        notes["categories"] = json.dumps(
            {str(column): [str(category) for category in names] for column, names in known.items()}
        )
    return notes


def _linear(graph: OnnxGraph, model: LinearModel) -> None:
    coef = model.coef_.toarray() if sparse.issparse(model.coef_) else np.asarray(model.coef_)
    kind = np.result_type(coef.dtype, graph.dtype)
    flat = coef.ndim == 1  # one number a row
    weights = np.atleast_2d(coef).T.astype(kind)
    margins = graph.add("MatMul", graph.cast("X", kind), graph.constant(weights))
    margins = graph.add("Add", margins, graph.constant(np.atleast_1d(model.intercept_).astype(kind)))
    if not isinstance(model, LinearClassifier):
        if flat:
            margins = graph.add("Squeeze", margins, graph.constant(np.array([1])))
        graph.answer(margins, "prediction", None if flat else weights.shape[1])
        return
    codes = _best(graph, margins, weights.shape[1], kind)
    graph.labels(codes, model.classes_)
    if not hasattr(model, "predict_proba"):
        graph.answer(margins, "scores", weights.shape[1])
    elif getattr(model, "multi_class", "ovr") == "multinomial":
        graph.answer(_shares(graph, margins, weights.shape[1], kind), "probabilities", len(model.classes_))
    else:
        graph.answer(_separate(graph, margins, weights.shape[1], kind), "probabilities", len(model.classes_))


def _best(graph: OnnxGraph, scores: str, columns: int, kind: Any) -> str:
    """The place of the best class of each row: of one column, whether it is above zero."""
    if columns > 1:
        return graph.add("ArgMax", scores, axis=1, keepdims=0)
    above = graph.add("Greater", scores, graph.constant(np.zeros(1, kind)))
    return graph.add("Squeeze", graph.cast(above, np.int64), graph.constant(np.array([1])))


def _shares(graph: OnnxGraph, raw: str, columns: int, kind: Any) -> str:
    """Probabilities of raw scores: of one column those of two classes."""
    if columns > 1:
        return graph.add("Softmax", raw, axis=1)
    return _both(graph, graph.add("Sigmoid", raw), kind)


def _both(graph: OnnxGraph, second: str, kind: Any) -> str:
    """Probabilities of two classes from those of the second."""
    first = graph.add("Sub", graph.constant(np.ones(1, kind)), second)
    return graph.add("Concat", first, second, axis=1)


def _separate(graph: OnnxGraph, margins: str, columns: int, kind: Any) -> str:
    """Probabilities of models that were fitted one for each class."""
    if columns == 1:
        return _shares(graph, margins, columns, kind)
    shares = graph.add("Sigmoid", margins)
    totals = graph.add("ReduceSum", shares, graph.constant(np.array([1])), keepdims=1)
    some = graph.add("Greater", totals, graph.constant(np.zeros(1, kind)))
    safe = graph.add("Where", some, totals, graph.constant(np.ones(1, kind)))
    even = graph.constant(np.full(1, 1 / columns, kind))
    return graph.add("Where", some, graph.add("Div", shares, safe), even)


def _boosted(graph: OnnxGraph, model: GradientBoosting) -> None:
    if model._statistics.columns:
        places = ", ".join(str(one.column) for one in model._statistics.columns)
        raise ValueError(
            f"columns must have at most 255 categories to become ONNX, got more in column {places}; encode them first"
        )
    outputs = len(model.start_)
    trees = [tree for each in model.trees_ for tree in each]
    targets = [output for each in model.trees_ for output in range(len(each))]
    values = [tree.value for tree in trees]
    table = _codes(graph, model._categories.mask(model.n_features_in_))
    sums = _sums(graph, table, list(map(cuts_of_boosted, trees)), values, targets, outputs)
    raw = graph.add("Add", sums, graph.constant(model.start_.astype(np.float64)))
    if not is_classifier(model):
        raw = graph.add("Exp", raw) if isinstance(model._loss, LogLink) else raw
        graph.answer(graph.add("Squeeze", raw, graph.constant(np.array([1]))), "prediction", None)
        return
    graph.labels(_best(graph, raw, outputs, np.float64), model.classes_)
    if isinstance(model._loss, Exponential):
        raw = graph.add("Mul", raw, graph.constant(np.full(1, 2.0)))
    graph.answer(_shares(graph, raw, outputs, np.float64), "probabilities", len(model.classes_))


def _trees(graph: OnnxGraph, model: Any) -> None:
    """A tree, or the mean of many."""
    trees = [each.tree_ for each in getattr(model, "estimators_", [model])]
    if is_classifier(model) and model.n_outputs_ > 1:
        raise ValueError(
            f"a classifier must have one target to become ONNX, got {model.n_outputs_}; fit one model for each"
        )
    count = graph.constant(np.full(1, float(len(trees))))
    cuts = list(map(cuts_of_tree, trees))
    if not is_classifier(model):
        width = model.n_outputs_
        sums = _means(graph, cuts, [tree.value[:, :, 0] for tree in trees])
        mean = graph.add("Div", sums, count)
        if width == 1:
            mean = graph.add("Squeeze", mean, graph.constant(np.array([1])))
        graph.answer(mean, "prediction", None if width == 1 else width)
        return
    values = [tree.value[:, 0, :] for tree in trees]
    if len(model.classes_) == 2:
        second = graph.add("Div", _means(graph, cuts, [one[:, 1:] for one in values]), count)
        shares = _both(graph, second, np.float64)
    else:
        shares = graph.add("Div", _means(graph, cuts, values), count)
    graph.labels(graph.add("ArgMax", shares, axis=1, keepdims=0), model.classes_)
    graph.answer(shares, "probabilities", len(model.classes_))


def _codes(graph: OnnxGraph, categorical: Array) -> str:
    """X as trees read it: rounded to float32, and what is no category missing."""
    table = graph.cast(graph.cast("X", np.float32), np.float64)
    if not categorical.any():
        return table
    mask = graph.constant(categorical[None, :])
    low = graph.add("GreaterOrEqual", table, graph.constant(np.zeros(1)))
    known = graph.add("And", low, graph.add("Less", table, graph.constant(np.full(1, float(CATEGORIES)))))
    whole = graph.add("Where", known, graph.add("Floor", table), graph.constant(np.full(1, np.nan)))
    return graph.add("Where", mask, whole, table)


def _means(graph: OnnxGraph, trees: list[Cuts], values: list[Array]) -> str:
    """The sums over trees of values (nodes, columns) of the leaves."""
    table = _codes(graph, np.zeros(1, bool))
    if values[0].shape[1] == 1:
        return _sums(graph, table, trees, [one[:, 0] for one in values], [0] * len(trees), 1)
    # A leaf of TreeEnsemble has one number only: that of a row in a list of all leaves.
    starts = np.cumsum([0, *(len(tree.leaves) for tree in trees)])
    places = []
    for tree, start in zip(trees, starts, strict=False):
        numbers = np.zeros(len(tree.left))
        numbers[tree.leaves] = np.arange(len(tree.leaves)) + start
        places.append(numbers)
    leaves = _sums(graph, table, trees, places, list(range(len(trees))), len(trees))
    listed = np.concatenate([one[tree.leaves] for tree, one in zip(trees, values, strict=True)])
    found = graph.add("Gather", graph.constant(listed), graph.cast(leaves, np.int64), axis=0)
    return graph.add("ReduceSum", found, graph.constant(np.array([1])), keepdims=0)


def _sums(
    graph: OnnxGraph, table: str, trees: list[Cuts], values: list[Array], targets: list[int], width: int
) -> str:
    """(rows, width): what the trees of each target say, added up."""
    from onnx import numpy_helper

    all_trees = ensemble_of(trees)
    weights = np.concatenate([one[tree.leaves] for tree, one in zip(trees, values, strict=True)])
    attributes: dict[str, Any] = {
        "n_targets": width,
        "aggregate_function": 1,  # sum
        "post_transform": 0,
        "tree_roots": all_trees.roots.tolist(),
        "nodes_featureids": all_trees.features.tolist(),
        "nodes_modes": numpy_helper.from_array(all_trees.modes.astype(np.uint8), "modes"),
        "nodes_splits": numpy_helper.from_array(all_trees.splits, "splits"),
        "nodes_truenodeids": all_trees.on_true.tolist(),
        "nodes_falsenodeids": all_trees.on_false.tolist(),
        "nodes_trueleafs": all_trees.true_is_leaf.tolist(),
        "nodes_falseleafs": all_trees.false_is_leaf.tolist(),
        "nodes_missing_value_tracks_true": all_trees.missing_is_true.tolist(),
        "leaf_targetids": np.repeat(targets, all_trees.leaves).tolist(),
        "leaf_weights": numpy_helper.from_array(weights.astype(np.float64), "weights"),
    }
    if len(all_trees.members):
        attributes["membership_values"] = numpy_helper.from_array(all_trees.members, "members")
    return graph.add("TreeEnsemble", table, domain="ai.onnx.ml", **attributes)
