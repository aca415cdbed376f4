"""Tables that are not what they should be end in one clear error, never in a crash, a wrong column or 16 GiB."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from weft.cli.tables.data import command
from weft.errors import DataError
from weft.learn.tables.convert import convert
from weft.learn.tables.form import open_stored
from weft.learn.tables.read import columns_of
from weft.learn.tables.sizes import most_columns
from weft.learn.tables.source import open_source

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.learn.tables.source.cache_folder", lambda kind: tmp_path / "cache" / kind)


# -- names of columns ------------------------------------------------------------------------------


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,a,y\n1,2,0\n")
    pq.write_table(pa.Table.from_arrays([pa.array([1.0])] * 3, ["a", "a", "y"]), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(DataError, match=r"'a' twice|duplicate field names"):
            columns_of(tmp_path / name)
        with pytest.raises(DataError, match=r"'a' twice; rename|duplicate field names"):
            convert([tmp_path / name], tmp_path / "t", target="y")
    (tmp_path / "b.csv").write_text("a,b,y\n1,2,0\n")
    for columns, why in (
        ("a,a", "columns must have different names, got 'a' twice"),
        ("a,y", "the target 'y'"),
    ):
        result = CliRunner().invoke(
            command,
            ["convert", str(tmp_path / "b.csv"), str(tmp_path / "t"), "--target=y", "--columns", columns],
        )
        assert why in str(result.exception)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("head", "names"),
    [
        (b"\xef\xbb\xbfa,b,y", ["a", "b", "y"]),
        (b"a, b,y", ["a", " b", "y"]),
        (b'"a,b",c,y', ["a,b", "c", "y"]),
        (b'"say ""a""",c,y', ['say "a"', "c", "y"]),
        (b",".join(b"column%d" % i for i in range(20_000)), [f"column{i}" for i in range(20_000)]),
    ],
)
def test_names_are_those_that_pyarrow_reads(tmp_path: Path, head: bytes, names: list[str]) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(head + b"\n" + b",".join(b"%d" % (i % 7) for i in range(len(names))) + b"\n")
    assert columns_of(file) == names
    table, report = convert([file], tmp_path / "t", target=names[2], columns=[names[1]])
    assert (report.bad_rows, table.description.columns) == (0, (names[1],))
    assert (table.features().tolist(), table.target().tolist()) == ([[1.0]], [2.0])


def test_names_with_commas_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"a,b",c, d,y\n1,2,3,0\n')
    command_line = ["convert", str(tmp_path / "a.csv"), str(tmp_path / "t"), "--target=y"]
    result = CliRunner().invoke(command, [*command_line, "--columns", '"a,b",c'])
    assert result.exit_code == 0, result.output
    assert open_stored(tmp_path / "t").description.columns == ("a,b", "c")
    result = CliRunner().invoke(command, [*command_line[:-1], "--target=d"])
    assert str(result.exception).endswith("got 'd'; it has 'a,b', c, ' d', y")


def test_a_table_that_has_only_a_target_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y\n1\n")
    with pytest.raises(DataError, match="must have a column beside the target, got 'y' alone"):
        convert([tmp_path / "a.csv"], tmp_path / "t", target="y")


@pytest.mark.parametrize("text", ["größe,y\n1,0\n", "a,y\n1,größe\n2,klein\n"])
@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_text_that_is_not_utf8_is_said(tmp_path: Path, text: str, encoding: str) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    with pytest.raises(DataError, match=r"UTF-?8|columns? of|CSV"):
        convert([tmp_path / "a.csv"], tmp_path / "t", target="y")
    assert not (tmp_path / "t").exists()


def test_classes_are_named_alike_in_chunks_of_numbers_and_of_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n1,1\n2,2\n")
    (tmp_path / "b.csv").write_text("a,y\n3,1\n4,x\n")
    table, _ = convert([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "t", target="y")
    assert table.target().tolist() == ["1", "2", "1", "x"]


# -- svmlight --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column", ["2147483647", "2147483648", "4294967297", "9223372036854775808", "9" * 5000]
)
def test_a_column_that_no_memory_holds_costs_its_row(tmp_path: Path, column: str) -> None:
    (tmp_path / "a.svm").write_text(f"1 1:1 3:2\n1 1:1 {column}:1\n")
    table, report = convert([tmp_path / "a.svm"], tmp_path / "t", target=None)
    assert (table.description.width, table.description.rows) == (3, 1)
    (bad,) = report.bad
    assert (bad.line, bad.why) == (
        2,
        f"columns must be at most 62500000 with this memory, got {column[:40]}",
    )


def test_every_bound_admits_some_columns() -> None:
    assert most_columns(10**6) == 1 << 20
    assert most_columns(4 * 10**9) == 62_500_000
    assert most_columns(1 << 60) == 2**31 - 2


