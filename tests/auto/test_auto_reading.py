"""Tables as people have them: dates in many formats, numbers with signs, odd CSV files, columns of frames."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pyarrow.dataset as ds
import pytest
from onnx import TensorProto, helper

from weft.auto.features.written import onnx_seconds, written
from weft.auto.frames import read_table
from weft.auto.reading.texts import ISO, find_dates
from weft.auto.shapes import shape_of
from weft.errors import DataError
from weft.learn.onnx import IR, ML_OPSET, OPSET, OnnxGraph

Array = np.ndarray[Any, Any]
START = datetime.datetime(1965, 3, 1)
MOMENTS = [START + datetime.timedelta(days=997 * i, hours=5 * i, minutes=7 * i, seconds=i) for i in range(40)]
FORMATS = {
    "%Y-%m-%d": ISO,
    "%Y-%m-%dT%H:%M:%SZ": ISO,
    "%Y-%m-%dT%H:%M:%S-05:30": ISO,
    "%Y-%m-%d %H:%M:%S.%f": ISO,
    "%d.%m.%Y %H:%M": "%d.%m.%Y %H:%M",
    "%m/%d/%Y": "%m/%d/%Y",
    "%d/%m/%y": "%d/%m/%y",
    "%b %d, %Y": "%b %d %Y",
    "%A, %d %B %Y": "%d %b %Y",
    "%a, %d %b %Y %H:%M:%S GMT": "%d %b %Y %H:%M:%S",
    "%Y%m%dT%H%M%S": "%Y%m%d %H%M%S",
    "%m/%d/%Y %I:%M:%S %p": "%m/%d/%Y %I:%M:%S %p",
    "%b-%Y": "%b-%Y",
}


def texts_of(values: list[str]) -> Array:
    made = np.empty(len(values), object)
    made[:] = values
    return made


def in_graph(texts: Array, form: str) -> Array:
    """Return what an exported graph reads of texts."""
    graph = OnnxGraph(np.dtype(np.float64))
    graph.answer(onnx_seconds(graph, "x", form), "seconds", 1)
    given = helper.make_tensor_value_info("x", TensorProto.STRING, ["batch", 1])
    opsets = [
        helper.make_opsetid(*one) for one in (("", OPSET), ("ai.onnx.ml", ML_OPSET), ("com.microsoft", 1))
    ]
    drawn = helper.make_graph(graph.nodes, "dates", [given], graph.outputs, graph.constants)
    made = helper.make_model(drawn, opset_imports=opsets, ir_version=IR).SerializeToString()
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": texts[:, None]})[0][:, 0])


@pytest.mark.parametrize("shown", FORMATS)
def test_dates_are_read_in_many_formats_in_python_and_in_a_graph(shown: str) -> None:
    texts = texts_of([moment.strftime(shown) for moment in MOMENTS])
    texts[3] = ""
    found = find_dates(pa, texts)
    assert found is not None
    seconds, form = found
    assert form == FORMATS[shown]
    assert np.isnan(seconds[3])
    if "%d" in shown and "%H" in shown and form != ISO and "%S" in shown:
        wanted = (MOMENTS[7].replace(microsecond=0) - datetime.datetime(1970, 1, 1)).total_seconds()
        assert seconds[7] == wanted
    np.testing.assert_allclose(in_graph(texts, form), seconds, rtol=0, atol=1e-5)
    np.testing.assert_allclose(in_graph(texts_of(written(seconds, form)), form), seconds, rtol=0, atol=1e-5)
    assert np.isnan(in_graph(texts_of([""]), form)).all()


@pytest.mark.parametrize(
    "values",
    [
        ["2024-02-29", "late"],
        ["12:30", "13:45"],
        ["1.2.3.4", "5.6.7.8"],
        ["32/01/2024"],
        ["hello"],
        [""],
        ["01067"],
    ],
)
def test_what_is_no_date_stays_text(values: list[str]) -> None:
    assert find_dates(pa, texts_of(values)) is None


def test_a_format_is_found_from_all_rows_and_kept_for_the_next_table() -> None:
    days = ["01/02/2024"] * 500 + ["25/12/2024"]  # only the last tells which is the month
    table = read_table({"d": days})
    assert (table["d"].kind, table["d"].format) == ("date", "%d/%m/%Y")
    again = read_table({"d": ["01/02/2024"]}, {"d": "date"}, {"d": table["d"].format})
    assert again.values("d")[0] == table.values("d")[0]
    assert (
        read_table({"d": ["2024-02-01"]}, {"d": "date"}, {"d": "%d/%m/%Y"}).values("d")[0]
        == table.values("d")[0]
    )
    with pytest.raises(DataError, match=r"column 'd' must hold dates like %d/%m/%Y, as in the fit"):
        read_table({"d": ["02/25/2024"]}, {"d": "date"}, {"d": "%d/%m/%Y"})


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["$1,234.50", "$99", "?", "-$3"], [1234.5, 99, np.nan, -3]),
        (["12%", "3.5 %", "n/a", ""], [12, 3.5, np.nan, np.nan]),
        (["1.234,5", "12,25", "3 €", "-"], [1234.5, 12.25, 3, np.nan]),
        ([str(number) for number in range(25)], list(range(25))),
        (["1.5"] * 200 + ["withheld"], [1.5] * 200 + [np.nan]),
        (["18", "44", "k.A.", "31"] * 9, [18, 44, np.nan, 31] * 9),
        (["01067", "12345"], None),
        (["1.5", "2.5", "a", "b", "c"], None),
        (["1.5", "a", "a"], None),
        (["1", "2", "3"], None),
        (["a1", "2", "3"], None),
        (["?", "?"], None),
    ],
)
def test_numbers_are_read_with_signs_and_holes(values: list[str], wanted: list[float] | None) -> None:
    column = read_table({"x": values})["x"]
    assert column.kind == ("text" if wanted is None else "number")
    if wanted is not None:
        np.testing.assert_array_equal(column.values, wanted)
        again = read_table({"x": values}, {"x": "number"}, {"x": column.format})
        np.testing.assert_array_equal(again.values("x"), wanted)
    if "k.A." in values:  # the word alone is known, too, and another is not
        form = column.format
        assert np.isnan(read_table({"x": ["k.A."]}, {"x": "number"}, {"x": form}).values("x")).all()
        with pytest.raises(DataError, match=r"must hold numbers like 1,234\.5 \| k\.A\."):
            read_table({"x": ["many"]}, {"x": "number"}, {"x": form})


def test_the_text_of_a_target_stays() -> None:
    columns = {"y": ["1", "2"] * 30, "x": pd.Categorical([1, 2] * 30)}
    table = read_table(pd.DataFrame(columns), target="y")
    assert (table["y"].kind, table["x"].kind) == ("text", "text")
    assert read_table(pd.DataFrame(columns), target="x")["x"].kind == "number"


def test_csv_files_of_other_programs_are_read(tmp_path: Path) -> None:
    def found(name: str, content: bytes) -> dict[str, list[Any]]:
        path = tmp_path / name
        path.write_bytes(content)
        table = read_table(path)
        if not name.endswith(".gz"):
            assert [one.name for one in shape_of(path, path.suffix).columns] == list(table.columns)
            assert [one.name for one in shape_of(content, path.suffix).columns] == list(table.columns)
        return {column: table.values(column).tolist() for column in table.columns}

    german = "Größe;Preis\nA;1,5\nB;2,5\n".encode("cp1252")
    assert found("german.csv", german) == {"Größe": ["A", "B"], "Preis": [1.5, 2.5]}
    assert found("wide.csv", "a,b\n1,x\n2,y\n".encode("utf-16")) == {"a": [1.0, 2.0], "b": ["x", "y"]}
    assert found("mark.csv", b"\xef\xbb\xbfa,b\n1,x\n") == {"a": [1.0], "b": ["x"]}
    assert found("tabs.tsv", b"a\tb\n1\tx, y\n2\ty\n") == {"a": [1.0, 2.0], "b": ["x, y", "y"]}
    assert found("lines.csv", b'a,b\n1,"x\ny, z"\n2,"q"\n') == {"a": [1.0, 2.0], "b": ["x\ny, z", "q"]}
    assert found("index.csv", b",a\n5,1\n6,2\n") == {"Unnamed: 0": [5.0, 6.0], "a": [1.0, 2.0]}
    assert found("packed.csv.gz", gzip.compress(b"a,b\n1,2\n")) == {"a": [1.0], "b": [2.0]}
    assert found("one.csv", b"a\n1\n2\n") == {"a": [1.0, 2.0]}


def test_a_csv_file_whose_later_rows_are_of_another_type_is_read(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    path.write_text("a,b\n" + "".join(f"{i},{i}\n" for i in range(200_000)) + "withheld,1.5\n")
    table = read_table(path)
    assert (table["a"].kind, table["b"].kind) == ("number", "number")
    assert table.values("b")[-1] == 1.5
    assert np.isnan(table.values("a")[-1])


def test_columns_of_frames_that_are_not_plain() -> None:
    frame = pd.DataFrame(
        {
            "mixed": [1, "a", None],
            "time": [datetime.time(3, 4)] * 3,
            "long": pd.to_timedelta([1, 2, 3], unit="h"),
            "maybe": [True, None, False],
            "list": [[1, 2]] * 3,
            "bytes": [b"x"] * 3,
        }
    )
    table = read_table(frame)
    assert table.values("mixed").tolist() == ["1", "a", ""]
    assert table.values("time").tolist() == [11040.0] * 3
    assert table.values("long").tolist() == [3600.0, 7200.0, 10800.0]
    np.testing.assert_array_equal(table.values("maybe"), [1, np.nan, 0])
    assert {name: column.kind for name, column in table.columns.items()}["list"] == "other"
    assert table["bytes"].kind == "other"
    polar = pl.DataFrame(
        {"c": pl.Series(["x", None], dtype=pl.Categorical), "e": pl.Series(["y", "y"], dtype=pl.Enum(["y"]))}
    )
    assert {name: column.values.tolist() for name, column in read_table(polar).columns.items()} == {
        "c": ["x", ""],
        "e": ["y", "y"],
    }


@pytest.mark.parametrize("kind", ["lazy", "dask", "data set", "duckdb"])
def test_frames_whose_rows_come_when_asked_for_are_read(kind: str) -> None:
    frame = pd.DataFrame({"n": [1.5, None, 3.0], "t": ["a", "", "b"], "y": [0, 1, 0]})
    whole = pa.Table.from_pandas(frame)
    given: Any = {"lazy": lambda: pl.from_pandas(frame).lazy(), "data set": lambda: ds.dataset(whole)}.get(
        kind
    )
    if kind == "duckdb":
        given = pytest.importorskip("duckdb").from_arrow(whole)
    elif kind == "dask":
        pytest.importorskip("dask").config.set(scheduler="synchronous")  # the threads of its pool never end
        given = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    else:
        given = given()
    found, wanted = read_table(given), read_table(whole)
    assert {name: one.kind for name, one in found.columns.items()} == {
        "n": "number",
        "t": "text",
        "y": "number",
    }
    for name in frame:
        np.testing.assert_array_equal(found.values(name), wanted.values(name))
