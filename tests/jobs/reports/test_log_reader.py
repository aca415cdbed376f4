"""Logs of attempts: pages, tails, numbers, searches, and lines as they come."""

from __future__ import annotations

import asyncio
import random
import re
import time
from pathlib import Path

import pytest

from weft.errors import UsageError
from weft.jobs.reports import line_index, logs, search
from weft.jobs.reports.line_index import LineIndex
from weft.jobs.reports.logs import LAUNCHER, LogReader


@pytest.fixture
def reader(run_dir: Path) -> LogReader:
    (run_dir / "rank-0.log").write_text("".join(f"zero {number}\n" for number in range(1, 101)))
    (run_dir / "rank-10.log").write_bytes(b"ten\xff\n10%\r50%\r100%\r\npart")
    (run_dir.parent / "launcher.log").write_text(
        "weft: started\n[ 0] zero 1\n[10] ten\n[ 0] zero 2\nweft: done [1] x\n"
    )
    return LogReader(run_dir)


def texts(page: logs.LogPage) -> list[str]:
    return [line.text for line in page.lines]


def test_pages_follow_each_other(reader: LogReader) -> None:
    assert reader.ranks() == (LAUNCHER, 0, 10)
    first = reader.page(0, limit=60)
    rest = reader.page(0, first.next, limit=60)
    assert texts(first) + texts(rest) == [f"zero {number}" for number in range(1, 101)]
    assert [line.number for line in rest.lines] == list(range(61, 101))
    assert not first.complete
    assert rest.complete
    assert reader.page(0, rest.next).lines == ()
    back = reader.before(0, rest.first, 5)
    assert texts(back) == [f"zero {number}" for number in range(56, 61)]


def test_the_end_comes_first_where_it_is_asked_for(reader: LogReader) -> None:
    page = reader.tail(0, 3)
    assert [(line.number, line.text) for line in page.lines] == [
        (98, "zero 98"),
        (99, "zero 99"),
        (100, "zero 100"),
    ]
    assert reader.page(0, page.next).lines == ()
    assert len(reader.tail(0, 1000).lines) == 100
    assert reader.tail(0, 0).lines == ()
    assert reader.tail(7, 5).lines == ()


def test_bytes_of_any_kind_are_shown_as_a_terminal_would(reader: LogReader, run_dir: Path) -> None:
    page = reader.page(10)
    assert texts(page) == ["ten\ufffd", "100%"]  # the last line is still being written
    assert texts(LogReader(run_dir, ended=True).page(10)) == ["ten\ufffd", "100%", "part"]


def test_the_lines_of_all_ranks_come_in_their_order(reader: LogReader) -> None:
    merged = reader.page(None)
    assert [(line.rank, line.text) for line in merged.lines] == [
        (LAUNCHER, "weft: started"),
        (0, "zero 1"),
        (10, "ten"),
        (0, "zero 2"),
        (LAUNCHER, "weft: done [1] x"),
    ]
    assert [line.number for line in reader.page(LAUNCHER).lines] == [1, 5]
    assert [line.text for line in reader.page(None, grep="^zero").lines] == ["zero 1", "zero 2"]


@pytest.mark.parametrize("cursor", ["x", "-1", "1e3", "9" * 30])
def test_a_cursor_of_another_kind_is_refused(reader: LogReader, cursor: str) -> None:
    with pytest.raises(UsageError, match="cursor must be one that a page of this log gave"):
        reader.page(0, cursor)


def test_a_bad_expression_is_refused(reader: LogReader) -> None:
    with pytest.raises(UsageError, match="grep must be a regular expression, got"):
        reader.page(0, grep="(")


