from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.serve.small_models import write_scaled

from weft.errors import ModelError
from weft.serve.card import Card
from weft.serve.store import Store, default_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_scaled(tmp_path / "scaled.onnx", card=Card(name="scaled", task="regress"))


def test_pushed_models_are_numbered_and_kept(store: Store, model: Path) -> None:
    first, second = store.push(model), store.push(model, aliases=["production"])
    assert (first.name, first.version, second.version) == ("scaled", 1, 2)
    assert second.aliases == ("latest", "production")
    assert second.path.read_bytes() == model.read_bytes()
    assert second.card == Card(name="scaled", task="regress")
    assert second.size == model.stat().st_size
    assert [entry.version for entry in store.list("scaled")] == [1, 2]


def test_a_name_comes_from_the_card_or_the_file_or_the_caller(store: Store, tmp_path: Path) -> None:
    plain = write_scaled(tmp_path / "plain.onnx")
    assert store.push(plain).name == "plain"
    assert store.push(plain, "other").name == "other"


def test_references_mean_versions(store: Store, model: Path) -> None:
    for _ in range(3):
        store.push(model)
    store.tag("scaled@2", "production")
    assert store.resolve("scaled").version == 3
    assert store.resolve("scaled@latest").version == 3
    assert store.resolve("scaled@production").version == 2
    assert store.resolve("scaled@1").version == 1
    store.tag("scaled@3", "production")
    assert store.resolve("scaled@production").version == 3
    assert store.resolve("scaled@2").aliases == ()


def test_forgetting_an_alias_keeps_the_version(store: Store, model: Path) -> None:
    store.push(model, aliases=["old"])
    assert store.untag("scaled@old").version == 1
    with pytest.raises(ModelError, match=r"must have the alias 'old', got versions 1; aliases latest"):
        store.untag("scaled@old")
    assert store.resolve("scaled@1").version == 1


def test_the_history_of_aliases_tells_what_each_has_meant(store: Store, model: Path) -> None:
    store.push(model, "m", ["production"])
    store.push(model, "m")
    store.tag("m@2", "production")
    store.tag("m@2", "production")  # nothing changes
    store.tag("m@1", "production")
    store.untag("m@production")
    found = store.history("m")
    assert [(change.alias, change.version) for change in found] == [
        ("production", 1),
        ("production", 2),
        ("production", 1),
        ("production", 0),
    ]
    assert [change.at for change in found] == sorted(change.at for change in found)
    with pytest.raises(ModelError, match="nobody"):
        store.history("nobody")


def test_a_catalogue_without_a_history_is_read(store: Store, model: Path) -> None:
    store.push(model, "m", ["production"])
    path = store.folder / "m" / "catalogue.json"
    older = {key: value for key, value in json.loads(path.read_text()).items() if key != "history"}
    path.write_text(json.dumps(older))
    assert store.history("m") == ()
    assert store.resolve("m@production").version == 1


def test_a_version_with_an_alias_is_not_removed(store: Store, model: Path) -> None:
    store.push(model, aliases=["production"])
    with pytest.raises(ModelError, match="must have no alias to be removed, got production"):
        store.rm("scaled@1")
    store.untag("scaled@production")
    (gone,) = store.rm("scaled@1")
    assert not gone.path.exists()
    with pytest.raises(ModelError, match="got 'scaled'; it has none"):
        store.resolve("scaled")


def test_a_number_is_never_given_twice(store: Store, model: Path) -> None:
    store.push(model)
    store.push(model)
    store.rm("scaled", every=True)
    assert store.list() == ()
    assert store.push(model).version == 3


def test_weights_outside_the_model_go_with_it(store: Store, tmp_path: Path) -> None:
    import numpy as np
    import onnxruntime

    model = write_scaled(tmp_path / "far.onnx", 5.0, external=True)
    entry = store.push(model)
    assert sorted(path.name for path in entry.path.parent.iterdir()) == ["far.onnx.data", "model.onnx"]
    assert entry.size == sum(path.stat().st_size for path in entry.path.parent.iterdir())
    (tmp_path / "out").mkdir()
    pulled = store.pull("far", tmp_path / "out")
    session = onnxruntime.InferenceSession(pulled, providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"x": np.ones((1, 3), np.float32)})
    assert answer.tolist() == [[5.0, 5.0, 5.0]]


