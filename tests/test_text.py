"""Sizes, durations, speeds, tables and plurals in text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import DataError, UsageError
from weft.text import (
    format_seconds,
    format_share,
    format_size,
    format_speed,
    format_table,
    parse_duration,
    parse_size,
    plural,
    round_up_size,
    table_layout,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        (" 16 ", 16),
        ("16e9", 16 * 10**9),
        ("1.6E+10", 16 * 10**9),
        ("12B", 12),
        ("1kB", 1000),
        ("1KB", 1000),
        ("40MB", 40 * 10**6),
        ("4GB", 4 * 10**9),
        ("20 gb", 20 * 10**9),
        ("2TB", 2 * 10**12),
        ("4KiB", 4096),
        ("1.5 MiB", 3 << 19),
        ("512mib", 1 << 29),
        ("1.5 GiB", 3 << 29),
        (".5GiB", 1 << 29),
        ("1TiB", 1 << 40),
        ("4k", 4096),
        ("64M", 64 << 20),
        ("4096m", 1 << 32),
        (7, 7),
        (2e9, 2 * 10**9),
        (str((1 << 60) + 1), (1 << 60) + 1),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str | float, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "four", "4 apples", "-1", "4KiB MiB", "GB", "20 XB", "-3GB", "1e", "4ib", True]
)
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"a size must be a number of bytes such as .*, got .*; write 4KiB"):
        parse_size(text)


@pytest.mark.parametrize("size", [0, "0", "0.1", -3, "1e30", float("nan"), float("inf")])
def test_sizes_out_of_bounds_are_refused(size: str | float) -> None:
    with pytest.raises(UsageError, match=r"limit must be at least 1 byte .*; write limit='20GB'"):
        parse_size(size, "limit", write="limit='20GB'")


def test_the_caller_chooses_the_error() -> None:
    with pytest.raises(
        DataError, match=r"memory must be a number of bytes .* got 'much'; write memory='4GB'"
    ):
        parse_size("much", "memory", write="memory='4GB'", error=DataError)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (12, "12 B"),
        (3_175, "3.1 KiB"),
        (700 << 20, "700 MiB"),
        (26 << 30, "26.0 GiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (3 << 40, "3.0 TiB"),
        (-(1 << 20), "-1.0 MiB"),
    ],
)
def test_sizes_are_written_in_the_largest_unit_that_fits(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(100, "100 B"), (4096, "4 KiB"), (3 << 19, "1.5 MiB"), (1 << 30, "1 GiB"), (1010 << 20, "1010 MiB")],
)
def test_trimmed_sizes_have_no_zeros_at_the_end(size: int, text: str) -> None:
    assert format_size(size, trimmed=True) == text


def test_sizes_in_powers_of_1000_and_in_a_fixed_unit() -> None:
    assert format_size(44_700_000, decimal=True, trimmed=True) == "44.7 MB"
    assert format_size(1_000, decimal=True, trimmed=True) == "1 kB"
    assert format_size(999_990, decimal=True, trimmed=True) == "1 MB"
    assert format_size(252 << 30, unit="GiB") == "252.0 GiB"
    assert format_size(1 << 20, unit="GiB") == "0.0 GiB"


@given(st.integers(1, 1 << 50))
def test_a_rounded_up_size_is_at_least_as_large(size: int) -> None:
    assert size <= parse_size(round_up_size(size)) < size + 10**6


@given(st.integers(1, 1 << 50))
def test_a_written_size_is_read_as_nearly_the_same(size: int) -> None:
    for text in (format_size(size, trimmed=True), format_size(size, trimmed=True, decimal=True)):
        assert parse_size(text) == pytest.approx(size, rel=0.006)


@pytest.mark.parametrize(
    ("seconds", "text", "padded"),
    [
        (45e-6, "45 us", "45.0 us"),
        (9.996e-6, "10 us", "10.0 us"),
        (1e-3, "1 ms", "1.00 ms"),
        (0.01234, "12.3 ms", "12.3 ms"),
        (0.9996, "1 s", "1.00 s"),
        (1.5, "1.5 s", "1.50 s"),
        (123.4, "123 s", "123 s"),
        (4000, "4000 s", "4000 s"),
        (0, "0 us", "0.00 us"),
    ],
)
def test_durations_have_three_figures(seconds: float, text: str, padded: str) -> None:
    assert format_seconds(seconds) == text
    assert format_seconds(seconds, padded=True) == padded


@pytest.mark.parametrize(
    ("mbps", "text"),
    [
        (25_000, "25 Gbit/s"),
        (2_500, "2.5 Gbit/s"),
        (100, "100 Mbit/s"),
        (9_412, "9.41 Gbit/s"),
        (94.12, "94.1 Mbit/s"),
    ],
)
def test_speeds(mbps: float, text: str) -> None:
    assert format_speed(mbps) == text


def test_shares_and_plurals() -> None:
    assert [format_share(part, 1000) for part in (3.1, 120)] == ["0.31%", "12%"]
    assert format_share(1, 0) == "0%"
    assert [plural(1, "step"), plural(12, "step"), plural(0, "host")] == ["1 step", "12 steps", "0 hosts"]
    assert [plural(2, "micro-batch"), plural(3, "copy"), plural(2, "day"), plural(2, "process")] == [
        "2 micro-batches",
        "3 copies",
        "2 days",
        "2 processes",
    ]


def test_numbers_end_at_the_right_and_words_begin_at_the_left() -> None:
    rows = [("size", "backend", "time"), ("4 KiB", "weft", "20 us"), ("64 KiB", "gloo", "1 ms")]
    assert format_table(rows, left={"backend"}) == [
        "  size  backend   time",
        " 4 KiB  weft     20 us",
        "64 KiB  gloo      1 ms",
    ]


def test_rows_that_come_later_keep_the_layout() -> None:
    layout = table_layout([("step", "why"), ("100", "start")], left={"why"})
    assert layout.line(("7", "death")) == "   7  death"
    assert layout.line(("123456", "late")) == "123456  late"


def test_a_huge_value_is_cut_in_an_error() -> None:
    for size in ("9" * 5000, "x" * 5000, 10**5000):
        with pytest.raises(UsageError) as refused:
            parse_size(size)
        assert len(str(refused.value)) < 250


@pytest.mark.parametrize("given", ["٣h", "٣", "h", "3x", "", "-1h"])
def test_what_is_no_duration_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="must be a time up to ten years"):
        parse_duration(given)
