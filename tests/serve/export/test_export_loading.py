"""Models and weights as the command line names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.serve.export.nets import Pictures, pictures

from weft.errors import ModelError
from weft.serve.export.sources.loading import load_model, load_weights, make_model

NETS = str(Path(__file__).with_name("nets.py"))


@pytest.fixture
def trained() -> Pictures:
    net = pictures()
    torch.nn.init.normal_(net.head.weight)
    return net


def save_plain(net: Pictures, folder: Path) -> Path:
    torch.save(net.state_dict(), folder / "w.pt")
    return folder / "w.pt"


def save_wrapped(net: Pictures, folder: Path) -> Path:
    state = {f"module.{name}": value for name, value in net.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": state}, folder / "w.pth")
    return folder / "w.pth"


def save_safe(net: Pictures, folder: Path) -> Path:
    from safetensors.torch import save_file

    save_file(net.state_dict(), folder / "w.safetensors")
    return folder / "w.safetensors"


def save_distributed(net: Pictures, folder: Path) -> Path:
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    state = {"app": {"model": net.state_dict(), "step": 3, "other": {"head.weight": torch.zeros(2)}}}
    with pytest.warns(UserWarning, match="single process"):
        save(state, storage_writer=FileSystemWriter(folder / "saved"), no_dist=True)
    return folder / "saved"


@pytest.mark.parametrize("save", [save_plain, save_wrapped, save_safe, save_distributed])
def test_weights_are_read_from_each_kind_of_file(tmp_path: Path, trained: Pictures, save: Any) -> None:
    net = load_model(f"{NETS}:Pictures", save(trained, tmp_path))
    assert type(net).__name__ == "Pictures"
    for name, value in trained.state_dict().items():
        assert torch.equal(net.state_dict()[name], value), name


def test_weights_of_another_model_are_told(tmp_path: Path, trained: Pictures) -> None:
    state = trained.state_dict()
    del state["conv.weight"]
    state["head.weight"] = torch.zeros(3, 8)
    state |= {f"extra{number}": torch.zeros(1) for number in range(7)}
    torch.save(state, tmp_path / "w.pt")
    told = (
        r"got missing conv\.weight; unexpected extra0, extra1, extra2, extra3, extra4 and 2 more; "
        r"of another shape head\.weight \[3, 8\] in place of \[4, 8\]"
    )
    with pytest.raises(ModelError, match=told):
        load_weights(pictures(), tmp_path / "w.pt")


def test_a_checkpoint_of_another_model_is_told(tmp_path: Path, trained: Pictures) -> None:
    folder = save_distributed(trained, tmp_path)
    with pytest.raises(ModelError, match=r"missing ln\.weight"):
        load_weights(torch.nn.ModuleDict({"conv": trained.conv, "ln": torch.nn.LayerNorm(3)}), folder)
    with pytest.raises(ModelError, match=r"unexpected head\.bias, head\.weight, norm"):
        load_weights(torch.nn.ModuleDict({"conv": trained.conv}), folder)
    narrow = pictures()
    narrow.head = torch.nn.Linear(8, 2)
    with pytest.raises(ModelError, match=r"of another shape head\.weight"):
        load_weights(narrow, folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"must be a checkpoint of torch\.distributed"):
        load_weights(pictures(), tmp_path / "empty")


def test_what_are_no_weights_is_told(tmp_path: Path) -> None:
    (tmp_path / "poem.pt").write_text("a poem")
    torch.save([1, 2], tmp_path / "list.pt")
    for name, told in (
        ("poem.pt", "must be a state dict"),
        ("list.pt", "got list"),
        ("none.pt", "nothing there"),
    ):
        with pytest.raises(ModelError, match=told):
            load_weights(pictures(), tmp_path / name)
    with pytest.raises(ModelError, match="must be for a torch module, got str"):
        load_weights("a model", tmp_path / "poem.pt")


def test_a_whole_pickled_module_is_not_run(tmp_path: Path) -> None:
    torch.save(pictures(), tmp_path / "whole.pt")
    with pytest.raises(ModelError, match=r"save model\.state_dict\(\)"):
        load_weights(pictures(), tmp_path / "whole.pt")


def test_factories() -> None:
    assert isinstance(make_model("tests.serve.export.nets:pictures"), Pictures)
    assert isinstance(make_model("tests.serve.export.nets:Pictures"), Pictures)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nets", "must be MODULE:FACTORY"),
        ("no.such.thing:make", "must be a module that Python finds"),
        ("none.py:make", "must be a Python file"),
        ("tests.serve.export.nets:picture", "do you mean pictures?"),
        ("tests.serve.export.nets:raises", "must give a model, got RuntimeError: the factory is closed"),
    ],
)
def test_names_that_lead_nowhere(name: str, told: str) -> None:
    with pytest.raises(ModelError) as error:
        make_model(name)
    assert told in str(error.value)


def test_a_module_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1 / 0")
    (tmp_path / "b.py").write_text("import no_such_module_anywhere")
    with pytest.raises(ModelError, match="cannot be imported: ZeroDivisionError"):
        make_model(f"{tmp_path}/a.py:make")
    with pytest.raises(ModelError, match="cannot be imported: ModuleNotFoundError"):
        make_model(f"{tmp_path}/b.py:make")
