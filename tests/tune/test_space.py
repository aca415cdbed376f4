"""Search spaces: text and back, conditions, constraints, and points that are refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.tune.results.views import TrialView, trial_view
from weft.tune.samplers.simple import grid_points, random_point
from weft.tune.space.domains import (
    Choices,
    Domain,
    FloatRange,
    IntRange,
    LogRange,
    OrderedChoices,
    SpaceError,
)
from weft.tune.space.space import SearchSpace
from weft.tune.space.text import parse_domain, parse_parameter, read_domain
from weft.tune.study.config import convert_config
from weft.tune.study.core import StudyCore


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("log:1e-5:1e-1", LogRange(None, 1e-5, 1e-1)),
        ("float:0:0.5", FloatRange(None, 0, 0.5)),
        ("float:0:1:0.25", FloatRange(None, 0, 1, 0.25)),
        ("int:16:512:log", IntRange(None, 16, 512, log=True)),
        ("int:16:512:16", IntRange(None, 16, 512, 16)),
        ("adam,sgd", Choices(None, ("adam", "sgd"))),
        ("1,2.5,true,null,x", Choices(None, (1, 2.5, True, None, "x"))),
        ("ordered:32,64,128", OrderedChoices(None, (32, 64, 128))),
        ("float:0.8:0.99 if optimizer == sgd", FloatRange("optimizer == sgd", 0.8, 0.99)),
        ("7", Choices(None, (7,))),
    ],
)
def test_text_stands_for_a_domain(text: str, domain: Domain) -> None:
    assert parse_domain(text) == domain
    assert read_domain(domain.data(), "x") == domain


@pytest.mark.parametrize(
    ("text", "must"),
    [
        ("lr", "NAME=DOMAIN"),
        ("lr=", "NAME=DOMAIN"),
        ("l r=1,2", "letters, digits"),
        ("lr=log:0:1", "0 < LOW < HIGH"),
        ("lr=log:1:1", "0 < LOW < HIGH"),
        ("lr=float:2:1", "LOW < HIGH"),
        ("lr=float:a:1", "must be a number"),
        ("lr=int:1.5:3", "whole numbers"),
        ("lr=int:0:8:log", "begin at 1"),
        ("lr=lgo:1:2", "did you mean log?"),
        ("o=a,a", "must differ"),
        ("o=a,,b", "between commas"),
        ("lr=log:1:2:3", "log:LOW:HIGH"),
    ],
)
def test_bad_text_is_refused_in_a_sentence(text: str, must: str) -> None:
    with pytest.raises(SpaceError) as refused:
        parse_parameter(text)
    assert must in str(refused.value)
    assert ", got " in str(refused.value)


@pytest.mark.parametrize(
    ("domains", "constraints", "must"),
    [
        ({}, (), "at least one parameter"),
        ({"a": "1,2 if b == 1", "b": "1,2 if a == 1"}, (), "circle"),
        ({"a": "1,2 if c == 1"}, (), "must be a parameter"),
        ({"a": "1,2"}, ("__import__('os')",), "must compare"),
        ({"a": "1,2"}, ("a <",), "an expression"),
    ],
)
def test_bad_spaces_are_refused(domains: dict[str, str], constraints: tuple[str, ...], must: str) -> None:
    with pytest.raises(SpaceError, match=must):
        SearchSpace(domains, constraints)


def test_conditions_and_constraints_hold_for_all_points() -> None:
    space = SearchSpace(
        {
            "momentum": "float:0.8:0.99 if optimizer == sgd",
            "optimizer": "adam,sgd",
            "batch": "ordered:8,64,512",
        },
        ["batch <= 64 or optimizer == 'sgd'"],
    )
    assert list(space.domains) == ["optimizer", "momentum", "batch"]
    for seed in range(200):
        point = random_point(space, np.random.default_rng(seed))
        assert ("momentum" in point) == (point["optimizer"] == "sgd")
        assert point["batch"] != 512 or point["optimizer"] == "sgd"
        assert space.check_point(point) == point
    points = list(grid_points(space, 3))
    assert len(points) == 2 + 3 * 3
    assert all(map(space.allows, points))


@pytest.mark.parametrize(
    ("point", "must"),
    [
        ({"lr": 0.1}, "value of k"),
        ({"lr": 0.1, "k": "c"}, "k must be in a,b"),
        ({"lr": 5.0, "k": "a"}, "lr must be in"),
        ({"lr": 0.1, "k": "b", "m": 1}, "left out"),
        ({"lr": 0.1, "k": "a", "m": 1, "z": 1}, "parameters of the space"),
        ({"lr": 0.5, "k": "a", "m": 2}, r"must meet lr \* m < 1"),
    ],
)
def test_points_outside_the_space_are_refused(point: dict[str, object], must: str) -> None:
    space = SearchSpace({"lr": "float:0:1", "k": "a,b", "m": "int:1:4 if k == a"}, ["lr * m < 1"])
    with pytest.raises(SpaceError, match=must):
        space.check_point(point)


def test_constraints_that_leave_nothing_are_told() -> None:
    with pytest.raises(SpaceError, match="must leave points"):
        random_point(SearchSpace({"a": "float:0:1"}, ["a > 2"]), np.random.default_rng(0))


domains = st.one_of(
    st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda p: FloatRange(None, p[0], p[0] + p[1])),
    st.tuples(st.floats(1e-9, 1), st.floats(1.5, 1e6)).map(lambda p: LogRange(None, p[0], p[0] * p[1])),
    st.tuples(st.integers(1, 10**6), st.integers(1, 10**6), st.booleans()).map(
        lambda p: IntRange(None, p[0], p[0] + p[1], log=p[2])
    ),
    st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, unique=True).map(
        lambda v: Choices(None, tuple(v))
    ),
    st.lists(st.integers(-99, 99), min_size=2, unique=True).map(lambda v: OrderedChoices(None, tuple(v))),
)


@settings(max_examples=60)
@given(domains, st.integers(0, 2**31))
def test_a_domain_survives_its_text_and_holds_its_draws(domain: Domain, seed: int) -> None:
    assert read_domain(domain.data(), "x") == domain
    if domain not in (Choices(None, ("true",)), Choices(None, ("null",))):
        parsed = parse_domain(domain.text())
        assert {"true", "false", "null"} & set(domain.text().split(",")) or parsed == domain
    space = SearchSpace({"x": domain})
    point = random_point(space, np.random.default_rng(seed))
    assert domain.contains(point["x"])
    assert all(map(domain.contains, domain.grid(4)))


def test_choices_that_are_lists_have_a_text() -> None:
    space = SearchSpace({"layers": [[64], [64, 32], [4, [2, 2]]], "n": [64, "64"]})
    for layers in ((64, 32), [64, 32], "64,32"):
        assert space.check_point({"layers": layers, "n": "64"}) == {"layers": (64, 32), "n": "64"}
    assert space.check_point({"layers": 64, "n": 64}) == {"layers": (64,), "n": 64}
    with pytest.raises(SpaceError, match=r"layers must be in \[64\],\[64 32\],\[4 \[2 2\]\], got '64,33'"):
        space.check_point({"layers": "64,33", "n": 64})
    core = StudyCore.begin(convert_config({"space": space.data(), "minimize": "loss", "search": "grid"}))
    core.actions(9)
    shown = [trial_view(core.state, trial).params["layers"] for trial in core.state]
    assert shown == ["64", "64", "64,32", "64,32", "4,2,2", "4,2,2"]
    view = msgspec.json.encode(trial_view(core.state, core.state.trials[5]))
    assert msgspec.json.decode(view, type=TrialView).params == {"layers": "4,2,2", "n": "64"}
