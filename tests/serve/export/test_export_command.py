"""`weft export` and `weft model`, as people type them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from testing.forking.server import EXPORTS, ForkServer
from tests.serve.export.nets import pictures
from tests.serve.small_models import write_scaled

from weft.cli import group
from weft.cli.models.export import parse_picture
from weft.errors import ModelError, UsageError
from weft.serve.card import Card, Picture, read_card

NETS = str(Path(__file__).with_name("nets.py"))
LABELS = ("north", "east", "south", "west")

pytestmark = pytest.mark.xdist_group("export command")  # its fixture takes seconds to make


def weft(*args: object, code: int = 0) -> Result:
    """Run in this process: torch is here already."""
    result = CliRunner().invoke(group, list(map(str, args)))
    if isinstance(result.exception, UsageError):
        assert code == result.exception.exit_code, result.exception
        return result
    assert result.exit_code == code, (result.output, result.exception)
    return result


def refusal(*args: object) -> str:
    return str(weft(*args, code=2).exception)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights, samples, labels."""
    home = tmp_path_factory.mktemp("files")
    net = pictures()
    torch.save(net.state_dict(), home / "w.pt")
    rows = torch.randn(20, 3, 16, 16)
    with torch.no_grad():
        truth = net.eval()(rows).argmax(1)
    np.savez(home / "rows.npz", pictures=rows.numpy(), y=truth.numpy())
    (home / "labels.txt").write_text("\n".join(LABELS))
    return home


