"""Files are whole or not there, and nothing half-written stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.collectives.modes import explore
from weft.files import cache_folder, write_whole


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "one")
    write_whole(tmp_path / "a.json", "two")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "two")]


def test_a_write_that_fails_leaves_what_was_there_and_no_draft(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "one")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a.json", "two \udcff")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "one")]


def test_a_table_of_modes_that_is_damaged_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert explore.load("key") == ""
    explore.save("key", '{"local": {}}')
    assert explore.load("key") == '{"local": {}}'
    (cache_folder("modes") / "key.json").write_text('{"local": {')
    assert explore.load("key") == ""
