from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serve.small_models import scaled, write_scaled

from weft.errors import ModelError
from weft.serve.card import KEY, Card, Parity, Picture, Tokens, card_metadata, read_card, write_card
from weft.serve.onnx_file import external_files, read_metadata

FULL = Card(
    name="digits",
    task="classify",
    labels=("null", "eins", "zwei"),
    features=("breadth",),
    picture=Picture(height=24, width=32, resize="pad", crop=0.875, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0)),
    tokens=Tokens(limit=128, pad=1),
    run="run-7",
    precision="int8",
    parity=Parity(
        largest=1e-5, agreement=0.99, batches=(1, 2, 5), samples="random", accuracy=0.9, accuracy_source=0.91
    ),
    versions={"torch": "2.13", "opset": "20"},
    created="2026-01-02T03:04:05+00:00",
    notes="of the second kind",
)


def test_a_card_travels_in_the_file(tmp_path: Path) -> None:
    path = write_scaled(tmp_path / "m.onnx", card=FULL)
    assert read_card(path) == FULL
    onnx.checker.check_model(str(path))
    assert read_metadata(path)["weft.labels"] == "null, eins, zwei"  # for people with other tools


def test_onnx_runtime_gives_the_same_metadata(tmp_path: Path) -> None:
    import onnxruntime

    path = write_scaled(tmp_path / "m.onnx", card=FULL)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert read_card(session.get_modelmeta().custom_metadata_map) == FULL


def test_a_file_without_a_card_is_a_plain_one(tmp_path: Path) -> None:
    assert read_card(write_scaled(tmp_path / "m.onnx")) == Card()
    assert Card().task == "tensor"


def test_writing_a_card_replaces_ours_and_keeps_the_rest() -> None:
    model = scaled(card=FULL)
    onnx.helper.set_model_props(
        model, {"author": "someone", **{p.key: p.value for p in model.metadata_props}}
    )
    write_card(model, Card(name="other"))
    props = {prop.key: prop.value for prop in model.metadata_props}
    assert read_card(props) == Card(name="other")
    assert props["author"] == "someone"
    assert "weft.labels" not in props


def test_names_of_a_later_version_are_left_alone() -> None:
    data = FULL.to_json() | {"colour_of_the_sky": "blue"}
    assert read_card({KEY: json.dumps(data)}) == FULL


@pytest.mark.long
@given(
    st.builds(
        Card,
        name=st.text(max_size=20),
        labels=st.lists(st.text(max_size=8), max_size=4).map(tuple),
        task=st.sampled_from(["classify", "detect", "regress", "embed", "tensor"]),
        tokens=st.none() | st.builds(Tokens, limit=st.integers(1, 9999), pad=st.integers(0, 9)),
        parity=st.none()
        | st.builds(
            Parity, largest=st.floats(0, 1), agreement=st.none() | st.floats(0, 1), batches=st.just((1, 2))
        ),
        versions=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    )
)
def test_any_card_is_read_as_it_was_written(card: Card) -> None:
    assert read_card(card_metadata(card)) == card


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "must be JSON"),
        ("[]", "must be an object, got list"),
        ('{"labels": "cat"}', "card.labels must be a list, got str"),
        ('{"task": "guess"}', "task must be one of classify"),
        ('{"picture": {"height": "8", "width": 8}}', "card.picture.height must be int, got str"),
        ('{"picture": {"height": true, "width": 8}}', "must be int, got bool"),
        ('{"picture": {"height": 8}}', "width"),
        ('{"parity": 3}', "card.parity must be an object"),
    ],
)
def test_a_broken_card_is_told(text: str, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        read_card({KEY: text})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"height": 0, "width": 8}, "at least 1 x 1"),
        ({"height": 8, "width": 8, "mean": (1.0,)}, "mean must have 3 numbers for RGB, got 1"),
        ({"height": 8, "width": 8, "std": (1.0, 0.0, 1.0)}, "std must be positive"),
        ({"height": 8, "width": 8, "crop": 1.5}, "crop must be a share"),
        ({"height": 8, "width": 8, "scale": float("nan")}, "scale must be a positive number"),
        ({"height": 8, "width": 8, "layout": "CHW"}, "layout must be one of NCHW, NHWC"),
        ({"height": 8, "width": 8, "colours": "CMYK"}, "colours must be one of"),
    ],
)
def test_rules_for_pictures_are_checked(fields: dict[str, float], told: str) -> None:
    with pytest.raises(ModelError, match=told):
        Picture(**fields)  # type: ignore[arg-type]


def test_grey_pictures_have_one_channel() -> None:
    assert Picture(height=8, width=8, colours="GREY", mean=(0.5,)).channels == 1


def test_weights_outside_the_file_are_found(tmp_path: Path) -> None:
    assert external_files(write_scaled(tmp_path / "one.onnx")) == ()
    assert external_files(write_scaled(tmp_path / "two.onnx", external=True)) == ("two.onnx.data",)


def test_weights_in_another_folder_are_refused(tmp_path: Path) -> None:
    model = scaled()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../secret")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"in the model's own folder, got '\.\./\.\./secret'"):
        external_files(tmp_path / "m.onnx")


def test_every_file_that_is_cut_short_is_found_out(tmp_path: Path) -> None:
    whole = write_scaled(tmp_path / "m.onnx", card=FULL).read_bytes()
    graph_ends = whole.index(KEY.encode())  # metadata comes after the graph
    cut = tmp_path / "cut.onnx"
    for length in range(0, graph_ends - 8, 7):
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelError, match=r"ONNX file"):
            read_metadata(cut)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_model_or_told(bytes_: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(bytes_)
        with suppress(ModelError):
            read_metadata(path)
            external_files(path)


def test_a_folder_or_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="got nothing there"):
        read_card(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="that can be read"):
        read_card(tmp_path)


def test_cards_and_stores_need_neither_torch_nor_onnx() -> None:
    code = (
        "import sys, weft, weft.cli.models.export, weft.cli.models.model, weft.serve.card, weft.serve.store\n"
        "weft.serve.Store\n"
        "print([name for name in ('torch', 'onnx', 'onnxruntime', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
