"""Features: the same in Python and in ONNX, and fitted without a look at the row's own target."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from tests.auto.data import mixed_columns

from weft.auto.columns import find_roles
from weft.auto.config import AutoConfig
from weft.auto.features.blocks import DateParts, NumberColumns, SteppedBlocks
from weft.auto.features.view import fit_means, fit_view, step_edges
from weft.auto.features.words import WordWeights, folded, spellings
from weft.auto.frames import RawTable, read_table
from weft.learn.onnx import IR, ML_OPSET, OPSET, OnnxGraph


def in_onnx(block: Any, table: RawTable, kinds: dict[str, str]) -> Any:
    """Return what a block's graph computes of raw columns."""
    graph = OnnxGraph(np.dtype(np.float64))
    out = block.onnx(graph, {name: name for name in kinds})
    graph.answer(out, "features", len(block.names))
    given = [
        helper.make_tensor_value_info(
            n, TensorProto.STRING if k == "text" else TensorProto.DOUBLE, ["batch", 1]
        )
        for n, k in kinds.items()
    ]
    made = helper.make_model(
        helper.make_graph(graph.nodes, "block", given, graph.outputs, graph.constants),
        opset_imports=[
            helper.make_opsetid(*o) for o in (("", OPSET), ("ai.onnx.ml", ML_OPSET), ("com.microsoft", 1))
        ],
        ir_version=IR,
    )
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {name: table.values(name)[:, None] for name in kinds})
    return found


@pytest.mark.parametrize(("kind", "steps"), [("trees", False), ("linear", False), ("linear", True)])
def test_a_view_is_the_same_in_onnx(kind: str, steps: bool) -> None:
    columns = mixed_columns(200)
    table = read_table(columns)
    roles = find_roles(table, AutoConfig(target="y"))
    targets = (np.asarray(columns["y"]) == "yes")[:, None].astype(float)
    view, _ = fit_view(kind, table, roles, targets, pairs=True, seed=0, steps=steps)
    assert steps == any("age from " in name for name in view.names)
    # Rows of another draw have words, categories and holes that the view has not seen.
    other = mixed_columns(80, seed=9)
    other["city"] = ["", "Paris", *other["city"][2:]]
    other["note"] = ["", "GOOD Bad bAd naïve ÉCLAIR", *other["note"][2:]]
    rows = read_table(other)
    wanted = view.transform(rows)
    wanted = wanted.toarray() if hasattr(wanted, "toarray") else wanted
    assert wanted.shape == (80, len(view.names))
    found = in_onnx(view, rows, {role.name: role.kind for role in roles if role.used})
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-5_000_000_000, 7_000_000_000), min_size=1, max_size=20))
def test_parts_of_dates_are_those_of_the_calendar(seconds: list[int]) -> None:
    table = read_table({"when": np.array(seconds, "datetime64[s]")})
    found = DateParts("when", 0.0).transform(table)
    for row, second in zip(found, seconds, strict=True):
        date = datetime.fromtimestamp(second, UTC)
        assert row[:4].tolist() == [date.year, date.month, date.day, date.weekday()]
        assert row[4] == pytest.approx(date.hour + date.minute / 60 + date.second / 3600)


def test_means_of_a_category_do_not_see_the_own_target() -> None:
    """A category of each row alone says nothing: its mean must be that of other rows, whatever its target."""
    random = np.random.default_rng(0)
    names = np.array([f"c{i}" for i in range(400)], object)
    targets = random.normal(size=(400, 1))
    block, own = fit_means("c", names, targets, seed=0)
    assert abs(np.corrcoef(own[:, 0], targets[:, 0])[0, 1]) < 0.2
    later = block.transform(read_table({"c": names.tolist()}))  # a plain mean does see it
    assert np.corrcoef(later[:, 0], targets[:, 0])[0, 1] > 0.9


def test_words_in_three_spellings_are_one() -> None:
    assert [folded(word) for word in ("bad", "Bad", "BAD", "bAd", "Élan")] == [
        "bad",
        "bad",
        "bad",
        "bAd",
        "élan",
    ]
    assert spellings("bad") == ["bad", "BAD", "Bad"]
    words = WordWeights.of(
        "note", np.array(["a cat", "A cat", "a dog", "the Cat rare"] * 3 + ["once"], object)
    )
    assert set(words.vocabulary) == {"a", "cat", "dog", "the", "rare"}
    assert words.buckets > 0  # of "once"


def test_steps_rise_one_after_the_other_between_quantiles() -> None:
    values = np.repeat(np.arange(81.0), 3)
    edges = step_edges(values, 8)
    assert edges[[0, -1]].tolist() == [0, 80]
    assert np.diff(edges) == pytest.approx(10, abs=1)
    plain = NumberColumns(("x",))
    block = SteppedBlocks((plain,), np.zeros(8, int), edges[:-1], np.diff(edges))
    found = block.transform(read_table({"x": [-5.0, edges[2], 99.0, np.nan]}))
    assert found.sum(axis=1).tolist() == [0.0, 2.0, 8.0, 0.0]
    assert not len(step_edges(np.array([0.0, 1.0] * 20), 8))  # a mark needs no steps
    assert not len(step_edges(values, 1))
