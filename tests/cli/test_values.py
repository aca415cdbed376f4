"""What the types of the command line make of texts, and what they say of those they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from weft.cli import paths, values
from weft.errors import UsageError

OPTION = click.Option(["-x", "--some-option"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (values.PORT, "65535", 65535),
        (values.PORT_OR_ANY, "0", 0),
        (values.Whole(-3, 3), "-3", -3),
        (values.Seconds(), "2.5", 2.5),
        (values.Seconds(above=0), "1e-3", 0.001),
        (values.Real(0, 1), ".5", 0.5),
        (values.Size(), "4GB", 4 * 10**9),
        (values.Words(["a", "b"]), "b, a,", ("b", "a")),
        (values.Numbers(1, 9, "1,2"), "1,2,5", (1, 2, 5)),
        (values.NameValue("K=V", "a=1"), "a=b=c", ("a", "b=c")),
        (values.NameValue("K=V", "a=1", empty=True), "a=", ("a", "")),
        (values.WorkerLimits(), "2:8", (2, 8)),
        (values.WorkerLimits(), "4", (4, 4)),
        (values.Shape(), "x=3,224", ("x", (3, 224))),
        (values.Text(), "a b", "a b"),
        (values.CARD, "enp3s0f1.100", "enp3s0f1.100"),
        (values.Url(), "https://[::1]:8000/x", "https://[::1]:8000/x"),
        (values.Url(), "host:80", "host:80"),
        (paths.ExistingFile(), "file", Path("file")),
        (paths.ExistingFolder(), "folder", Path("folder")),
        (paths.ExistingPath(), "folder", Path("folder")),
        (paths.OutputFile(), "new", Path("new")),
        (paths.OutputFile(), "file", Path("file")),
        (paths.OutputFolder(), "new/and/deep", Path("new/and/deep")),
    ],
)
def test_values_that_are_taken(kind: click.ParamType[Any], text: str, value: Any) -> None:
    assert kind.convert(text, OPTION, None) == value


LONG = "9" * 5000
NUMBERS = [
    "",
    "nan",
    "inf",
    "-inf",
    "1e400",
    LONG,
    "-" + LONG,
    "0x10",
    "1_0",
    "٣",
    "1;2",
    "None",
    "--",
    "\udcff",
]
PATHS = ["", "no/where", "folder", "folder/", "x" * 300, "file/x", "\0", "a/" * 3000]


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (values.PORT, [*NUMBERS, "0", "-1", "65536", "1.5"]),
        (values.WORKERS, [*NUMBERS, "0", "1000000", "2.0"]),
        (values.Seconds(above=0), [*NUMBERS, "0", "-1", "1e7"]),
        (values.Real(0, 100), [*NUMBERS, "-0.1", "100.1"]),
        (values.Size(), [*NUMBERS, "0", "-4GB", "4XB", "1e99"]),
        (values.Words(["one", "two"]), ["", ",", "three", "one,tow"]),
        (values.Numbers(1, 9, "1,2"), ["", ",", "1,,2", "1,0", "1,x", LONG]),
        (values.NameValue("K=V", "a=1"), ["", "=", "a", "=b", "a=", " =b"]),
        (values.WorkerLimits(), ["", "a:b", "2:", "2:4:6", "3:2", "0:2", "1:99999", LONG, "\u0663"]),
        (values.Shape(), ["", "x", "3,,4", "0", "-1", "nan", LONG, "99999,99999,99999", "x="]),
        (values.Text(), ["", " ", "a\nb"]),
        (values.CARD, ["", "eth0 x", "-x", "x" * 16, "\udcff"]),
        (values.Cidr(), ["", "abc", "10.0.0.0/99", "1.2.3", "::/200"]),
        (values.Url(), ["", "http://", "http://[::1", "http://a:99999", "ftp://a", "http://a b", "http://a:x", "\n"]),
        (paths.ExistingFile(), PATHS),
        (paths.ExistingFolder(), [*PATHS[:2], "file", *PATHS[4:]]),
        (paths.OutputFile(), PATHS),
        (paths.OutputFolder(), ["", "file", *PATHS[4:]]),
    ],
)  # fmt: skip
def test_values_that_are_refused(kind: click.ParamType[Any], texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(UsageError) as refused:
            kind.convert(text, OPTION, None)
        said = str(refused.value)
        assert said.startswith("--some-option must be ")
        assert ", got " in said
        assert "; " in said
        assert len(said) < 500  # the value is cut


def test_a_refusal_says_what_to_write() -> None:
    with pytest.raises(UsageError) as refused:
        values.PORT_OR_ANY.convert("99999", OPTION, None)
    assert str(refused.value) == (
        "--some-option must be a whole number between 0 and 65535, got '99999'; write --some-option 8000"
    )
    with pytest.raises(UsageError, match=r"got 'tow'; did you mean two\?"):
        values.Words(["one", "two"]).convert("tow", OPTION, None)
    with pytest.raises(UsageError, match=r"^RUN must be a folder that exists, got x \(No such file"):
        paths.ExistingFolder().convert("x", click.Argument(["run"]), None)


def test_defaults_pass_as_they_are() -> None:
    assert values.PORT.convert(8000, OPTION, None) == 8000
    assert paths.OutputFile().convert(Path("keys.json"), OPTION, None) == Path("keys.json")
