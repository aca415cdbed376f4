"""Files that say what to fit, places for models, and pickles: wrong ones end in one clear error."""

from __future__ import annotations

import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from weft.cli.tables.learn import command
from weft.errors import UsageError
from weft.learn import Ridge
from weft.learn.fitting_job import check_out, settings_of


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = np.random.default_rng(0).standard_normal((30, 3))
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header="a,b,y", comments="")
    return tmp_path / "t.csv"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def refusal(*arguments: str) -> str:
    result = invoke(*arguments)
    assert isinstance(result.exception, UsageError), result.exception
    return str(result.exception)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"table: gr\xf6\xdfe.csv", "must be a YAML file in UTF-8, got the byte 0xf6 at 9"),
        (b"table: \xff\xfe", "must be a YAML file in UTF-8, got the byte 0xff at 7"),
        (b"table: t.csv\nmodel: [1]", "model must be text, got a list"),
        (b"table: t.csv\nout: []", "out must be nothing or text, got a list"),
        (b"table: t.csv\nmemory: {}", "memory must be .*, got a mapping"),
        (b"table: t.csv\ntest: 5", "test must be .*, got a whole number"),
        (b"table: t.csv\nparams: {1: 2}", "names in params must be text, got a whole number"),
        (b"table: t.csv\nparams: [1]", "params must be a mapping, got a list"),
        (b"table: 5", "table must be text, got a whole number"),
        (b"table: t.csv\ntarget: 2020.5", "target must be nothing or text, got a number"),
        (b"table: t.csv\n1: 2", "names in it must be text, got another value"),
        (b"[" * 100_000, "must be YAML of a few levels"),
        (b"", "it must be a mapping, got nothing"),
    ],
)
def test_a_file_of_settings_is_typed(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / "fit.yaml").write_bytes(text)
    with pytest.raises(UsageError, match=why):
        settings_of(tmp_path / "fit.yaml")


def test_settings_are_as_written(tmp_path: Path) -> None:
    (tmp_path / "fit.yaml").write_text(
        "table: t.csv\nmemory: 4000000\nparams: {class_weight: {0: 1, 1: 2}}\n"
    )
    assert settings_of(tmp_path / "fit.yaml") == {
        "source": "t.csv",
        "memory": 4_000_000,
        "params": {"class_weight": {0: 1, 1: 2}},
    }


def test_a_place_for_the_model_is_checked_before_the_fit(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, why in (
        (tmp_path, "--out must be a file, got the folder"),
        (tmp_path / "none" / "m.pkl", "in a folder that exists"),
        (tmp_path / "file" / "m.pkl", "in a folder that exists"),
    ):
        with pytest.raises(UsageError, match=why):
            check_out(path)
    check_out(tmp_path / "m.pkl")


def test_the_command_refuses_a_place_that_is_none(table: Path, tmp_path: Path) -> None:
    assert "in a folder that exists" in refusal(
        "fit", str(table), "--target=y", "--out", str(tmp_path / "none" / "m.pkl")
    )
    deep = "[" * 100_000
    assert "must be one of Ridge's" in refusal("fit", str(table), "--target=y", "--param", f"depth={deep}")


class Raising:
    def __reduce__(self) -> tuple[Any, ...]:
        return (eval, ("1 / 0",))


class Exiting:
    def __reduce__(self) -> tuple[Any, ...]:
        return (sys.exit, (7,))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "an empty file or one that is cut short"),
        (pickle.dumps(np.ones(3))[:-20], "UnpicklingError|cut short"),
        (b"a poem", "UnpicklingError"),
        (pickle.dumps(None), "must be a pickled estimator of weft.learn, got NoneType"),
        (pickle.dumps({"a": 1}), "got dict"),
        (pickle.dumps(Raising()), "ZeroDivisionError: division by zero"),
        (pickle.dumps(Exiting()), "SystemExit: 7"),
        (b"cno_such_module\nThing\n.", "needs the module no_such_module, which is not installed"),
        (b"cweft.learn\nNoSuchModel\n.", "AttributeError: .*NoSuchModel"),
        (pickle.dumps(Ridge()), "cannot be explained: This Ridge instance is not fitted"),
    ],
)
def test_a_pickle_that_is_no_model_is_said(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "m.pkl"
    path.write_bytes(content)
    told = refusal("explain", str(path))
    assert str(path) in told
    assert re.search(why, told), told


def test_models_of_others_are_not_explained(tmp_path: Path) -> None:
    from sklearn.linear_model import LinearRegression

    (tmp_path / "m.pkl").write_bytes(pickle.dumps(LinearRegression().fit(np.ones((3, 2)), np.ones(3))))
    assert "a model must be one of weft.learn, got LinearRegression" in refusal(
        "explain", str(tmp_path / "m.pkl")
    )


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    from weft.files import write_whole

    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(tmp_path / "pipe", "content")
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_rows_to_score_on_are_checked_before_an_hour_of_fitting(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted_already(*arguments: Any, **options: Any) -> None:
        raise AssertionError("fitted before --test was looked at")

    monkeypatch.setattr(Ridge, "fit", fitted_already)
    (tmp_path / "notes.txt").write_text("not a table")
    (tmp_path / "other.csv").write_text("a,c,y\n1,2,3\n")
    (tmp_path / "short.csv").write_text("a,y\n1,3\n")
    assert "notes.txt must end in" in refusal(
        "fit", str(table), "--target", "y", "--test", str(tmp_path / "notes.txt")
    )
    told = refusal("fit", str(table), "--target", "y", "--test", str(tmp_path / "other.csv"))
    assert "--test must have the columns ['a', 'b'], got ['a', 'c']" in told
    told = refusal("fit", str(table), "--target", "y", "--test", str(tmp_path / "short.csv"))
    assert "--test must have 2 columns, got 1" in told
