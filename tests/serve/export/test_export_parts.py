"""The parts of an export that need no model: comparing, samples, axes, pictures, counting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tests.serve.small_models import write_scaled

from weft.errors import ModelError, ParityError
from weft.serve.card import Card, Picture
from weft.serve.describe import describe, measure
from weft.serve.export.checks.parity import GATES, Comparison, Gate, check, compare, gate_for
from weft.serve.export.pictures import read_picture
from weft.serve.export.sources.axes import another_size, open_axes, parse_dynamic, smaller
from weft.serve.export.sources.samples import Samples, make_up, read_samples, samples_from
from weft.serve.export.workplace import workplace

Array = np.ndarray[Any, Any]
INT8 = GATES["int8"]


# -- parity


def test_the_largest_difference_is_found_where_it_is() -> None:
    source: dict[str, Array] = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((2, 2, 2))}
    file = {name: array.copy() for name, array in source.items()}
    file["a"][0, 1] = 0.25
    file["b"][1, 0, 1] = -0.75
    found = compare(source, file, 2, Gate(), classes=False)
    assert found.largest == 0.75
    assert str(found.worst) == "b[1, 0, 1] in a batch of 2: 0.0 in the model, -0.75 in the file"
    with pytest.raises(
        ParityError, match=r"got a\[0, 1\] in a batch of 2: 0\.0 in the model, 0\.25 in the file"
    ):
        check(found, Gate(), "fp32")  # the first output that differs


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6), st.floats(0, 1e-2), st.floats(0, 1e-2))
def test_the_gate_is_that_of_allclose(values: list[float], rtol: float, atol: float) -> None:
    source = np.array(values)
    for moved in (source, source + atol / 2, source * (1 + rtol * 3) + atol * 3):
        found = compare({"y": source}, {"y": moved}, 1, Gate(rtol=rtol, atol=atol), classes=False)
        assert (found.beyond is None) == np.allclose(moved, source, rtol=rtol, atol=atol)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_must_be_none_in_both(odd: float) -> None:
    gate = Gate()
    odd_one = {"y": np.array([odd, 1.0])}
    assert compare(odd_one, odd_one, 1, gate, classes=False).largest == 0
    for a, b in ((odd, 1.0), (1.0, odd)):
        found = compare({"y": np.array([a])}, {"y": np.array([b])}, 1, gate, classes=False)
        assert found.largest == np.inf
        assert found.beyond is not None


def test_words_and_shapes_must_be_equal() -> None:
    words = {"label": np.array(["cat", "dog"], object)}
    assert compare(words, words, 2, Gate(), classes=False).beyond is None
    other = compare(words, {"label": np.array(["cat", "cow"], object)}, 2, Gate(), classes=False)
    assert str(other.beyond) == "label[1] in a batch of 2: dog in the model, cow in the file"
    with pytest.raises(ParityError, match=r"got y of shape \[1\] in place of \[2\] in a batch of 2"):
        compare({"y": np.zeros(2)}, {"y": np.zeros(1)}, 2, Gate(), classes=False)


def test_int8_is_judged_by_its_classes_where_there_are_classes() -> None:
    source = {"y": np.eye(10)}
    near = {"y": np.eye(10) * 0.5}
    check(compare(source, near, 10, INT8, classes=True), INT8, "int8")
    wrong = {"y": np.roll(np.eye(10), 1, 0) * np.array([[1]] * 2 + [[0]] * 8) + np.eye(10) * 0.5}
    found = compare(source, wrong, 10, INT8, classes=True)
    assert found.agreement == 0.8
    with pytest.raises(ParityError, match=r"must give 90% of the rows the class .* got 80\.0%"):
        check(found, INT8, "int8")
    with pytest.raises(ParityError, match=r"must be within 20% of the model's, got 50\.0%"):
        check(compare(source, near, 10, INT8, classes=False), INT8, "int8")


def test_int8_must_answer_numbers() -> None:
    source, file = {"y": np.eye(4)}, {"y": np.eye(4)}
    file["y"][1, 2] = -np.inf
    found = compare(source, file, 4, INT8, classes=True)
    assert found.agreement == 1.0
    with pytest.raises(ParityError, match=r"must answer numbers where the model does, got y\[1, 2\]"):
        check(found, INT8, "int8")


def test_comparisons_add_up() -> None:
    gate = Gate()
    parts = [
        compare({"y": np.full(3, value)}, {"y": np.full(3, value + 0.1 * value)}, 3, gate, classes=False)
        for value in (1.0, 4.0, 2.0)
    ]
    total = sum(parts, Comparison())
    assert total.largest == pytest.approx(0.4)
    assert total.worst == parts[1].worst
    assert total.beyond == parts[0].beyond
    assert total.error == pytest.approx(0.1)


def test_tolerances_that_are_asked_for_replace_the_usual_gate() -> None:
    assert gate_for("int8", None, None) is INT8
    assert gate_for("int8", None, 0.5) == Gate(rtol=0.0, atol=0.5)


# -- samples


def test_rows_are_taken_in_turn() -> None:
    samples = samples_from(np.arange(3.0))
    assert samples.rows(5, 2)["#0"].tolist() == [2, 0, 1, 2, 0]
    assert [batch["#0"].tolist() for batch in samples.batches(2)] == [[0, 1], [2]]
    assert samples.inputs["#0"].dtype == np.float32  # of float64


def test_shapes_become_random_rows() -> None:
    made = make_up(["3,4", "ids=7:int64:50", "keep=2:bool"])
    assert made.made_up
    assert {name: (array.shape, array.dtype.name) for name, array in made.inputs.items()} == {
        "#0": ((8, 3, 4), "float32"),
        "ids": ((8, 7), "int64"),
        "keep": ((8, 2), "bool"),
    }
    assert 2 < made.inputs["ids"].max() < 50


@pytest.mark.parametrize("shape", ["x", "3,-1", "3:int65", "3:int64:0", "3:int64:5:6"])
def test_shapes_that_are_none(shape: str) -> None:
    with pytest.raises(ModelError, match="a shape must look like"):
        make_up([shape])


def test_samples_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    np.savez(tmp_path / "x.npz", left=np.zeros((4, 2)), right=np.zeros((4, 3)), y=np.arange(4))
    assert read_samples(tmp_path / "x.npy").inputs["#0"].shape == (4, 2)
    named = read_samples(tmp_path / "x.npz")
    assert sorted(named.inputs) == ["left", "right"]
    assert named.truth is not None
    assert named.truth.tolist() == [0, 1, 2, 3]


def test_samples_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "poem.npy").write_text("a poem")
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    (tmp_path / "empty").mkdir()
    for path, told in (
        ("none.npy", "got no"),
        ("poem.npy", "must be in an .npy"),
        ("words.npy", "must be numbers"),
    ):
        with pytest.raises(ModelError, match=told):
            read_samples(tmp_path / path)
    with pytest.raises(ModelError, match="must be said for a folder"):
        read_samples(tmp_path / "empty")
    with pytest.raises(ModelError, match="must have pictures"):
        read_samples(tmp_path / "empty", Picture(height=2, width=2))
    with pytest.raises(ModelError, match="as many rows for each input"):
        Samples({"a": np.zeros(2), "b": np.zeros(3)})


# -- pictures


def test_pictures_in_folders_named_as_classes(tmp_path: Path) -> None:
    for label, channel in (("red", 2), ("blue", 0)):
        (tmp_path / label).mkdir()
        pixels = np.zeros((20, 10, 3), np.uint8)
        pixels[:, :, channel] = 255
        cv2.imwrite(str(tmp_path / label / "one.png"), pixels)
    rules = Picture(height=4, width=6, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    samples = read_samples(tmp_path, rules, ("red", "blue"))
    assert samples.truth is not None
    assert samples.truth.tolist() == [1, 0]  # in the order of their names
    rows = samples.inputs["#0"]
    assert rows.shape == (2, 3, 4, 6)
    assert rows[:, :, 0, 0].tolist() == [[-1, -1, 1], [1, -1, -1]]
    assert read_samples(tmp_path, rules, ("red", "green")).truth is None


def test_the_rules_of_resizing(tmp_path: Path) -> None:
    # Left half black, right half white, twice as broad as high.
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, 20:] = 255
    cv2.imwrite(str(tmp_path / "p.png"), pixels)

    def read(**rules: Any) -> Array:
        return read_picture(tmp_path / "p.png", Picture(**({"height": 8, "width": 8, "scale": 1.0} | rules)))

    assert read(resize="stretch")[0, 4].tolist()[::7] == [0, 255]
    padded = read(resize="pad")
    assert (padded[:, :2] == 114).all()
    assert (padded[:, 6:] == 114).all()
    assert padded[0, 4, 0] == 0
    cropped = read(resize="crop")
    assert cropped[0, 4, 0] == 0  # the middle is kept
    assert cropped[0, 4, 7] == 255
    assert read(layout="NHWC").shape == (8, 8, 3)
    assert read(colours="GREY").shape == (1, 8, 8)
    cv2.imwrite(str(tmp_path / "p.png"), np.broadcast_to(np.array([3, 2, 1], np.uint8), (8, 8, 3)))
    assert read(colours="BGR")[:, 0, 0].tolist() == [3, 2, 1]
    assert read(colours="RGB")[:, 0, 0].tolist() == [1, 2, 3]


def test_what_is_no_picture_is_told(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_text("a poem")
    with pytest.raises(ModelError, match="must be a picture"):
        read_picture(tmp_path / "p.png", Picture(height=2, width=2))


# -- axes


def test_words_for_axes() -> None:
    inputs = {"x": np.zeros((2, 3, 8, 6)), "ids": np.zeros((2, 5), int), "mask": np.zeros((2, 5), bool)}
    assert open_axes(inputs, ("height", "width", "length")) == {
        "x": {0: "batch", 2: "height", 3: "width"},
        "ids": {0: "batch", 1: "length"},
        "mask": {0: "batch", 1: "length"},
    }
    nhwc = Picture(height=8, width=6, layout="NHWC")
    assert open_axes({"x": np.zeros((2, 8, 6, 3))}, ("width",), nhwc) == {"x": {0: "batch", 2: "width"}}
    assert parse_dynamic(("ids.1=length",)) == {"ids": {1: "length"}}
    with pytest.raises(ModelError, match="an input must have the axis 'height'"):
        open_axes({"ids": inputs["ids"]}, ("height",))
    for wrong in (("a=b",), ("height", "ids.1=length")):
        with pytest.raises(ModelError, match="dynamic ax"):
            parse_dynamic(wrong)


def test_another_size_is_asked_for_open_axes() -> None:
    cut = smaller({"x": np.zeros((2, 3, 64, 9))}, {"x": {0: "batch", 2: "height", 3: "width"}})
    assert cut is not None
    assert cut["x"].shape == (2, 3, 32, 6)
    assert smaller({"x": np.zeros((2, 3))}, {"x": {0: "batch"}}) is None


@given(st.integers(2, 4096))
def test_another_size_is_smaller_and_keeps_to_steps(size: int) -> None:
    other = another_size(size)
    assert 1 <= other < size
    step = next((step for step in (32, 16, 8, 4, 2) if size > step and size % step == 0), 1)
    assert other % step == 0


# -- the place where a file is made

WORK = """
import sys
from pathlib import Path
from weft.serve.export.workplace import workplace
with workplace(Path(sys.argv[1])) as draft:
    draft.write_text("half a file")
    print(draft, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path: Path) -> None:
    target = tmp_path / "m.onnx"
    command = [sys.executable, "-c", WORK, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        draft = Path(maker.stdout.readline().strip())
        with workplace(target) as other:
            assert draft.exists()  # its maker lives
            assert other.parent != draft.parent
        maker.kill()
    assert draft.exists()
    with workplace(tmp_path / "other.onnx"):
        assert draft.exists()  # another file's
    with workplace(target):
        assert not draft.parent.exists()
    assert list(tmp_path.iterdir()) == []


# -- counting


def layered(path: Path) -> Path:
    """Conv 3->8 (3x3) on 10x10, Gemm 8->4, MatMul 4->2."""
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "g": (8, 4), "m": (4, 2)}
    weights = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["h"]),
        helper.make_node("MatMul", ["h", "m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layered",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    from weft.serve.card import write_card

    write_card(model, Card(picture=Picture(height=10, width=10)))
    onnx.save(model, path)
    return path


def test_parameters_and_operations_are_counted(tmp_path: Path) -> None:
    path = layered(tmp_path / "m.onnx")
    found = describe(path)
    assert found.parameters == 8 * 27 + 8 + 32 + 8
    assert found.flops == 2 * (8 * 100 * 27) + 2 * (4 * 8) + 2 * (2 * 4)
    assert found.uncounted == 0
    assert [str(port) for port in found.inputs] == ["x float32[batch, 3, height, width]"]
    latency = measure(path, found, runs=3, threads=1)
    assert latency.median_ms > 0
    assert (latency.runs, latency.threads) == (3, 1)


def test_open_axes_are_as_given_or_as_the_card_says_or_as_usual(tmp_path: Path) -> None:
    path = layered(tmp_path / "m.onnx")
    assert describe(path).row == {"x": (3, 10, 10)}
    larger = describe(path, {"x": (3, 20, 10)})
    assert larger.row == {"x": (3, 20, 10)}
    assert larger.flops > 1.9 * describe(path).flops
    with pytest.raises(ModelError, match=r"must fit x float32\[batch, 3, height, width\], got \[4, 20, 10\]"):
        describe(path, {"x": (4, 20, 10)})
    model = onnx.load(path)
    del model.metadata_props[:]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1  # as some makers write it
    onnx.save(model, path)
    found = describe(path)
    assert found.row == {"x": (3, 224, 224)}
    assert found.inputs[0].shape == ("?", 3, "height", "width")
    assert measure(path, found, runs=1).median_ms > 0


def test_a_model_of_another_maker_is_described(tmp_path: Path) -> None:
    found = describe(write_scaled(tmp_path / "m.onnx"))
    assert (found.card, found.flops, found.parameters, found.opset) == (Card(), 0, 3, 20)
