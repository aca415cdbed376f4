"""A tree as text, by scikit-learn, and as a picture, with nothing to install: an SVG that any browser shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.tree import export_text
from sklearn.utils.validation import check_is_fitted

__all__ = ["export_svg", "export_text"]

WIDTH, HEIGHT, ACROSS, DOWN = 150, 58, 12, 46  # of a box, and the space between boxes


@dataclass(frozen=True)
class Box:
    """One node of the picture: where it is, in boxes from the left and levels from the top, and what it says."""

    node: int
    place: float
    level: int
    lines: tuple[str, ...]
    shade: float  # 0: mixed, 1: pure
    children: tuple[int, ...]  # places in the list of boxes


def export_svg(
    model: Any,
    path: str | Path | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    max_depth: int = 4,
    decimals: int = 2,
) -> str:
    """Draw a fitted tree, as far as `max_depth`; returns the SVG, and writes it to `path` if there is one."""
    check_is_fitted(model, "tree_")
    names = list(feature_names) if feature_names is not None else _names(model)
    if len(names) != model.tree_.n_features:
        raise ValueError(f"feature_names must be {model.tree_.n_features} names, got {len(names)}")
    labels = None
    if is_classifier(model):
        labels = list(map(str, model.classes_ if class_names is None else class_names))
    boxes = layout(model.tree_, names, labels, max_depth, decimals)
    picture = _svg(boxes)
    if path is not None:
        Path(path).write_text(picture)
    return picture


def _names(model: Any) -> list[str]:
    known = getattr(model, "feature_names_in_", None)
    return list(known) if known is not None else [f"feature {i}" for i in range(model.tree_.n_features)]


def layout(tree: Any, names: list[str], labels: list[str] | None, max_depth: int, decimals: int) -> list[Box]:
    """The boxes, children before parents: leaves side by side, each parent above the middle of its children."""
    boxes: list[Box] = []
    free = 0
    worst = max(float(tree.impurity[0]), 1e-300)

    def add(node: int, level: int) -> int:
        nonlocal free
        inner = tree.children_left[node] >= 0
        children: tuple[int, ...] = ()
        if inner and level < max_depth:
            children = (
                add(tree.children_left[node], level + 1),
                add(tree.children_right[node], level + 1),
            )
            place = (boxes[children[0]].place + boxes[children[1]].place) / 2
        else:
            place = float(free)
            free += 1
        lines = _lines(tree, node, names, labels, decimals)
        shade = 1 - min(1.0, float(tree.impurity[node]) / worst)
        boxes.append(Box(node, place, level, lines, shade, children))
        return len(boxes) - 1

    add(0, 0)
    return boxes


def _lines(
    tree: Any, node: int, names: list[str], labels: list[str] | None, decimals: int
) -> tuple[str, ...]:
    inner = tree.children_left[node] >= 0
    cut = f"{names[tree.feature[node]]} ≤ {tree.threshold[node]:.{decimals}f}"
    value = tree.value[node, 0]
    best = int(np.argmax(value))
    says = f"{labels[best]} {value[best]:.{decimals}f}" if labels else f"{value[0]:.{decimals}f}"
    return (*([cut] if inner else []), f"{tree.n_node_samples[node]:,} rows", says)


def _svg(boxes: list[Box]) -> str:
    def x(box: Box) -> float:
        return ACROSS + box.place * (WIDTH + ACROSS) + WIDTH / 2

    def y(box: Box) -> float:
        return ACROSS + box.level * (HEIGHT + DOWN)

    width = max(x(box) for box in boxes) + WIDTH / 2 + ACROSS
    height = max(y(box) for box in boxes) + HEIGHT + ACROSS
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="12" text-anchor="middle">'
    ]
    for box in boxes:
        for side, child in zip(("yes", "no"), box.children, strict=False):
            end = boxes[child]
            parts.append(
                f'<path d="M{x(box):g} {y(box) + HEIGHT:g} L{x(end):g} {y(end):g}" stroke="#888"/>'
                f'<text x="{(x(box) + x(end)) / 2:g}" y="{(y(box) + HEIGHT + y(end)) / 2:g}" fill="#666">{side}</text>'
            )
    for box in boxes:
        light = 98 - 26 * box.shade
        parts.append(
            f'<rect x="{x(box) - WIDTH / 2:g}" y="{y(box):g}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
            f'fill="hsl(210,70%,{light:.0f}%)" stroke="#567"/>'
        )
        for line, text in enumerate(box.lines):
            parts.append(f'<text x="{x(box):g}" y="{y(box) + 18 + 16 * line:g}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>"])
