"""A conversion removes nothing but its own draft, whatever goes wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from weft.cli.tables.data import command
from weft.errors import DataError
from weft.learn.tables.convert import convert
from weft.learn.tables.form import open_stored


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with somebody's files."""
    (tmp_path / "home" / "photos").mkdir(parents=True)
    (tmp_path / "home" / "photos" / "cat.jpg").write_bytes(b"cat")
    (tmp_path / "home" / "thesis.tex").write_text("all of it")
    return tmp_path / "home"


BAD = {
    "empty.csv": "",
    "header.csv": "a,y\n",
    "words.csv": "a,y\nx,1\n",
    "empty.svm": "",
    "words.svm": "high 1:1\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_leaves_the_folder_as_it_was(tmp_path: Path, home: Path, name: str) -> None:
    (tmp_path / name).write_text(BAD[name])
    before = contents(home)
    arguments = ["convert", str(tmp_path / name), str(home)]
    result = CliRunner().invoke(command, [*arguments, *(["--target", "y"] if name.endswith("csv") else [])])
    assert isinstance(result.exception, DataError)
    assert contents(home) == before


def test_a_bad_file_makes_no_folder(tmp_path: Path) -> None:
    (tmp_path / "empty.svm").touch()
    with pytest.raises(DataError, match="at least one good row"):
        convert([tmp_path / "empty.svm"], tmp_path / "new" / "table", target=None)
    assert [path.name for path in tmp_path.iterdir()] == ["empty.svm"]


def test_a_table_is_replaced_and_other_files_stay(tmp_path: Path, home: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n1,0\n2,1\n")
    (tmp_path / "b.svm").write_text("1 1:5\n")
    before = contents(home)
    convert([tmp_path / "a.csv"], home, target="y")
    held = open_stored(home).features()
    convert([tmp_path / "b.svm"], home, target=None)
    assert open_stored(home).features().toarray().tolist() == [[5.0]]
    assert np.asarray(held).tolist() == [[1.0], [2.0]]  # what somebody has open is not changed
    assert set(contents(home)) - set(before) == {
        "table.json",
        "y.npy",
        *(f"{n}.npy" for n in ("indptr", "indices", "data")),
    }
    assert {name: content for name, content in contents(home).items() if name in before} == before


def test_a_bad_file_leaves_the_table_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n1,0\n")
    (tmp_path / "empty.csv").write_text("a,y\n")
    convert([tmp_path / "a.csv"], tmp_path / "t", target="y")
    with pytest.raises(DataError, match="at least one good row"):
        convert([tmp_path / "empty.csv"], tmp_path / "t", target="y")
    assert open_stored(tmp_path / "t").description.rows == 1


def test_arrays_of_another_program_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n1,0\n")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "y.npy").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"got y\.npy without a table\.json; choose another folder"):
        convert([tmp_path / "a.csv"], tmp_path / "t", target="y")
    assert contents(tmp_path / "t") == {"y.npy": b"mine"}


def test_a_killed_conversion_leaves_the_table_and_the_next_removes_its_draft(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n1,0\n")
    convert([tmp_path / "a.csv"], tmp_path / "t", target="y")
    before = contents(tmp_path / "t")
    code = (
        "import sys, weft.learn.tables.convert as c, os, signal\n"
        "c.describe = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "c.convert([c.Path(sys.argv[1])], c.Path(sys.argv[2]), target='y')"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.csv", tmp_path / "t"], check=False)
    assert done.returncode == -signal.SIGKILL
    left = contents(tmp_path / "t")
    assert {name: left[name] for name in before} == before
    assert len(left) > len(before)
    convert([tmp_path / "a.csv"], tmp_path / "t", target="y")
    assert set(contents(tmp_path / "t")) == set(before)


@pytest.mark.parametrize("where", ["/proc/none", "file/under"])
def test_a_folder_that_cannot_be_made_is_said(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("a,y\n1,0\n")
    Path("file").touch()
    with pytest.raises(DataError, match="must be a folder that can be written"):
        convert([Path("a.csv")], Path(where), target="y")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "file"]
