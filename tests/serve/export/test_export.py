"""Real exports of small models, run in ONNX Runtime and compared with the models they came from."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.serve.export.nets import Frozen, Moody, Pair, Sentences, Undecided, pictures
from torch import nn

from weft.errors import ModelError, ParityError
from weft.serve.card import Card, Picture, Tokens, read_card
from weft.serve.export import Exported, export
from weft.serve.export.file import axes_of_inputs
from weft.serve.export.sources.torch_source import TorchExportSource
from weft.serve.onnx_file import external_files

pytestmark = pytest.mark.xdist_group("exports")  # its fixture takes seconds to make

LABELS = ("north", "east", "south", "west")


@dataclass
class Made:
    done: Exported
    net: nn.Module
    told: list[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The net of pictures, left in training mode, as fp32 and int8."""
    folder = tmp_path_factory.mktemp("exports")
    net = pictures().train()
    net.drop.eval()
    rows = torch.randn(40, 3, 16, 16)
    with torch.no_grad():
        truth = pictures().eval()(rows).argmax(1).numpy()
    truth[:4] = (truth[:4] + 1) % 4  # so that the model is right for nine of ten
    told: list[str] = []
    card = Card(
        name="compass", labels=LABELS, picture=Picture(height=16, width=16), run="run-7", notes="a test"
    )
    done = export(
        net,
        rows,
        folder / "m.onnx",
        card=card,
        dynamic=("height", "width"),
        precision="int8",
        truth=truth,
        tell=told.append,
    )
    return Made(done, net, told)


def run(path: Path, **inputs: Any) -> list[np.ndarray[Any, Any]]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def test_the_file_says_all_that_is_known(made: Made) -> None:
    card = read_card(made.done.path)
    assert card == made.done.card
    assert (card.name, card.task, card.labels, card.run) == ("compass", "classify", LABELS, "run-7")
    assert (card.precision, card.versions["opset"], card.versions["torch"]) == (
        "int8",
        "20",
        torch.__version__,
    )
    assert card.parity is not None
    assert (card.parity.batches, card.parity.samples) == ((1, 2, 5), "given")
    assert card.created.endswith("+00:00")


def test_each_precision_was_checked_and_its_accuracy_told(made: Made) -> None:
    fp32, int8 = made.done.steps
    assert (fp32.precision, int8.precision) == ("fp32", "int8")
    assert fp32.parity.largest < 1e-5
    assert (fp32.parity.agreement, fp32.parity.accuracy) == (1.0, 0.9)
    assert fp32.parity.largest < int8.parity.largest < 1
    assert int8.parity.agreement is not None
    assert int8.parity.agreement >= 0.9
    assert int8.parity.accuracy is not None
    assert int8.parity.accuracy_source == 0.9
    assert int8.parity.largest > 0
    assert made.told[0] == "asking the model"
    assert "making int8" in made.told


def test_int8_is_written_as_pairs_of_quantize_and_dequantize(made: Made) -> None:
    model = onnx.load(made.done.path)
    kinds = {node.op_type for node in model.graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= kinds
    weights = [tensor for tensor in model.graph.initializer if list(tensor.dims) == [8, 3, 3, 3]]
    assert [tensor.data_type for tensor in weights] == [onnx.TensorProto.INT8]


def test_the_mode_of_every_part_is_as_before(made: Made) -> None:
    assert [part.training for part in made.net.modules()] == [True, True, True, False, True]
    assert made.net.state_dict()["norm.num_batches_tracked"] == 0


def test_open_axes_are_open(made: Made) -> None:
    assert axes_of_inputs(made.done.path) == {"pictures": ["batch", 3, "height", "width"]}
    rows = np.random.default_rng(0).standard_normal((7, 3, 20, 9), dtype=np.float32)
    (answer,) = run(made.done.path, pictures=rows)
    with torch.no_grad():
        expected = pictures().eval()(torch.from_numpy(rows)).numpy()
    assert np.abs(answer - expected).max() < 0.1


def test_what_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name)
    )
    with pytest.raises(
        ModelError, match=r"onnxscript must be installed to export; pip install 'weft\[export\]'"
    ):
        export(pictures(), torch.zeros(2, 3, 8, 8), tmp_path / "m.onnx")


def test_nothing_but_the_file_is_left(made: Made) -> None:
    assert [path.name for path in made.done.path.parent.iterdir()] == ["m.onnx"]
    assert str(Path(__file__).parent).encode() not in made.done.path.read_bytes()  # where the source code lay


@pytest.mark.long
def test_tokens_of_any_length_and_a_mask_in_a_file_that_would_be_too_large(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    net = Sentences()
    ids = torch.randint(0, 50, (3, 12))
    mask = torch.rand(3, 12) > 0.3
    noise = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = noise.level
    monkeypatch.setenv("WEFT_RUN_ID", "run-9")
    monkeypatch.setattr("weft.serve.export.api.LARGEST", 1000)  # bytes, as if that were all a file can hold
    done = export(
        net,
        {"mask": mask, "ids": ids},
        tmp_path / "tokens.onnx",
        card=Card(tokens=Tokens(limit=12)),
        dynamic=("length",),
    )
    assert axes_of_inputs(done.path) == {"ids": ["batch", "length"], "mask": ["batch", "length"]}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["tokens.onnx", *external_files(done.path)]
    )
    assert (done.card.task, done.card.run) == ("tensor", "run-9")
    assert done.parity.agreement is None
    more, all_of_them = np.arange(30).reshape(1, 30), np.ones((1, 30), bool)
    (answer,) = run(done.path, ids=more, mask=all_of_them)
    with torch.no_grad():
        expected = net(torch.from_numpy(more), torch.from_numpy(all_of_them)).numpy()
    np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)
    assert capfd.readouterr() == ("", "")  # not a word about torchvision
    assert noise.level == level


