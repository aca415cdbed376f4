"""Warm starts: trials of a file, in each of its forms, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weft.tune as tune
from weft.tune.study.config import StudyError
from weft.tune.study.home import list_studies
from weft.tune.study.journal import FILE

SPACE = {"x": "float:0:1", "kind": "a,b", "n": "int:1:9"}


def train(trial: Any) -> float:
    return float(trial["x"] + trial["n"])


def again(source: Path | tune.Study | None, **more: Any) -> tune.Study:
    settings: dict[str, Any] = {"space": SPACE, "minimize": "loss", "search": "random", "warm_start": source}
    return tune.Study(objective=train, **{**settings, **more})


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_an_export_is_a_warm_start(tmp_path: Path, ending: str) -> None:
    first = tune.Study(SPACE, train, minimize="loss", search="random").optimize(trials=4)
    file = tmp_path / f"earlier.{ending}"
    first.export(file)
    second = again(file)
    assert [(t.params, t.value, t.source) for t in second.trials] == [
        (t.params, t.value, "earlier") for t in first.trials
    ]
    assert len(second.optimize(trials=2).trials) == 6


def test_a_table_of_ones_own_is_a_warm_start(tmp_path: Path) -> None:
    file = tmp_path / "notes.csv"
    file.write_text(
        "when,x,kind,n,loss\nMay,0.5,a,2,1.25\nMay,0.5,c,2,1\nJune,0.25,b,3,\nJune,1,b,9,nan\nJuly,0,b,1,3\n"
    )
    found = again(file).trials
    assert [(t.params, t.value) for t in found] == [
        ({"x": 0.5, "kind": "a", "n": 2}, 1.25),
        ({"x": 0.0, "kind": "b", "n": 1}, 3.0),
    ]


@pytest.mark.parametrize(
    ("text", "must"),
    [
        ("x,kind,n,acc\n0.5,a,2,1\n", "must have the metric loss, got x, kind, n, acc"),
        ("lr,loss\n0.5,1\n", "must have points of this space .x, kind, n., got none among 1 completed trial"),
    ],
)
def test_a_table_without_use_is_refused(tmp_path: Path, text: str, must: str) -> None:
    (tmp_path / "notes.csv").write_text(text)
    with pytest.raises(StudyError, match=must):
        again(tmp_path / "notes.csv")
    with pytest.raises(StudyError, match=r"must be in .*nowhere.csv, got No such file"):
        again(tmp_path / "nowhere.csv")
    (tmp_path / "wrong.json").write_text("[1]")
    with pytest.raises(StudyError, match="must be a table of trials, got no list of trials"):
        again(tmp_path / "wrong.json")


def test_a_study_that_cannot_begin_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("lr,loss\n0.5,1\n")
    for more in ({"warm_start": tmp_path / "notes.csv"}, {"warm_start": None, "search": "tpee"}):
        with pytest.raises(StudyError):
            again(tmp_path, folder=tmp_path / "studies" / "new", **more)
        assert list_studies(tmp_path / "studies") == []
        assert not (tmp_path / "studies" / "new").exists()
    (tmp_path / "studies" / "torn").mkdir()
    (tmp_path / "studies" / "torn" / FILE).write_bytes(b'{"is":"begun"')  # killed while it began
    assert list_studies(tmp_path / "studies") == []
    assert again(None, folder=tmp_path / "studies" / "torn").state.state == "running"
    assert list_studies(tmp_path / "studies") == ["torn"]


def test_a_study_of_another_space_is_refused() -> None:
    first = tune.Study(SPACE, train, minimize="loss", search="random").optimize(trials=2)
    with pytest.raises(StudyError, match="got none among 2 completed trials of study study"):
        again(first, space={"y": "float:0:1"})
