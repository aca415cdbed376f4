"""Drafts: gone at the end, swept when their maker was killed, left alone while it lives."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from weft.files import drafting, filling

MAKE = """
import sys
from pathlib import Path
from weft.files import drafting
with drafting(Path(sys.argv[1]), "a.") as folder:
    (folder / "half").write_text("of it")
    print(folder, flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_a_killed_maker_left_is_swept_by_the_next_and_only_then(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        left = Path(maker.stdout.readline().strip())
        with drafting(tmp_path, "a."):
            assert (left / "half").exists()  # its maker lives
        maker.kill()
    with drafting(tmp_path, "b."):
        assert (left / "half").exists()  # another kind
    with drafting(tmp_path, "a."):
        assert not left.exists()
    assert names(tmp_path) == set()


def test_a_draft_may_be_moved_to_where_it_belongs(tmp_path: Path) -> None:
    with drafting(tmp_path) as folder:
        (folder / "whole").write_text("all of it")
        folder.rename(tmp_path / "there")
    assert names(tmp_path) == {"there"}
    assert names(tmp_path / "there") == {"whole"}


def test_what_only_looks_alike_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.lock").touch()
    (tmp_path / "a.1.lock").touch()
    (tmp_path / "a.1").mkdir()
    (tmp_path / f"a.{'0' * 32}").mkdir()
    before = names(tmp_path)
    with drafting(tmp_path, "a."):
        pass
    assert names(tmp_path) == before


def test_a_lock_that_was_swept_before_it_was_held_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[str] = []
    flock = fcntl.flock

    def late(handle: int, operation: int) -> None:
        if not swept:
            (lock,) = tmp_path.iterdir()
            swept.append(lock.name)
            lock.unlink()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with drafting(tmp_path) as folder:
        assert names(tmp_path) == {folder.name, f"{folder.name}.lock"}
        assert f"{folder.name}.lock" not in swept
    assert names(tmp_path) == set()


def test_a_draft_that_cannot_be_made_leaves_no_lock_and_no_open_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(OSError, match="no space"), drafting(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_folder_is_filled_when_all_is_whole_and_other_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "table"
    with filling(folder, "last") as draft:
        (draft / "one").write_text("1")
        (draft / "last").write_text("end")
        assert not (folder / "one").exists()
    (folder / "foreign").write_text("mine")
    with filling(folder, "last", replaced=["one", "two"]) as draft:
        (draft / "two").write_text("2")
        (draft / "last").write_text("end")
    assert names(folder) == {"two", "last", "foreign"}


def fail_half_way(folder: Path) -> None:
    with filling(folder, "last", replaced=["foreign"]) as draft:
        (draft / "last").write_text("new")
        (folder.parent / "beside").write_text("somebody's")
        raise ValueError("half way")


@pytest.mark.parametrize("where", ["here", "new/folder"])
def test_a_folder_that_could_not_be_filled_is_as_it_was(tmp_path: Path, where: str) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "foreign").write_text("mine")
    (tmp_path / "here" / "last").write_text("old")
    with pytest.raises(ValueError, match="half way"):
        fail_half_way(tmp_path / where)
    assert names(tmp_path / "here") == {"foreign", "last"}
    assert (tmp_path / "here" / "last").read_text() == "old"
    # Folders above are kept where somebody else uses them.
    assert names((tmp_path / where).parent) - {"here"} == {"beside"}
