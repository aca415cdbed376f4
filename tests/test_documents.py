"""What documents make of files that are not what their model says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from weft.documents import Document, parse_yaml, read_document
from weft.errors import DataError, UsageError


class Recipe(Document, frozen=True):
    """A model to read."""

    table: str
    memory: str | int = "4GB"
    params: dict[str, Any] = msgspec.field(default_factory=dict)


def refused(path: Path, data: str | bytes) -> str:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(UsageError) as error:
        read_document(path, Recipe)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "table: t\nparams: {depth: 3}\n"),
        ("a.toml", 'table = "t"\nparams = {depth = 3}\n'),
        ("a.json", '\ufeff{"table": "t", "params": {"depth": 3}}'),
    ],
)
def test_the_suffix_tells_the_format(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_document(tmp_path / name, Recipe) == Recipe("t", params={"depth": 3})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it must be a mapping, got nothing; mend the file"),
        ("[1]", "it must be a mapping, got a list; mend the file"),
        ("table: 5", "table must be text, got a whole number; mend the file"),
        (
            "table: t\nmemory: {}",
            "memory must be text or a whole number, got a mapping; mend the file",
        ),
        ("table: t\nparams: {1: 2}", "names in params must be text, got a whole number; mend the file"),
        (
            "tabel: t",
            "its fields must be among table, memory, params, got tabel; did you mean table?",
        ),
        ("memory: 4GB", "it must have the field table, got none; add table"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "fit.yaml"
    assert refused(path, text) == f"{path}: {said}"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (
            "a.yaml",
            "table: t\u00e9".encode("latin-1"),
            "must be a YAML file in UTF-8, got the byte 0xe9 at 8",
        ),
        ("a.yaml", "table: t".encode("utf-16"), "in UTF-8, got the byte 0xff at 0; save it as UTF-8"),
        ("a.yaml", "table: [", "must be a readable YAML file, got: while parsing"),
        ("a.yaml", "a: !!bool maybe", "must be a readable YAML file"),
        ("a.yaml", "a: !!timestamp x", "must be a readable YAML file"),
        ("a.yaml", "a: " + "[" * 5000, "must be YAML of a few levels"),
        ("a.json", "[" * 100_000, "got: too many levels of brackets"),
        ("a.json", '{"table": ', "must be a readable JSON file, got: Expecting value"),
        ("a.json", '{"table": ' + "9" * 5000, "must be a readable JSON file"),
        ("a.toml", "table = ", "must be a readable TOML file"),
        ("a.toml", b"\x80\x02binary", "must be a TOML file in UTF-8"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str, data: str | bytes, said: str) -> None:
    message = refused(tmp_path / name, data)
    assert message.startswith(str(tmp_path / name))
    assert said in message
    assert "\n" not in message


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be a JSON file that can be read, got Is a directory"):
        read_document(tmp_path, Recipe, error=DataError)
    with pytest.raises(DataError, match="got No such file or directory; check the path"):
        read_document(tmp_path / "a.yaml", Recipe, error=DataError)


def test_yaml_is_read_as_version_1_2() -> None:
    text = "{a: on, b: 2:8, c: 1e-3, d: 2024-01-01, e: 017, f: 0o17, g: ~, i: .inf, j: -1.5, k: TRUE, <<: {z: 1}}"
    assert parse_yaml(text) == {
        "a": "on", "b": "2:8", "c": 0.001, "d": "2024-01-01", "e": 17, "f": 15, "g": None, "i": float("inf"),
        "j": -1.5, "k": True, "z": 1,
    }  # fmt: skip
