"""Checkpoints of strangers, samples that say nothing, labels that do not fit, and exports that are killed."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from click.testing import CliRunner
from tests.serve.export.nets import Pictures, pictures
from tests.serve.export.test_export_loading import save_distributed
from tests.serve.small_models import write_scaled
from torch import nn

from weft.cli.models.export import command
from weft.errors import ModelError, ParityError
from weft.learn import Ridge
from weft.serve.card import Card
from weft.serve.export import export
from weft.serve.export.checks.asking import check_labels
from weft.serve.export.checks.parity import GATES, check, compare, gate_for
from weft.serve.export.file import axes_of_inputs, save
from weft.serve.export.sources.checkpoint import MetadataUnpickler
from weft.serve.export.sources.loading import load_model, load_weights
from weft.serve.export.sources.outputs import name_outputs
from weft.serve.export.sources.samples import Samples, make_up
from weft.serve.export.workplace import publish
from weft.serve.onnx_file import external_files

# -- pickles ---------------------------------------------------------------------------------------


class Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, (f"open({str(self.path)!r}, 'w').close()",))


def test_a_checkpoint_of_a_stranger_runs_no_code(tmp_path: Path) -> None:
    folder = save_distributed(pictures(), tmp_path)
    (folder / ".metadata").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(ModelError, match=r"got UnpicklingError: it wants to use builtins\.exec"):
        load_weights(pictures(), folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"ctorch\nload\n.",
        b"ctorch.serialization\nload\n.",
        b"cos\nsystem\n.",
        b"\x80\x04\x8c\x05torch\x8c\x0dSize.__base__\x93.",
        b"ctorch.distributed.checkpoint.metadata\nos\n.",
    ],
)
def test_only_what_describes_a_checkpoint_is_unpickled(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m").write_bytes(content)
    with (tmp_path / "m").open("rb") as file, pytest.raises(pickle.UnpicklingError, match="it wants to use"):
        MetadataUnpickler(file).load()


def test_a_checkpoint_names_files_of_its_own_folder(tmp_path: Path) -> None:
    folder = save_distributed(pictures(), tmp_path)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for place in metadata.storage_data.values():
        place.relative_path = "../saved/" + place.relative_path
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(ModelError, match="outside the folder"):
        load_weights(pictures(), folder)
    (folder / ".metadata").write_bytes(pickle.dumps(None))
    with pytest.raises(ModelError, match="it holds NoneType in place of a description"):
        load_weights(pictures(), folder)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "an empty file"), (b"a poem", "another kind of file"), (b"\x80\x02}.", "another kind|got")],
)
def test_files_that_are_no_weights_are_named(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(ModelError, match=why):
        load_weights(pictures(), tmp_path / "w.pt")


@pytest.mark.parametrize("body", ["raise SystemExit(7)", "def net():\n    raise SystemExit(7)"])
def test_a_module_that_exits_is_told(tmp_path: Path, body: str) -> None:
    (tmp_path / "exiting.py").write_text("import sys\n" + body + "\n")
    with pytest.raises(ModelError, match="SystemExit: 7"):
        load_model(f"{tmp_path / 'exiting.py'}:net")


class Exiting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise SystemExit(7)


def test_a_forward_that_exits_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="SystemExit"):
        export(Exiting(), torch.ones(2, 3), tmp_path / "m.onnx")


# -- samples and labels ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    rows = np.ones((4, 3), np.float32)
    rows[2, 1] = value
    with pytest.raises(ModelError, match=rf"must be finite numbers, got {value} in x at \[2, 1\]"):
        Samples({"x": rows}).check_finite(missing=False)
    with pytest.raises(ModelError, match="samples must be finite numbers"):
        export(nn.Linear(3, 2), rows, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_values_that_are_missing_may_be_in_a_table() -> None:
    Samples({"X": np.array([[1.0, np.nan]])}).check_finite(missing=True)
    Samples({"ids": np.array([[1, 2]])}).check_finite(missing=False)


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 0 - x / 0


def test_a_model_that_answers_no_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match=r"the model must answer numbers, got nan in output\[0, 0\]"):
        export(Broken(), torch.ones(2, 3), tmp_path / "m.onnx")


def test_labels_are_counted_against_the_classes() -> None:
    scores = {"output": np.zeros((2, 10), np.float32), "first": np.zeros((2,), np.float32)}
    for count in (5, 1000):
        with pytest.raises(ModelError, match=f"as many as the model has classes, 10, got {count}"):
            check_labels(Card(task="classify", labels=("a",) * count), scores)
    check_labels(Card(task="classify", labels=("a",) * 10), scores)
    check_labels(Card(task="detect", labels=("a",) * 80), scores)
    check_labels(Card(task="classify", labels=("no", "yes")), {"output": np.zeros((2, 1), np.float32)})


def test_shapes_and_batches_that_fill_the_memory_are_refused() -> None:
    with pytest.raises(ModelError, match=r"a shape must take at most 4.0 GiB for 8 rows"):
        make_up(["1000000,1000000"])
    with pytest.raises(ModelError, match=r"batches must take at most 4.0 GiB"):
        make_up(["3,224,224"]).check_batches([1, 10**9])
    make_up(["3,224,224"]).check_batches([1, 2, 5])


@pytest.mark.parametrize("tolerance", ["nan", "inf", "-1"])
def test_tolerances_are_numbers(tmp_path: Path, tolerance: str) -> None:
    with pytest.raises(ModelError, match=r"rtol must be a number of at least 0, got"):
        export(nn.Linear(3, 2), torch.ones(2, 3), tmp_path / "m.onnx", rtol=float(tolerance))


def test_an_estimator_that_was_not_fitted_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(Ridge()))
    result = CliRunner().invoke(command, [str(tmp_path / "m.pkl"), "-o", str(tmp_path / "m.onnx")])
    assert "an estimator must be fitted to be exported, got Ridge that is not" in str(result.exception)


# -- half precision --------------------------------------------------------------------------------


def test_half_precision_is_judged_by_agreement() -> None:
    scores = np.random.default_rng(0).standard_normal((100, 10)).astype(np.float32) * 8
    off = scores.copy()
    off[3, 4] += 0.0125  # one number of a thousand, beyond every usual tolerance
    gate = GATES["fp16"]
    check(compare({"output": scores}, {"output": off}, 100, gate, classes=True), gate, "fp16")
    with pytest.raises(
        ParityError, match=r"within 2% of the model's, got .*; where that is near enough, say so with"
    ):
        check(compare({"o": scores}, {"o": scores * 1.1}, 100, gate, classes=True), gate, "fp16")
    with pytest.raises(
        ParityError, match=r"95% of the rows the class .* got 0\.0%; .* with --rtol and --atol"
    ):
        check(compare({"o": scores}, {"o": -scores}, 100, gate, classes=True), gate, "fp16")
    strict = gate_for("fp16", None, 1e-3)
    with pytest.raises(ParityError, match=r"within rtol 0\.0, atol 0\.001, .*say so with --rtol and --atol"):
        check(compare({"o": scores}, {"o": off}, 100, strict, classes=True), strict, "fp16")


# -- answers ---------------------------------------------------------------------------------------


class DynamicCache:
    """Stands for the cache of a language model: no tensor, no tuple."""


class Pair(NamedTuple):
    low: torch.Tensor
    high: torch.Tensor


def test_answers_inside_answers_are_named_by_their_place() -> None:
    one = torch.ones(1)
    given = {"logits": one, "loss": None, "hidden": (one, one), "parts": {"a": one, "pair": Pair(one, one)}}
    assert list(name_outputs(given)) == [
        "logits",
        "hidden.0",
        "hidden.1",
        "parts.a",
        "parts.pair.low",
        "parts.pair.high",
    ]
    assert list(name_outputs((one, [one]))) == ["output_0", "output_1.0"]


def test_a_cache_is_named_and_the_way_out_is_told() -> None:
    given = {"logits": torch.ones(1), "past_key_values": DynamicCache()}
    with pytest.raises(
        ModelError, match="got DynamicCache in its member past_key_values; call it with use_cache=False"
    ):
        name_outputs(given)
    with pytest.raises(
        ModelError, match="got int in its member count; wrap it in a module that leaves it out"
    ):
        name_outputs({"logits": torch.ones(1), "count": 3})


class Nested(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"b": x + 1, "inside": {"z": x * 2, "a": (x * 3, x - 1)}}


def test_nested_answers_are_exported_in_their_order(tmp_path: Path) -> None:
    done = export(Nested(), torch.randn(4, 3), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(done.path)
    names = [output.name for output in session.get_outputs()]
    assert names == ["b", "inside.z", "inside.a.0", "inside.a.1"]
    row = np.ones((1, 3), np.float32)
    assert [float(answer[0, 0]) for answer in session.run(None, {"x": row})] == [2.0, 2.0, 3.0, 0.0]


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.steps = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found, _ = self.steps(self.table(ids))
        result: torch.Tensor = self.head(found[:, -1])
        return result


def test_a_recurrent_network_takes_sequences_of_any_length(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Sequences()
    ids = torch.randint(0, 50, (4, 12))
    done = export(net, ids, tmp_path / "m.onnx", dynamic=("length",), external_data=True)
    assert axes_of_inputs(done.path) == {"ids": ["batch", "length"]}
    longer = torch.randint(0, 50, (3, 31))
    (answer,) = onnxruntime.InferenceSession(done.path).run(None, {"ids": longer.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(answer, net(longer).numpy(), rtol=1e-4, atol=1e-5)


# -- weights outside the graph ---------------------------------------------------------------------


def answer_of(path: Path) -> float:
    (answer,) = onnxruntime.InferenceSession(path).run(None, {"x": np.ones((1, 3), np.float32)})
    return float(answer[0, 0])


def draft(folder: Path, factor: float, token: str) -> Path:
    """A model as an export has it before it is published."""
    folder.mkdir(exist_ok=True)
    return write_scaled(folder / f"m.{token * 16}.onnx", factor, external=True)


def test_a_killed_export_leaves_the_old_model_or_the_new_one(tmp_path: Path) -> None:
    target = tmp_path / "m.onnx"
    publish(draft(tmp_path / "d", 6.0, "a"), target)
    draft(tmp_path / "d", 1002.0, "b")
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom weft.serve.export.workplace import publish\n"
        "kept, stop, done = Path.replace, int(sys.argv[3]), []\n"
        "def replace(self, to):\n"
        "    done.append(to)\n"
        "    if len(done) > stop: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return kept(self, to)\n"
        "Path.replace = replace\n"
        "publish(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    graph = tmp_path / "d" / f"m.{'b' * 16}.onnx"
    killed = subprocess.run([sys.executable, "-c", code, graph, target, "1"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert answer_of(target) == 6.0  # not 2000: the new weights are there, under their own name
    publish(draft(tmp_path / "d", 7.0, "c"), target)
    assert answer_of(target) == 7.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "m.cccccccccccccccc.onnx.data", "m.onnx"]


def test_weights_that_another_graph_uses_stay(tmp_path: Path) -> None:
    publish(draft(tmp_path / "d", 6.0, "a"), tmp_path / "m.onnx")
    (tmp_path / "copy.onnx").write_bytes((tmp_path / "m.onnx").read_bytes())
    (tmp_path / "foreign.data").touch()
    publish(draft(tmp_path / "d", 7.0, "b"), tmp_path / "m.onnx")
    assert (answer_of(tmp_path / "copy.onnx"), answer_of(tmp_path / "m.onnx")) == (6.0, 7.0)
    assert (tmp_path / "foreign.data").exists()


def test_a_second_export_with_weights_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("weft.serve.export.file.SMALL", 0)
    model = onnx.load(write_scaled(tmp_path / "one.onnx", 5.0))
    for _ in range(2):
        save(model, tmp_path / "m.onnx", external=True)  # onnx looks in the current folder for the name
        assert answer_of(tmp_path / "m.onnx") == 5.0


def test_two_exports_of_one_model_leave_one_file_of_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    net = Pictures()
    for _ in range(2):
        export(net, torch.randn(2, 3, 16, 16), "m.onnx", external_data=True, batches=(1,))
        names = sorted(path.name for path in tmp_path.iterdir())
        assert len(names) == 2
        assert names == sorted(["m.onnx", *external_files(Path("m.onnx"))])