def test_values_beyond_float32_cost_their_row(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:1\n1 1:1e39\n")
    table, report = convert([tmp_path / "a.svm"], tmp_path / "t", target=None)
    assert (table.description.rows, [row.why for row in report.bad]) == (1, ["column 1 is 1e39"])


def test_labels_alone_are_no_table(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1\n0\n")
    with pytest.raises(DataError, match="must have a value in some column"):
        convert([tmp_path / "a.svm"], tmp_path / "t", target=None)


# -- stored tables ---------------------------------------------------------------------------------


def dense(folder: Path) -> Path:
    (folder / "a.csv").write_text("a,b,y\n1,2,no\n3,4,yes\n5,6,no\n")
    convert([folder / "a.csv"], folder / "t", target="y")
    return folder / "t"


def sparse(folder: Path) -> Path:
    (folder / "a.svm").write_text("1 1:1 3:2\n0 2:5\n1 1:3 2:1 3:1\n")
    convert([folder / "a.svm"], folder / "t", target=None)
    return folder / "t"


def array(name: str, change: Callable[[Array], Array]) -> Callable[[Path], object]:
    """Replace an array of a table by what `change` makes of it."""

    def act(folder: Path) -> None:
        values = np.load(folder / name)
        np.save(folder / name, change(values))

    return act


def archived(folder: Path) -> None:
    with (folder / "X.npy").open("wb") as file:
        np.savez(file, a=np.ones(2))


def described(**changes: object) -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        path = folder / "table.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return act


def put(place: int, value: int) -> Callable[[Array], Array]:
    def change(values: Array) -> Array:
        values[place] = value
        return values

    return change


DAMAGE: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object], str]] = {
    "no keys": (dense, lambda t: (t / "table.json").write_text("{}"), "missing required field `rows`"),
    "torn json": (
        dense,
        lambda t: (t / "table.json").write_text('{"rows": 3, "col'),
        "table.json: Input data",
    ),
    "binary json": (dense, lambda t: (t / "table.json").write_bytes(b"\xff\xfe\0"), "table.json"),
    "rows of text": (dense, described(rows="3"), "Expected `int`, got `str`"),
    "negative rows": (dense, described(rows=-1), "must be at least 0"),
    "other rows": (dense, described(rows=2), r"a table of the shape \(2, 2\), got \(3, 2\)"),
    "no y": (dense, lambda t: (t / "y.npy").unlink(), "a whole y.npy, got: .*No such file"),
    "empty y": (dense, lambda t: (t / "y.npy").write_bytes(b""), "a whole y.npy, got: EOF"),
    "short y": (dense, array("y.npy", lambda y: y[:2]), "3 values in y.npy, got 2"),
    "code too high": (dense, array("y.npy", put(0, 2)), "codes below 2 in y.npy"),
    "negative code": (dense, array("y.npy", put(0, -1)), "codes below 2 in y.npy"),
    "objects": (
        dense,
        lambda t: np.save(t / "X.npy", np.array([[1, "a"]], object), allow_pickle=True),
        "a whole X.npy, got: .*[Oo]bject",
    ),
    "float64": (
        dense,
        array("X.npy", lambda x: x.astype(np.float64)),
        "float32 in two axes in X.npy, got float64",
    ),
    "by columns": (dense, array("X.npy", np.asfortranarray), "X.npy row by row"),
    "archive": (
        dense,
        archived,
        "a whole X.npy, got: the magic string",
    ),
    "torn X": (dense, lambda t: (t / "X.npy").write_bytes((t / "X.npy").read_bytes()[:-4]), "a whole X.npy"),
    "index too high": (sparse, array("indices.npy", put(1, 3)), "columns from 0 to 2 in indices.npy"),
    "index far too high": (sparse, array("indices.npy", put(5, 2**31 - 1)), "columns from 0 to 2"),
    "negative index": (sparse, array("indices.npy", put(0, -1)), "columns from 0 to 2 in indices.npy"),
    "unsorted": (sparse, array("indices.npy", lambda i: i[[1, 0, 2, 3, 4, 5]]), "ascending columns"),
    "twice": (sparse, array("indices.npy", put(4, 0)), "ascending columns in each row"),
    "short indices": (sparse, array("indices.npy", lambda i: i[:5]), "ascending row starts from 0 to 6"),
    "start too high": (sparse, array("indptr.npy", put(-1, 2**40)), "ascending row starts from 0 to 6"),
    "negative start": (sparse, array("indptr.npy", put(1, -(2**40))), "ascending row starts"),
    "falling starts": (sparse, array("indptr.npy", put(1, 5)), "ascending row starts"),
    "late start": (sparse, array("indptr.npy", put(0, 1)), "ascending row starts"),
    "no starts": (sparse, array("indptr.npy", lambda p: p[:0]), "4 row starts, got 0"),
    "endless rows": (sparse, described(rows=2**60), f"{2**60 + 1} row starts, got 4"),
    "narrow": (sparse, described(width=2), "columns from 0 to 1 in indices.npy"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_is_found_out_when_it_is_opened(tmp_path: Path, damage: str) -> None:
    make, harm, why = DAMAGE[damage]
    folder = make(tmp_path)
    open_stored(folder)
    harm(folder)
    with pytest.raises(DataError, match=why) as caught:
        open_stored(folder)
    assert str(caught.value).endswith("; convert it again")


def test_indices_are_checked_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.learn.tables.form.CHECKED", 2)
    folder = sparse(tmp_path)
    open_stored(folder)
    array("indices.npy", put(4, 0))(folder)  # as the last of its row before it, in another part
    with pytest.raises(DataError, match="ascending columns"):
        open_stored(folder)


def test_a_width_that_no_memory_holds_is_refused(tmp_path: Path) -> None:
    folder = sparse(tmp_path)
    described(width=2**40)(folder)
    with pytest.raises(
        DataError, match=r"at most 62500000 columns with this memory, got 1099511627776; use memory="
    ):
        open_source(folder, None, "4GB")
