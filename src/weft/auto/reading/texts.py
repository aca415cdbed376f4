"""Dates and numbers that are written as text, and the words that stand for a missing one.

What is found is told as a format, which rows to predict are read by, too: 03/04/2024 is one day in a table and another
day in the next.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ISO = "ISO 8601"
POINT, COMMA = "1,234.5", "1.234,5"  # formats of numbers
HOLES = frozenset(
    ("", "?", "-", "--", ".", "na", "n/a", "n.a.", "nan", "nil", "none", "null", "missing", "unknown")
)
_ISO_HEAD = re.compile(r"\d{4}-\d{2}-\d{2}([T ]|$)")
_LIKELY_DATE = re.compile(r"(?=.{6,40}$)(?=.*\d)[\w ,:/.+-]+$")
_DAYS = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%m-%d-%Y",
    "%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%d-%m-%y", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d %Y", "%Y-%b-%d",
    "%b-%Y", "%b %Y", "%Y-%m",
)  # fmt: skip
_CLOCKS = ("", " %H:%M:%S", " %H:%M", " %I:%M:%S %p", " %I:%M %p", " %H%M%S")
_YEARS = (1000, 3000)  # between these; a year of two digits is not one of four
_WEEKDAY = r"^(?i)(mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,? +"
_SAMPLE = 200  # values that a format is chosen by
_FIRST = 5  # values that most formats fail at
_SIGNS = str.maketrans("", "", "$€£¥%'  \t")
_PLAIN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_ENGLISH = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_CONTINENTAL = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d*)?")
_CODE = re.compile(r"[+-]?0\d")  # 01067 is a place, not a number
STRANGE = 0.25  # of the rows of a column of numbers that may be words
MOST_WORDS = 2  # of them that differ: they stand for missing numbers, and are kept in the format
OR = " | "
_FEW = 20  # whole numbers in text with so few distinct values are names of categories


def is_hole(text: str) -> bool:
    """Return whether a text stands for a missing date or number."""
    return text.strip().lower() in HOLES


def some_known(texts: Array) -> list[str]:
    """Return some different texts that are no holes."""
    found: dict[str, None] = {}
    for text in texts[: 50 * _SAMPLE].tolist():
        if not is_hole(text):
            found[text] = None
        if len(found) >= _SAMPLE:
            break
    return list(found)


def find_dates(pa: Any, texts: Array) -> tuple[Array, str] | None:
    """Return the seconds since 1970 of texts that are dates, with their format; None where some is neither."""
    sample = some_known(texts)
    if not sample or not all(_LIKELY_DATE.match(one.strip()) for one in sample[:_FIRST]):
        return None
    if all(_ISO_HEAD.match(one) for one in sample) and (found := dates_of(pa, texts, ISO)) is not None:
        return found, ISO
    for day, clock in product(_DAYS, _CLOCKS):
        form = day + clock
        if all(_parsed(pa, some, form) is not None for some in (sample[:_FIRST], sample)):
            found = dates_of(pa, texts, form)
            if found is not None:
                return found, form
    return None


def dates_of(pa: Any, texts: Array, form: str) -> Array | None:
    """Return dates of a format as seconds since 1970, NaN for holes; None where some text is not one."""
    known = np.array([not is_hole(text) for text in texts], bool)
    found = np.full(len(texts), np.nan)
    parsed = _parsed(pa, texts[known].tolist(), form)
    if parsed is None:
        return None
    found[known] = parsed
    return found


def _parsed(pa: Any, texts: list[str], form: str) -> Array | None:
    column = pa.array(texts, pa.string())
    if form == ISO:
        return _parsed_iso(pa, column)
    compute = pa.compute
    column = compute.replace_substring_regex(compute.utf8_trim_whitespace(column), _WEEKDAY, "")
    column = compute.replace_substring_regex(column, r"(\d)T(\d)", r"\1 \2")
    column = compute.replace_substring_regex(column, r"(:\d\d)\.\d+", r"\1")
    column = compute.replace_substring_regex(column, r"(,| )+", " ")
    column = compute.replace_substring_regex(column, r" ?(Z|UTC|GMT)$", "")
    times = compute.strptime(column, form, "s", error_is_null=True)
    if times.null_count:
        return None
    years = compute.year(times).to_numpy(zero_copy_only=False)
    if len(years) and not (_YEARS[0] <= years.min() and years.max() <= _YEARS[1]):
        return None
    seconds: Array = times.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.float64)
    return seconds


def _parsed_iso(pa: Any, column: Any) -> Array | None:
    for zone in (None, "UTC"):  # with an offset all of them have one
        try:
            times = column.cast(pa.timestamp("us", zone))
        except pa.ArrowException:
            continue
        micros: Array = times.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.float64)
        return micros / 1e6
    return None


def find_numbers(texts: Array) -> tuple[Array, str] | None:
    """Return texts as numbers, with their format; None where they are no numbers, or name categories.

    A word or two among numbers, such as "withheld", stand for missing ones and become a part of the format.
    """
    sample = some_known(texts)
    form = _number_format(sample)
    if form is None:
        return None
    counts = Counter(texts.tolist())
    form = next((one for one in (form, COMMA) if len(_strange(counts, one)) <= MOST_WORDS), None)
    if form is None:  # 1,234 may be either: later rows tell
        return None
    words = _strange(counts, form)
    known = sum(count for text, count in counts.items() if not is_hole(text))
    if sum(counts[word] for word in words) > STRANGE * known:
        return None
    form = OR.join((form, *words))
    found = numbers_of(texts, form)
    if found is None:
        return None
    plain = not words and all(text.strip().isdigit() for text in sample)
    holes = any(text and is_hole(text) for text in counts)
    if plain and not holes and len(np.unique(found[~np.isnan(found)])) <= _FEW:
        return None
    return found, form


def _strange(counts: Iterable[str], form: str) -> list[str]:
    """Return the texts that are neither numbers of a format nor holes."""
    return [text for text in counts if not is_hole(text) and _number(text, form) is None]


def numbers_of(texts: Array, form: str, strange: float = 0.0) -> Array | None:
    """Return numbers of a format, NaN for holes; None where a larger share than `strange` is something else."""
    plain, *words = form.split(OR)
    counts = Counter(texts.tolist())
    holes = {text for text in counts if is_hole(text) or text in words}
    known = {text: np.nan if text in holes else _number(text, plain) for text in counts}
    other = sum(counts[text] for text, number in known.items() if number is None)
    if other > strange * sum(count for text, count in counts.items() if text not in holes):
        return None
    return np.array([known[text] for text in texts.tolist()], np.float64)  # None becomes NaN


def _number(text: str, form: str) -> float | None:
    bare = text.translate(_SIGNS)
    if form == POINT and (_PLAIN.fullmatch(bare) or _ENGLISH.fullmatch(bare)):
        return float(bare.replace(",", ""))
    if form == COMMA and _CONTINENTAL.fullmatch(bare):
        return float(bare.replace(".", "").replace(",", "."))
    return None


def _number_format(sample: Sequence[str]) -> str | None:
    bare = [text.translate(_SIGNS) for text in sample]
    strange = [one for one in bare if not any(map(str.isdigit, one))]
    if any(_CODE.match(one) for one in bare) or len(strange) > MOST_WORDS or OR in "".join(sample):
        return None
    bare = [one for one in bare if one not in strange]
    if not bare:
        return None
    if all(_PLAIN.fullmatch(one) or _ENGLISH.fullmatch(one) for one in bare):
        return POINT
    return COMMA if all(_CONTINENTAL.fullmatch(one) for one in bare) else None