@pytest.mark.parametrize(
    "pattern",
    [
        "zero 7",
        r"o [79]$",
        "zero 1|zero 2",
        r"^\S+ 1.$",
        "(?i)ZERO 5",
        "o+ .*9$",
        "nothing",
        "^zero 5$",
        r"\A\w",
        r"\d\Z",
        r"[^\d]3$",
        r"5(?!\s)",
        "",
        r"(zero|one) \d\d0",
    ],
)
def test_a_search_finds_what_reading_every_line_finds(reader: LogReader, pattern: str) -> None:
    wanted = [n for n in range(1, 101) if re.search(pattern, f"zero {n}")]
    assert [line.number for line in reader.page(0, grep=pattern, limit=1000).lines] == wanted
    assert [line.number for line in reader.tail(0, 1000, grep=pattern).lines] == wanted
    first = reader.page(0, grep=pattern, limit=2)
    second = reader.page(0, first.next, grep=pattern, limit=1000)
    assert [line.number for line in (*first.lines, *second.lines)] == wanted


def test_a_search_across_blocks_and_lines_longer_than_them(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "BLOCK_BYTES", 100)
    monkeypatch.setattr(line_index, "BLOCK_BYTES", 64)
    chance = random.Random(0)
    lines = ["x" * chance.choice([0, 5, 90, 300, 900]) + chance.choice(["needle", "hay"]) for _ in range(200)]
    (run_dir / "rank-0.log").write_text("\n".join(lines) + "\n")
    reader = LogReader(run_dir)
    wanted = [number for number, line in enumerate(lines, 1) if "needle" in line]
    assert [line.number for line in reader.page(0, grep="needle").lines] == wanted
    assert [line.number for line in reader.page(0, grep="needl[e]$").lines] == wanted
    assert [line.number for line in reader.tail(0, 10, grep="needle").lines] == wanted[-10:]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (b"error", (b"error",)),
        (rb"\d+ error: .*", (b" error: ",)),
        (b"[Ee]rror", (b"rror",)),
        (b"warn|error", (b"warn", b"error")),
        (b"(?:fatal )?loss=nan", (b"loss=nan",)),
        (b"(?i)NaN", (b"nan",)),
        (rb"\d+", ()),
        (b"a|error", ()),
        (b"(abc)+", (b"abc",)),
        (b"(abc)*", ()),
    ],
)
def test_the_text_that_must_occur_is_known(pattern: bytes, found: tuple[bytes, ...]) -> None:
    assert set(search.literals_of(pattern)[0]) == set(found)


def test_a_search_that_takes_for_ever_is_ended(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SEARCH_S", 0.3)
    (run_dir / "rank-0.log").write_text("fine\n" + "a" * 40 + "!\n")
    began = time.monotonic()
    page = LogReader(run_dir).page(0, grep="(a+)+$")
    assert time.monotonic() - began < 60
    assert page.next == "0"
    assert not page.complete


def test_line_numbers_of_a_growing_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "BLOCK_BYTES", 32)
    log, kept = tmp_path / "rank-0.log", tmp_path / "index" / "rank-0.log.lines"
    starts: list[int] = []
    for _ in range(5):
        with log.open("ab") as file:
            for length in (0, 3, 40, 100, 1):
                starts.append(file.tell())
                file.write(b"x" * length + b"\n")
        for index in (LineIndex(log, kept), LineIndex(log, kept), LineIndex(log)):
            assert [index.number_at(start) for start in starts] == list(range(1, len(starts) + 1))
            assert [index.offset_of(number) for number in range(1, len(starts) + 1)] == starts
            assert index.offset_of(10**6) == log.stat().st_size
    assert kept.stat().st_size == 8 * (starts[-1] // 32)


def test_lines_are_followed_as_they_come(run_dir: Path) -> None:
    log = run_dir / "rank-0.log"

    async def watch() -> list[str]:
        seen: list[str] = []
        log.write_text("one\ntw")
        async for page in LogReader(run_dir).follow(0):
            seen += texts(page)
            if seen == ["one"]:
                with log.open("a") as file:
                    file.write("o\nthree\n")
            if len(seen) == 3:
                return seen
        return seen

    assert asyncio.run(asyncio.wait_for(watch(), 30)) == ["one", "two", "three"]