def test_two_inputs_two_outputs_half_precision_weights_apart(tmp_path: Path) -> None:
    net = Pair().double().float()
    rows = np.random.default_rng(0).standard_normal((6, 3)), np.random.default_rng(1).standard_normal((6, 5))
    done = export(net, rows, tmp_path / "pair.onnx", precision="fp16", external_data=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["pair.onnx", *external_files(done.path)]
    )
    assert 0 < done.parity.largest < 1e-2
    assert done.steps[-1].size == sum(path.stat().st_size for path in tmp_path.iterdir()) - _card_bytes(done)
    left, right = (array.astype(np.float32) for array in rows)
    total, first = run(done.path, left=left, right=right)
    assert (total.dtype, total.shape, first.shape) == (np.float32, (6, 40), (6,))
    with torch.no_grad():
        expected = net(torch.from_numpy(left), torch.from_numpy(right))
    np.testing.assert_allclose(total, expected["total"].numpy(), atol=1e-2)
    np.testing.assert_allclose(first, expected["first"].numpy(), atol=1e-2)


def _card_bytes(done: Exported) -> int:
    """The card is put in after the size was taken."""
    model = onnx.load(done.path, load_external_data=False)
    with_card = model.ByteSize()
    del model.metadata_props[:]
    return int(with_card - model.ByteSize())


def test_a_file_that_answers_otherwise_is_not_left(tmp_path: Path) -> None:
    target = tmp_path / "frozen.onnx"
    target.write_text("what was there before")
    with pytest.raises(ParityError) as error:
        export(Frozen(), torch.tensor([[1.0, 3.0], [2.0, -4.0]]), target)
    told = str(error.value)
    # Rows 1 and 2 of the batches before; the fifth row begins again with the second sample.
    assert "got output[0, 1] in a batch of 5: -8.0 in the model, -4.0 in the file" in told
    assert "x.size()[0] <= 3" in told  # why
    assert [path.name for path in tmp_path.iterdir()] == ["frozen.onnx"]
    assert target.read_text() == "what was there before"


def test_the_first_node_that_differs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the exporter had written the second layer wrongly."""
    write = TorchExportSource.write

    def badly(self: TorchExportSource, path: Path, *args: Any, **options: Any) -> None:
        write(self, path, *args, **options)
        model = onnx.load(path)
        (bias,) = [tensor for tensor in model.graph.initializer if tensor.name == "3.bias"]
        bias.CopyFrom(onnx.numpy_helper.from_array(np.full(4, 3, np.float32), "3.bias"))
        onnx.save(model, path)

    monkeypatch.setattr(TorchExportSource, "write", badly)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    with pytest.raises(ParityError, match=r"the first node that differs is linear_1$"):
        export(net, torch.randn(4, 3), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_decides_by_values_is_told_to_be_served_in_torch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = r"decides in Python by the values of its tensors \(in forward, .*nets\.py:\d+\).*weft serve module:factory"
    with pytest.raises(ModelError, match=told):
        export(Undecided(), torch.ones(2, 3), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_model_that_answers_twice_is_told(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="must give the same answer to the same rows, got two: output"):
        export(Moody(), torch.ones(4, 8), tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"samples": torch.zeros(2, 4, 8, 8)}, r"must take the samples, pictures float32 \[1, 4, 8, 8\]"),
        (
            {"samples": {"photos": torch.zeros(2, 3, 8, 8)}},
            r"arguments of forward, \(pictures\), got 'photos'",
        ),
        ({"samples": (torch.zeros(2, 3, 8, 8), torch.zeros(2, 3))}, "got 2 arrays"),
        ({"samples": torch.zeros(0, 3, 8, 8)}, "must have rows"),
        ({"samples": None}, "must be exported with samples"),
        ({"path": "m.pt"}, "must be named .onnx"),
        ({"path": "none/m.onnx"}, "in a folder that exists"),
        ({"precision": "int4"}, "precision must be one of fp32, fp16, int8"),
        ({"opset": 7}, "opset must be 18 to 25, got 7"),
        ({"batches": (0,)}, "at least 1"),
        ({"dynamic": ("depth",)}, "a dynamic axis must be height, width, length"),
        ({"dynamic": {"pictures": {9: "depth"}}}, "must have the axis 9"),
        ({"dynamic": {"photos": {1: "depth"}}}, "must be of an input, pictures; got 'photos'"),
        ({"card": Card(picture=Picture(height=9, width=8))}, "pictures as the card says"),
        ({"truth": np.zeros(3)}, "must be one a row, 2 of them"),
        ({"model": "a model"}, "must be a torch module or a fitted estimator of weft.learn, got str"),
        ({"model": nn.Linear(2, 2).half()}, r"must have float32 weights.*got torch\.float16"),
    ],
)
def test_requests_that_cannot_be_carried_out(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    request: dict[str, Any] = {
        "model": pictures(),
        "samples": torch.zeros(2, 3, 8, 8),
        "path": "m.onnx",
    } | change
    model, samples, name = request.pop("model"), request.pop("samples"), request.pop("path")
    with pytest.raises(ModelError, match=told):
        export(model, samples, tmp_path / name, **request)
    assert list(tmp_path.iterdir()) == []
