"""Files are whole or not there, and nothing half-written stays."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from weft.collectives.modes import explore
from weft.files import cache_folder, data_folder, write_whole


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "one")
    write_whole(tmp_path / "a.json", "two")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "two")]


def test_a_write_that_fails_leaves_what_was_there_and_no_draft(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "one")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a.json", "two \udcff")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "one")]


def test_a_full_disk_is_told_with_the_file_that_did_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as raised:
        write_whole(tmp_path / "a.json", "one")
    assert raised.value.filename == str(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_modes_that_is_damaged_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert explore.load("key") == ""
    explore.save("key", '{"local": {}}')
    assert explore.load("key") == '{"local": {}}'
    (cache_folder("modes") / "key.json").write_text('{"local": {')
    assert explore.load("key") == ""


def test_what_is_kept_for_good_is_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.jobs.client.address import default_data_folder
    from weft.serve.store.entry import default_store
    from weft.tune.study.home import studies_folder

    for name in ("WEFT_HOME", "WEFT_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert [default_data_folder(), default_store().parent, studies_folder().parent] == [tmp_path / "weft"] * 3
    assert data_folder({}) == Path.home() / ".local" / "share" / "weft"