def test_weights_that_are_missing_are_told(store: Store, tmp_path: Path) -> None:
    model = write_scaled(tmp_path / "far.onnx", external=True)
    (tmp_path / "far.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"must have its weights beside it, got no .*far\.onnx\.data"):
        store.push(model)
    assert store.list() == ()
    assert list((store.folder / ".drafts").iterdir()) == []


def test_pulling_gives_what_was_pushed(store: Store, model: Path, tmp_path: Path) -> None:
    store.push(model)
    target = tmp_path / "out.onnx"
    assert store.pull("scaled@1", target) == target
    assert target.read_bytes() == model.read_bytes()
    with pytest.raises(ModelError, match="must not exist yet"):
        store.pull("scaled", target)
    target.write_text("old")
    store.pull("scaled", target, replace=True)
    assert target.read_bytes() == model.read_bytes()
    with pytest.raises(ModelError, match="into a folder that exists"):
        store.pull("scaled", tmp_path / "none" / "m.onnx")


def test_a_changed_file_is_found_out_and_not_pulled(store: Store, model: Path, tmp_path: Path) -> None:
    entry = store.push(model)
    whole = bytearray(entry.path.read_bytes())
    whole[40] ^= 1
    entry.path.write_bytes(whole)
    for check in (lambda: store.verify("scaled"), lambda: store.pull("scaled", tmp_path / "out.onnx")):
        with pytest.raises(ModelError, match=r"must be what was pushed, got another model\.onnx"):
            check()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scaled.onnx", "store"]
    entry.path.unlink()
    with pytest.raises(ModelError, match="must be whole"):
        store.verify("scaled")


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("scaled@", "NAME@VERSION or NAME@ALIAS, got 'scaled@'"),
        ("scaled@7", r"scaled@7 must be a version, got versions 1; aliases latest"),
        ("scaled@canary", "must be a version or an alias, got versions 1"),
        ("../scaled", "a model's name must be letters"),
        (".drafts", "a model's name must be letters"),
        ("other", "got 'other'; it has scaled"),
    ],
)
def test_unknown_references_are_told(store: Store, model: Path, reference: str, told: str) -> None:
    store.push(model)
    with pytest.raises(ModelError, match=told):
        store.resolve(reference)


@pytest.mark.parametrize("alias", ["latest", "3", "a/b", "", "-x"])
def test_aliases_are_words(store: Store, model: Path, alias: str) -> None:
    store.push(model)
    with pytest.raises(ModelError, match="an alias must"):
        store.tag("scaled@1", alias)
    with pytest.raises(ModelError, match="an alias must"):
        store.push(model, aliases=[alias])
    assert len(store.list()) == 1


def test_what_is_no_model_is_not_pushed(store: Store, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("a poem")
    with pytest.raises(ModelError, match="must be a whole ONNX file"):
        store.push(tmp_path / "m.onnx")
    assert not store.folder.exists()


def test_a_folder_that_cannot_be_a_store_is_told(tmp_path: Path, model: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="must be a folder that can be written"):
        Store(tmp_path / "file" / "store").push(model)
    assert Store(tmp_path / "nowhere").list() == ()


def test_a_torn_catalogue_is_told(store: Store, model: Path) -> None:
    store.push(model)
    (store.folder / "scaled" / "catalogue.json").write_text('{"next": 2}')
    with pytest.raises(ModelError, match="the catalogue of scaled cannot be read"):
        store.resolve("scaled")


def test_the_usual_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("WEFT_STORE", raising=False)
    assert default_store() == tmp_path / "weft" / "models"
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "mine"))
    assert Store().folder == tmp_path / "mine"
