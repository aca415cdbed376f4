"""Stores that are damaged, or that a stranger made: one broken name costs that name, and nothing escapes a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper
from tests.serve.small_models import scaled, write_scaled

from weft.cli.models.model import command
from weft.errors import ModelError, UsageError
from weft.serve.onnx_file import external_files
from weft.serve.store import Store
from weft.serve.store.catalogue import Catalogue, check_weights_name


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two names with one version each."""
    store = Store(tmp_path / "store")
    for name in ("good", "other"):
        store.push(write_scaled(tmp_path / f"{name}.onnx"))
    return store


def invoke(store: Store | Path, *arguments: str) -> Result:
    folder = store.folder if isinstance(store, Store) else store
    return CliRunner().invoke(command, [*arguments, "--store", str(folder)])


def catalogue_of(store: Store, name: str) -> Any:
    return json.loads((store.folder / name / "catalogue.json").read_text())


def change(**fields: Any) -> bytes:
    whole = {"next": 2, "aliases": {}, "versions": {"1": version()}}
    return json.dumps(whole | fields).encode()


def version(*names: str) -> dict[str, Any]:
    files = [{"name": name, "sha256": "0" * 64, "size": 1} for name in names or ("model.onnx",)]
    return {"files": files, "created": "2026-01-01"}


BROKEN = {
    "torn": b'{"next": 2',
    "binary": b"\xff\xfe\x00",
    "empty": b"",
    "list": b"[]",
    "deep": b"[" * 100_000,
    "no files": change(versions={"1": {"files": [], "created": ""}}),
    "text": change(next="two"),
    "no model first": change(versions={"1": version("weights.data")}),
    "escaping": change(versions={"1": version("model.onnx", "../../.bashrc")}),
    "hidden": change(versions={"1": version("model.onnx", ".bash_aliases")}),
    "code": change(versions={"1": version("model.onnx", "usercustomize.py")}),
    "version 0": change(versions={"0": version()}),
    "number again": change(next=1),
    "alias of none": change(aliases={"production": 7}),
    "alias that is a path": change(aliases={"../x": 1}),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_catalogue_costs_its_name_alone(store: Store, kind: str) -> None:
    (store.folder / "other" / "catalogue.json").write_bytes(BROKEN[kind])
    assert [entry.name for entry in store.list()] == ["good"]
    assert store.names() == ("good", "other")
    assert set(store.damaged()) == {"other"}
    for act in (lambda: store.list("other"), lambda: store.resolve("other"), lambda: store.rm("other@1")):
        with pytest.raises(ModelError, match="the catalogue of other cannot be read"):
            act()
    listed = invoke(store, "list")
    assert (listed.exit_code, "good@1" in listed.stdout) == (0, True)
    assert "weft: left out: the catalogue of other cannot be read" in listed.stderr
    verified = invoke(store, "verify")
    assert "good@1" in verified.stdout
    assert isinstance(verified.exception, ModelError)
    assert isinstance(invoke(store, "show", "other").exception, ModelError)


def test_a_good_catalogue_is_read() -> None:
    assert Catalogue.from_text("m", change(aliases={"production": 1})).find("production") == 1


def test_a_store_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for verb in (["list"], ["verify"], ["show", "m"]):
        result = invoke(tmp_path / "file", *verb)
        assert isinstance(result.exception, UsageError)
        assert "--store must be a folder" in str(result.exception)


def test_verify_tells_all_that_is_damaged(store: Store) -> None:
    for name in ("good", "other"):
        store.resolve(name).path.write_bytes(b"changed")
    result = invoke(store, "verify")
    assert len(str(result.exception).splitlines()) == 2


def test_folders_of_somebody_else_are_not_swept(tmp_path: Path) -> None:
    (tmp_path / "home" / "data" / "1").mkdir(parents=True)
    (tmp_path / "home" / "data" / "1" / "thesis.tex").write_text("all of it")
    model = write_scaled(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"must be a folder of the store, got one with other files"):
        Store(tmp_path / "home").push(model, "data")
    assert (tmp_path / "home" / "data" / "1" / "thesis.tex").exists()


@pytest.mark.parametrize(
    "name",
    [
        ".bash_aliases",
        "usercustomize.py",
        "Makefile",
        "model.onnx",
        "x/y.data",
        "..data",
        ".x.data",
        "a\n.data",
    ],
)
def test_names_of_weights_that_are_more_than_data_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="weights outside the model must be in a file named like"):
        check_weights_name(name)


@pytest.mark.parametrize("name", [".bash_aliases", "usercustomize.py"])
def test_such_weights_are_not_pushed(tmp_path: Path, name: str) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(scaled(), model, save_as_external_data=True, location=name, size_threshold=0)
    with pytest.raises(ModelError, match="weights outside the model must be in a file named like"):
        Store(tmp_path / "store").push(model)


@pytest.mark.parametrize(
    "name",
    [
        "m.onnx.data",
        "m.onnx_data",
        "weights.bin",
        "onnx::MatMul_7.weight",
        "model_data",
        "0-1.dat",
        "123e4567-e89b-12d3-a456-426614174000",
    ],
)
def test_names_that_exporters_give_are_kept(name: str) -> None:
    check_weights_name(name)


def test_weights_that_are_links_or_pipes_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password")
    model = write_scaled(tmp_path / "m.onnx", external=True)
    weights = tmp_path / "m.onnx.data"
    store = Store(tmp_path / "store")
    weights.unlink()
    weights.symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match=r"m\.onnx\.data must be a plain file, got a symbolic link"):
        store.push(model)
    weights.unlink()
    os.mkfifo(weights)
    with pytest.raises(ModelError, match="must be a plain file, got something else"):
        store.push(model)
    assert store.list() == ()
    plain = write_scaled(tmp_path / "plain.onnx")
    (tmp_path / "link.onnx").symlink_to(plain)
    assert store.push(tmp_path / "link.onnx", "linked").path.read_bytes() == plain.read_bytes()


def test_weights_of_graphs_inside_nodes_are_found(tmp_path: Path) -> None:
    def constant(name: str, location: str) -> Any:
        tensor = numpy_helper.from_array(onnx.numpy_helper.to_array(scaled().graph.initializer[0]), name)
        onnx.external_data_helper.set_external_data(tensor, location)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        return tensor

    value = [helper.make_tensor_value_info("v", TensorProto.FLOAT, [3])]
    inner = helper.make_graph([], "inner", [], value, [constant("v", "inner.data")])
    fixed = helper.make_graph(
        [helper.make_node("Constant", [], ["v"], value=constant("c", "constant.data"))], "fixed", [], value
    )
    model = scaled()
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=fixed))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert external_files(tmp_path / "m.onnx") == ("constant.data", "inner.data")
