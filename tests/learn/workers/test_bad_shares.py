"""Rows that one of several workers cannot fit: it says so, and the others say at once who it was and what it said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from testing.forking.server import TABLES, ForkServer
from testing.shell import Shell

from weft.errors import PeerError, ShareError, UsageError
from weft.files import cache_folder
from weft.learn.workers.faults import check_alike, error_of, fault_of

SCRIPT = str(Path(__file__).with_name("bad_shares.py"))
PATH = str(Path(__file__).parents[3])  # for the workers
SOON_S = 20.0  # from one's failure to the others': a group's time-out is minutes, busy cores may take seconds

# What one worker fails with: the case, its rank, what it says.
ALONE = (
    ("nan", 1, "Input X contains NaN: row 3, column 'b'"),
    ("weight", 2, "sample_weight must not be negative, got -1 in row 5"),
    ("weight of a tree", 2, "sample_weight must not be negative, got -1 in row 5"),
    ("labels", 0, "Unknown label type"),
    ("parameter", 0, "C must be a number above 0, got -1.0"),
    ("target", 1, "Input y contains NaN: row 7"),
    ("target of a forest", 1, "Input y contains NaN"),
    ("file without target", 2, "the target must be a column of"),
    ("corrupt file", 1, "share-1.parquet must be a readable parquet file"),
    ("large", 1, "Input X contains infinity: row 300000, column 1"),
    ("large, squares", 1, "Input X contains infinity: row 300000, column 1"),
    ("large, dual", 1, "Input X contains infinity: row 300000, column 1"),
    ("round", 1, "the third round must go well, got bad luck; try again"),
)
# What all of them say, since they differ.
ALIKE = (
    ("columns", "the same number of columns, got 4 on ranks 0 and 2, 3 on rank 1"),
    ("targets", "the same number of targets, got 1 on ranks 0 and 2, 2 on rank 1"),
    ("order", "the same columns in the same order, got 'c' on ranks 0 and 1, 'd' on rank 2 in place 2"),
    ("order in a forest", "the same order, got 'c' on ranks 0 and 1, 'd' on rank 2 in place 2"),
    ("kinds of labels", "labels of one kind, got numbers on ranks 0 and 2, text on rank 1"),
    ("everyone", "must be fitted by one worker where columns depend on each other"),
)

Told = dict[str, list[dict[str, Any]]]  # by case, then by rank


def told_by_workers(forks: ForkServer, folder: Path, *args: str) -> Told:
    variables = {"PYTHONPATH": PATH, "NUMBA_CACHE_DIR": str(cache_folder("kernels"))}
    done = forks.load(*TABLES).run(
        ["run", "-n", "3", SCRIPT, str(folder), *args],
        env=Shell(folder).environment(variables),
        cwd=folder,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    ranks = [json.loads((folder / f"told-{rank}.json").read_text()) for rank in range(3)]
    return {one[0]["case"]: list(one) for one in zip(*ranks, strict=True)}


def test_what_is_no_fault_of_the_input_is_no_misuse() -> None:
    bad, rows = fault_of(MemoryError("no room")), fault_of(ValueError("rows must be good,\n got bad ones"))
    assert type(error_of({1: rows})) is ShareError
    assert "got on rank 1: rows must be good,; " in str(error_of({1: rows}))
    failure = error_of({0: rows, 2: bad})
    assert type(failure) is PeerError
    assert str(failure).endswith("got on rank 0: rows must be good,; rank 2: MemoryError: no room")
    assert fault_of(KeyError("y")).said == "KeyError: 'y'"
    assert fault_of(ValueError()).said == "ValueError: "


def test_who_differs_is_named() -> None:
    check_alike("the same", [3, 3])
    with pytest.raises(UsageError, match="the same, got 3 on ranks 0, 1 and 3, 4 on rank 2 there; give"):
        check_alike("the same", [3, 3, 4, 3], " there")


@pytest.mark.long
def test_one_worker_cannot_fit_and_the_others_say_why(tmp_path: Path, forks: ForkServer) -> None:
    told = told_by_workers(forks, tmp_path)
    for case, bad, said in ALONE:
        for rank, one in enumerate(told[case]):
            assert said in one["said"], one
            assert abs(one["at"] - told[case][bad]["at"]) < SOON_S, one
            assert one["left"] == [], one  # nothing is half fitted
            assert ("ShareError" in one["kinds"]) == (rank != bad), one
            if rank != bad:
                assert f"got on rank {bad}: " in one["said"]
                assert (one["code"], "ValueError" in one["kinds"]) == (2, True)
    for case, said in ALIKE:
        for one in told[case]:
            assert said in one["said"], one
            assert one["code"] == 2
            assert one["at"] - min(each["at"] for each in told[case]) < SOON_S, one
            assert one["left"] == [], one
    first, *others = told["good"]  # after all those: the group is whole
    assert first["coef"]
    for one in others:
        assert one["coef"] == first["coef"]


@pytest.mark.long
def test_the_rank_that_keeps_the_store_fails_in_the_midst_of_a_fit(tmp_path: Path, forks: ForkServer) -> None:
    for rank, one in enumerate(told_by_workers(forks, tmp_path, "0")["round"]):
        assert "the third round must go well" in one["said"]
        assert ("ShareError" in one["kinds"]) == (rank != 0)
