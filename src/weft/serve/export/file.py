"""The ONNX file itself: what is cleared from it, what is added, and which of its axes are open."""

from __future__ import annotations

import importlib.util
import secrets
from pathlib import Path
from typing import Any

from weft.errors import ModelError
from weft.serve.card import Card, read_card, write_card
from weft.serve.onnx_file import read_metadata

SMALL = 64  # bytes of a tensor that stays in the graph


def require(*modules: str) -> None:
    """Say what is missing, before anything is done."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise ModelError(f"{name} must be installed to export; pip install 'weft[export]'")


def load_graph(path: Path) -> Any:
    """The model's message, weights in other files left there."""
    require("onnx")
    import onnx

    read_metadata(path)  # it says what is missing or cut short
    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:  # of protobuf's, which has no types
        raise ModelError(f"{path} must be an ONNX file: {error}") from error


def save(model: Any, path: Path, *, external: bool) -> None:
    """Write a model in memory, its weights beside it if asked; shapes and the like stay in the graph."""
    import onnx

    # A name of its own each time: onnx refuses a name that is taken in the current folder, whatever the folder of path.
    location = f"{path.name}.{secrets.token_hex(8)}.data"
    onnx.save(model, path, save_as_external_data=external, location=location, size_threshold=SMALL)


def tidy(path: Path) -> None:
    """Take out what the exporter noted for its own makers, such as where the source code lay."""
    import onnx

    model = load_graph(path)
    _clear(model.graph)
    for function in model.functions:
        function.ClearField("metadata_props")
        for node in function.node:
            _clear_node(node)
    onnx.save(model, path)


def _clear(graph: Any) -> None:
    graph.ClearField("metadata_props")
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.ClearField("metadata_props")
    for node in graph.node:
        _clear_node(node)


def _clear_node(node: Any) -> None:
    node.ClearField("metadata_props")
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            if graph.node:
                _clear(graph)


def finish(path: Path, card: Card) -> None:
    """Put the card in."""
    import onnx

    model = load_graph(path)
    write_card(model, card)
    onnx.save(model, path)
    assert read_card(path) == card


def axes_of_inputs(path: Path) -> dict[str, list[int | str]]:
    """By input: numbers for axes that are fixed, names for those that are open."""
    graph = load_graph(path).graph
    return {value.name: shape_of(value) for value in graph.input}


def opset_of(path: Path) -> int:
    """The version of ONNX's own operators."""
    return int(next(used.version for used in load_graph(path).opset_import if used.domain in ("", "ai.onnx")))


def shape_of(value: Any) -> list[int | str]:
    """Numbers, or names of open axes; some makers write -1 for those."""
    sides = value.type.tensor_type.shape.dim
    return [side.dim_value if side.dim_value > 0 else side.dim_param or "?" for side in sides]
