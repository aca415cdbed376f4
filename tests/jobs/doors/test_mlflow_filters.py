from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.jobs.doors.mlflow.filters import (
    EXPERIMENT_ATTRIBUTES,
    FilterComparison,
    FilterError,
    Order,
    parse_filter,
    parse_order,
    parse_orders,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("   ", ()),
        ("metrics.x < 1", (FilterComparison("metric", "x", "<", 1.0),)),
        ("metric.val.loss>=-1.5e-3", (FilterComparison("metric", "val.loss", ">=", -0.0015),)),
        ('metrics."val loss" != .5', (FilterComparison("metric", "val loss", "!=", 0.5),)),
        ("params.`learning rate` = '0.1'", (FilterComparison("param", "learning rate", "=", "0.1"),)),
        ("parameters.y LIKE '%z'", (FilterComparison("param", "y", "LIKE", "%z"),)),
        ("tags.mlflow.runName ilike \"A%\"", (FilterComparison("tag", "mlflow.runName", "ILIKE", "A%"),)),
        ("tags.a IS NULL and params.b is not null",
         (FilterComparison("tag", "a", "IS NULL", None), FilterComparison("param", "b", "IS NOT NULL", None))),
        ("attributes.status = 'RUNNING'", (FilterComparison("attribute", "status", "=", "RUNNING"),)),
        ("start_time > 100", (FilterComparison("attribute", "start_time", ">", 100.0),)),
        ("attr.created <= 5", (FilterComparison("attribute", "start_time", "<=", 5.0),)),
        ("`Run name` = 'it''s'", (FilterComparison("attribute", "run_name", "=", "it's"),)),
        ("run.run_id NOT IN ('1', '2')", (FilterComparison("attribute", "run_id", "NOT IN", ("1", "2")),)),
        ("datasets.digest = 'abc'", (FilterComparison("dataset", "digest", "=", "abc"),)),
        ("metrics.a<1 AND metrics.b>2 and tags.c<>'d'",
         (FilterComparison("metric", "a", "<", 1.0), FilterComparison("metric", "b", ">", 2.0),
          FilterComparison("tag", "c", "!=", "d"))),
        ("params.x = 'a and tags.b = ''c'''", (FilterComparison("param", "x", "=", "a and tags.b = 'c'"),)),
    ],
)  # fmt: skip
def test_filters_are_read_as_mlflow_reads_them(text: str, expected: tuple[FilterComparison, ...]) -> None:
    assert parse_filter(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("metrics.x < 1 OR metrics.y < 2", "AND"),
        ("metrics.x", "a comparison"),
        ("metrics.x <", "a value"),
        ("metrics.x = 'a'", "a number"),
        ("metrics.x LIKE 'a'", "one of"),
        ("params.x = 3", "in quotes"),
        ("params.x < '3'", "one of"),
        ("attributes.colour = 'x'", "one of the attributes"),
        ("sizes.x = 'x'", "before a key"),
        ("run_id IN ()", "in quotes"),
        ("run_id IN ('a' 'b')", "a comma"),
        ("tags.a IS 'x'", "NULL"),
        ("params.x = 'open", "joined by AND"),
        ("metrics.x < 1; DROP TABLE job", "joined by AND"),
        ("metrics. < 1", "a key after"),
        ("and", "one of the attributes"),
        ("datasets.size = 'x'", "of data sets"),
    ],
)
def test_what_is_no_filter_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason):
        parse_filter(text)


def test_orders() -> None:
    assert parse_order("metrics.`val loss` DESC") == Order("metric", "val loss", False)
    assert parse_orders(["start_time", "params.x asc"]) == (
        Order("attribute", "start_time"),
        Order("param", "x"),
    )
    assert parse_order("last_update_time desc", EXPERIMENT_ATTRIBUTES) == Order(
        "attribute", "last_update_time", False
    )
    for wrong in ("metrics.x down", "metrics.x ASC, y", "", "datasets.name"):
        with pytest.raises(FilterError):
            parse_order(wrong)
    with pytest.raises(FilterError, match="at most"):
        parse_orders(["metrics.x"] * 21)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(FilterError):
        parse_filter(text)


@given(st.text("ab`'\" .=<>%_\\\n", min_size=1), st.text("ab`'\" .=<>%_\\\n"))
def test_a_quoted_value_comes_back_as_it_was(key: str, value: str) -> None:
    quoted = value.replace("'", "''")
    name = key.replace('"', '""')
    assert parse_filter(f"params.\"{name}\" = '{quoted}'") == (FilterComparison("param", key, "=", value),)


def test_bounds() -> None:
    with pytest.raises(FilterError, match="characters"):
        parse_filter("a" * 100_001)
    with pytest.raises(FilterError, match="comparisons"):
        parse_filter(" and ".join(["metrics.x < 1"] * 201))