@pytest.mark.long
def test_from_weights_to_a_model_in_the_store(folder: Path, tmp_path: Path, forks: ForkServer) -> None:
    """One process a command, as in a shell."""
    command = [forks.load(*EXPORTS).weft]
    env = os.environ | {"WEFT_STORE": str(tmp_path / "store"), "COLUMNS": "200"}

    def run(*args: object) -> str:
        done = subprocess.run(
            [*command, *map(str, args)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if args[0] == "export":
            steps = ("asking the model", "writing the graph", "checking fp32 against the model")
            assert done.stderr.splitlines() == [f"weft: {step}" for step in steps]
        else:
            assert done.stderr == ""
        return done.stdout

    (tmp_path / "nets.py").write_text(Path(NETS).read_text())
    rules = "size=16,mean=0.5,0.5,0.5,std=0.25,0.25,0.25,scale=1/255,resize=stretch"
    given = ("--weights", folder / "w.pt", "--sample", folder / "rows.npz", "--labels", folder / "labels.txt")
    table = run("export", "nets:Pictures", *given, "--picture", rules, "--run", "run-7", "-o", "m.onnx")
    head, row, last = table.splitlines()
    assert head.split() == [
        "precision",
        "size",
        "one",
        "row",
        "largest",
        "difference",
        "same",
        "class",
        "accuracy",
    ]
    assert row.split()[0] == "fp32"
    assert row.split()[-4:] == ["100.0%", "100.0%", "(model", "100.0%)"]
    assert last == "m.onnx: agrees with the model on given samples, in batches of 1, 2, 5 and all at once"

    pushed = json.loads(run("model", "push", "m.onnx", "compass", "--alias", "production", "--json"))
    assert (pushed["name"], pushed["version"], pushed["aliases"]) == ("compass", 1, ["latest", "production"])
    shown = run("model", "show", "compass@production", "--runs", 3, "--threads", 1)
    facts = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert facts["task"] == "classify"
    assert facts["labels"] == "north, east, south, west"
    assert facts["input"] == "pictures float32[batch, 3, 16, 16]"
    assert facts["parameters"] == "260"
    assert facts["operations"].startswith("111 kFLOPs in Conv")
    assert facts["latency"].endswith("for one row (median of 3, 1 thread)")
    assert facts["run"] == "run-7"
    assert "resize stretch" in facts["picture"]
    assert "same class 100.0%" in facts["parity"]


def test_the_store_from_the_command_line(tmp_path: Path) -> None:
    model = write_scaled(tmp_path / "m.onnx", card=Card(name="m"))
    store = ("--store", tmp_path / "store")

    def data(*args: object) -> Any:
        return json.loads(weft("model", *args, *store, "--json").stdout)

    empty = weft("model", "list", *store)
    assert (empty.stdout, empty.stderr) == ("", "no models; keep one with weft model push FILE.onnx\n")
    assert data("list") == []
    assert [data("push", model)["version"] for _ in range(3)] == [1, 2, 3]
    assert data("tag", "m@1", "production")["aliases"] == ["production"]
    assert "m@1    production" in weft("model", "list", "m", *store).stdout
    assert "got production; tag another version" in refusal("model", "rm", "m@1", *store)
    assert data("untag", "m@production")["aliases"] == []
    assert [entry["version"] for entry in data("rm", "m@1")] == [1]
    assert [entry["version"] for entry in data("verify")] == [2, 3]
    out = tmp_path / "out.onnx"
    assert weft("model", "pull", "m@2", "-o", out, *store).stdout == f"{out}\n"
    assert out.read_bytes() == model.read_bytes()
    assert "must not exist yet" in refusal("model", "pull", "m@2", "-o", out, *store)
    weft("model", "pull", "m@2", "-o", out, "--force", *store)
    shown = data("show", "m", "--runs", 0)
    assert (shown["entry"]["version"], shown["latency"], shown["parameters"]) == (3, None, 3)
    for wrong, told in (("m@canary", "aliases latest"), ("n", "it has m"), ("m@9", "versions 2, 3")):
        assert told in refusal("model", "show", wrong, *store)
    assert "must be one version" in refusal("model", "rm", "m", *store)
    assert len(data("rm", "m", "--all")) == 2


def test_a_broken_file_is_told(tmp_path: Path) -> None:
    whole = write_scaled(tmp_path / "m.onnx").read_bytes()
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(whole[:-20])
    assert "cut short" in refusal("model", "show", cut)
    assert "cut short" in refusal("model", "push", cut, "--store", tmp_path / "store")
    assert "got nothing there" in refusal("model", "show", tmp_path / "none.onnx")
    far = write_scaled(tmp_path / "far.onnx", external=True)
    (tmp_path / "far.onnx.data").unlink()
    assert "must have its weights beside it" in refusal("model", "show", far)


def test_random_samples_are_called_so(tmp_path: Path) -> None:
    shapes = ("--shape", "ids=6:int64:50", "--shape", "mask=6:bool")
    out = tmp_path / "m.onnx"
    done = weft(
        "export", f"{NETS}:Sentences", *shapes, "--dynamic", "length", "--tokens", 6, "-o", out, "--json"
    )
    card = read_card(out)
    assert card.parity is not None
    assert card.parity.samples == "random"
    assert card.tokens is not None
    data = json.loads(done.stdout)
    assert data["card"] == json.loads(json.dumps(card.to_json()))
    assert [step["precision"] for step in data["steps"]] == ["fp32"]


def test_int8_calibrated_on_pictures_in_folders_named_as_the_labels(folder: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for label in LABELS:
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(3):
            pixels = random.integers(0, 256, (20, 24, 3), np.uint8)
            cv2.imwrite(str(tmp_path / "photos" / label / f"{number}.png"), pixels)
    out = tmp_path / "m.onnx"
    given = ("--weights", folder / "w.pt", "--labels", folder / "labels.txt", "--picture", "size=16")
    more = ("--precision", "int8", "--calibration", tmp_path / "photos", "-o", out)
    table = weft("export", f"{NETS}:Pictures", *given, *more).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["precision", "fp32", "int8", f"{out}:"]
    parity = read_card(out).parity
    assert parity is not None
    assert parity.samples == "given"
    assert parity.accuracy_source is not None  # of the folders' names


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["netz:net", "--shape", "3"], "netz must be a module that Python finds"),
        ([f"{NETS}:Picture", "--shape", "3"], "do you mean Pictures?"),
        ([f"{NETS}:raises", "--shape", "3"], "must give a model, got RuntimeError: the factory is closed"),
        ([f"{NETS}:Pictures"], "give --sample FILE, or --shape 3,224,224"),
        ([f"{NETS}:Pictures", "--shape", "4,8,8"], "must take the samples, pictures float32 [1, 4, 8, 8]"),
        ([f"{NETS}:Pictures", "--shape", "3", "--sample", NETS], "got both"),
        ([f"{NETS}:Pictures", "--shape", "3,8,8", "--precision", "int8"], "must be calibrated on samples"),
        ([f"{NETS}:Pictures", "--shape", "3,8,8", "--labels", "none.txt"], "--labels must be a text file"),
        ([f"{NETS}:Pictures", "--shape", "3,8,8", "--batches", "1,x"], "--batches must be whole numbers"),
        ([f"{NETS}:Pictures", "--shape", "3,8,8", "--picture", "mean=1"], "must have size=224"),
        ([f"{NETS}:Pictures", "--calibration", "none.npz"], "got none.npz (No such file"),
        ([f"{NETS}:Undecided", "--shape", "3"], "`weft serve module:factory` serves it in torch"),
    ],
)
def test_exports_that_are_refused(tmp_path: Path, args: list[str], told: str) -> None:
    out = tmp_path / "m.onnx"
    assert told in refusal("export", *args, "-o", out)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_check_is_a_failure_and_leaves_no_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        group, ["export", f"{NETS}:Frozen", "--shape", "2", "-o", str(tmp_path / "m.onnx")]
    )
    assert result.exception is not None
    assert getattr(result.exception, "exit_code", None) == 1
    assert "in a batch of 5" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_rules_for_pictures_are_read() -> None:
    found = parse_picture(
        "size=24x32,mean=0.1,0.2,0.3,std=1,2,4,crop=0.875,resize=pad,layout=nhwc,colours=bgr,scale=1/2"
    )
    assert found == Picture(
        height=24,
        width=32,
        mean=(0.1, 0.2, 0.3),
        std=(1, 2, 4),
        crop=0.875,
        resize="pad",
        layout="NHWC",
        colours="BGR",
        scale=0.5,
    )
    assert parse_picture("height=8,width=9") == Picture(height=8, width=9)
    for wrong in (
        "size=big",
        "24",
        "sise=24",
        "size=24,mean=a,b,c",
        "size=24,scale=1/0",
        "size=8,resize=wrap",
    ):
        with pytest.raises(ModelError):
            parse_picture(wrong)
