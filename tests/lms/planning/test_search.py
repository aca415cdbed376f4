"""Plans against a simulated memory timeline, with no bytes in sight."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from testing.families import LlamaBlock, Transformer

from weft import lms
from weft.errors import BudgetError
from weft.lms.planning.plan import PlanFamily
from weft.lms.planning.playback import Choice, play
from weft.lms.planning.recording import Rates, Recording, SavedSite
from weft.lms.planning.search import PlanSoFar, _PlanSearch, make_plan, plans

MB = 10**6
RATES = Rates(out=50e9, back=50e9)


def transformer(layers: int = 12, width: int = 64 * MB, layer_s: float = 6e-3) -> Recording:
    """Blocks that save an input, a normed copy (cheap to rebuild), a hidden layer (dear) and an activation (cheap)."""
    kinds = (("Add", 1, None), ("LayerNorm", 1, 0.02), ("Addmm", 4, 0.3), ("Gelu", 4, 0.02))
    sites: list[SavedSite] = []
    events = layers * len(kinds)
    for layer in range(layers):
        for place, (op, size, cost) in enumerate(kinds):
            index = len(sites)
            sites.append(
                SavedSite(
                    op=op,
                    module=f"block{layer}",
                    bytes=size * width,
                    pack=index,
                    uses=(2 * events - 1 - index,),
                    held=index + 1,
                    recipe_s=None if cost is None else cost * layer_s,
                    needs=(index - 1,) if place else (),
                )
            )
    seconds = [layer_s / 4] * events + [layer_s / 2] * events + [0.0]
    return Recording(sites=tuple(sites), seconds=tuple(seconds), other=(500 * MB,) * len(seconds))


def test_where_the_host_waits_for_the_device_it_waits_for_copies_out() -> None:
    """A size that follows the data comes to the host behind the copies: plans rebuild more there, and swap less."""
    free = transformer()
    waiting = replace(free, waits=tuple(range(0, 48, 2)))
    limit = int(0.6 * make_plan(free, 1 << 40, RATES).timeline.peak)
    swapping, rebuilding = (make_plan(recording, limit, RATES) for recording in (free, waiting))
    assert rebuilding.bytes_of("swap") < swapping.bytes_of("swap")
    followed = play(waiting, swapping.choices, RATES, limit)
    assert followed.stall_s > swapping.timeline.stall_s
    assert rebuilding.timeline.seconds <= followed.seconds


def test_what_is_rebuilt_from_a_site_holds_it_until_then() -> None:
    """The backward pass is done with a site before it wants another that is rebuilt from it."""
    source = SavedSite(op="Add", module="", bytes=4, pack=0, uses=(2,), gone=3)
    target = SavedSite(op="Mm", module="", bytes=8, pack=1, uses=(5,), gone=6, recipe_s=1.0, needs=(0,))
    recording = Recording(sites=(source, target), seconds=(1.0,) * 7, other=(0,) * 7)
    kept = play(recording, ("keep", "keep"), RATES, 1 << 40)
    assert kept.levels[3:6] == (12, 8, 8)
    rebuilt = play(recording, ("keep", "recipe"), RATES, 1 << 40)
    assert rebuilt.levels[3:6] == (4, 4, 4)  # and not 0 from the fourth on
    assert rebuilt.levels[6] == 12


def test_times_of_a_step_of_other_sizes_are_taken_over_by_place() -> None:
    recording = Recording(sites=(), seconds=(1.0, 1.0, 3.0, 2.0, 5.0), other=(0,) * 5)
    # Event 1 was missing, event 2 came twice; the interval before event 2 took 8 seconds instead of 4.
    timed = recording.timed_by([(-1, 2.0), (0, 8.0), (2, 1.0), (2, 1.0), (3, 4.0)])
    assert timed.seconds == (2.0, 2.0, 6.0, 2.0, 4.0)


def test_what_fits_is_left_alone() -> None:
    recording = transformer()
    plan = make_plan(recording, 100_000 * MB, RATES)
    assert plan.keeps_all
    assert plan.slowdown == 1.0


def test_a_small_squeeze_costs_little_and_a_hard_one_more() -> None:
    recording = transformer()
    native = make_plan(recording, 100_000 * MB, RATES).native.peak
    costs = [make_plan(recording, int(native * share), RATES).slowdown for share in (0.9, 0.6, 0.4, 0.25)]
    assert costs == sorted(costs)
    assert costs[0] < 1.01
    assert costs[1] < 1.03  # cheap recipes and a hidden swap
    assert costs[3] < 1.35


def test_dearer_ways_come_later() -> None:
    recording = transformer()
    native = make_plan(recording, 100_000 * MB, RATES).native.peak
    plan = make_plan(recording, int(native * 0.6), RATES)
    rebuilt = {site.op for site, made in zip(recording.sites, plan.choices, strict=True) if made == "recipe"}
    assert "Addmm" not in rebuilt
    hard = make_plan(recording, int(native * 0.2), Rates(out=10e9, back=10e9))
    rebuilt = {site.op for site, made in zip(recording.sites, hard.choices, strict=True) if made == "recipe"}
    assert {"Addmm", "Gelu", "LayerNorm"} <= rebuilt


def test_what_takes_too_much_to_rebuild_at_one_moment_is_swapped_and_the_rest_rebuilt() -> None:
    """The host could not hold all of it."""
    recording = transformer()
    sites, events = list(recording.sites), len(recording.seconds)
    hard = 4 * 6 + 3  # the activation of one block
    sites[hard] = replace(sites[hard], recipe_bytes=900 * MB)
    recording = replace(recording, sites=tuple(sites), rest=(500 * MB,) * events)
    limit = 1900 * MB
    with pytest.raises(BudgetError, match="host"):
        make_plan(recording, limit, RATES, host=0)
    plan = make_plan(recording, limit, RATES, host=2000 * MB)
    assert plan.choices[hard] != "recipe"
    assert plan.bytes_of("recipe") > plan.bytes_of("swap") > 0
    assert plan.timeline.peak <= limit


def test_with_no_link_to_speak_of_all_is_rebuilt_and_with_no_recipes_all_is_swapped() -> None:
    recording = transformer()
    limit = 3_000 * MB
    slow = make_plan(recording, limit, Rates(out=1e8, back=1e8))
    assert slow.bytes_of("swap") < slow.bytes_of("recipe") / 10
    bare = replace(recording, sites=tuple(replace(site, recipe_s=None, needs=()) for site in recording.sites))
    plan = make_plan(bare, limit, RATES)
    assert plan.bytes_of("recipe") == 0
    assert plan.timeline.stall_s > 0  # the link cannot hide that much
    assert plan.timeline.peak <= limit


def test_a_budget_that_nothing_meets_names_the_operation_and_the_smallest_that_works() -> None:
    recording = transformer(layers=4)
    labels = tuple(f"event {index}" for index in range(recording.events))
    with pytest.raises(BudgetError, match="the smallest that works is limit='") as caught:
        make_plan(replace(recording, labels=labels), 100 * MB, RATES)
    assert "working set of event" in str(caught.value)
    smallest = int(str(caught.value).rpartition("limit='")[2].partition("MB")[0]) * MB
    assert make_plan(recording, smallest, RATES).timeline.peak <= smallest


def test_a_host_too_small_is_said_to_be_so() -> None:
    recording = transformer()
    bare = replace(recording, sites=tuple(replace(site, recipe_s=None, needs=()) for site in recording.sites))
    with pytest.raises(BudgetError, match="host must hold what is swapped"):
        make_plan(bare, 3_000 * MB, RATES, host=100 * MB)


def test_explain_has_a_line_for_each_kind_of_decision() -> None:
    text = make_plan(transformer(), 4_000 * MB, RATES).explain()
    assert "rebuild" in text
    assert "Gelu, block0" in text
    assert "peak" in text.splitlines()[0]


def test_a_storage_that_others_keep_alive_counts_until_they_let_go() -> None:
    site = SavedSite(op="Mm", module="", bytes=100, pack=0, uses=(3,), held=2, recipe_s=1.0)
    recording = Recording(sites=(site,), seconds=(1.0,) * 5, other=(0, 0, 10, 0, 0))
    assert play(recording, ["recipe"], RATES, 1 << 40).peak == 110
    free = replace(recording, sites=(replace(site, held=0),))
    timeline = play(free, ["recipe"], RATES, 1 << 40)
    assert timeline.peak == 100
    assert timeline.peak_interval == 4


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    count = draw(st.integers(1, 12))
    uses = draw(st.permutations(range(count)))
    sites = []
    for index in range(count):
        needs = draw(st.sets(st.integers(0, index - 1), max_size=2)) if index else set()
        sites.append(
            SavedSite(
                op="Op",
                module="",
                bytes=draw(st.integers(1, 50)) * MB,
                pack=index,
                uses=(count + uses[index],),
                held=draw(st.integers(0, count - 1)),
                recipe_s=draw(st.none() | st.floats(0, 1e-2)),
                needs=tuple(sorted(needs)),
            )
        )
    seconds = draw(st.lists(st.floats(0, 1e-2), min_size=2 * count + 1, max_size=2 * count + 1))
    other = draw(st.lists(st.integers(0, 30), min_size=2 * count + 1, max_size=2 * count + 1))
    return Recording(sites=tuple(sites), seconds=tuple(seconds), other=tuple(value * MB for value in other))


@pytest.mark.parametrize("name", ["gpt-16", "llama-4k"])
def test_a_search_that_has_no_time_gives_a_plan_that_fits_and_goes_on_later(name: str) -> None:
    recording, limit, rates = recorded(name)
    search = PlanSoFar(plans(recording, limit, rates), exact=True)
    found = []
    while not search.is_over:
        search.look(0.0)
        assert search.plan.timeline.peak <= limit
        found.append(search.plan.timeline.seconds)
    assert len(found) > 5
    assert found == sorted(found, reverse=True)
    assert found[-1] == make_plan(recording, limit, rates).timeline.seconds
    assert search.left is None


def test_a_thorough_search_goes_on_where_a_plan_like_the_last_one_is_as_good() -> None:
    recording, limit, rates = recorded("gpt-9")
    like = make_plan(recording, limit, rates)
    *_, plan = plans(recording, limit, rates, like=like, thorough=True)
    assert plan.timeline.seconds <= make_plan(recording, limit, rates, like=like).timeline.seconds


@settings(max_examples=60)
@given(recording=recordings(), share=st.floats(0.2, 1.0))
def test_a_plan_never_breaks_its_budget_and_plays_as_it_says(recording: Recording, share: float) -> None:
    native = play(recording, ["keep"] * len(recording.sites), RATES, 1 << 62)
    limit = max(1, int(native.peak * share))
    try:
        plan = make_plan(recording, limit, RATES)
    except BudgetError:
        return
    again = play(recording, plan.choices, RATES, limit)
    assert again == plan.timeline
    assert again.peak <= limit
    assert again.seconds >= native.seconds - 1e-9


@settings(max_examples=60)
@given(recording=recordings(), share=st.floats(0.2, 1.0), data=st.data())
def test_no_member_takes_less_than_was_thought_possible(
    recording: Recording, share: float, data: st.DataObject
) -> None:
    """Or the search would pass over good ones."""
    native = play(recording, ["keep"] * len(recording.sites), RATES, 1 << 62)
    search = _PlanSearch(
        recording, max(1, int(native.peak * share)), RATES, 1 << 62, PlanFamily(depth=4), native
    )
    rebuilt = search.rebuilt(data.draw(st.integers(0, len(search.cheapest))))
    others = search.swappable(rebuilt)
    found = search._fewest_swaps(rebuilt, others, len(others))
    if found is not None:
        _, timeline, _ = found
        assert search._at_least(rebuilt).seconds <= timeline.recipe_s + timeline.stall_s + 1e-9


@settings(max_examples=60)
@given(recording=recordings(), data=st.data())
def test_every_release_is_of_a_swap_and_comes_back_before_its_use(
    recording: Recording, data: st.DataObject
) -> None:
    ways: st.SearchStrategy[Choice] = st.sampled_from(("keep", "recipe", "swap"))
    choices = [data.draw(ways) if site.recipe_s is not None else "swap" for site in recording.sites]
    timeline = play(recording, choices, RATES, 1 << 40)
    back = {index: event for event, sites in timeline.fetches.items() for index in sites}
    for event, sites in timeline.releases.items():
        for index in sites:
            assert choices[index] == "swap"
            assert event <= back[index] <= recording.sites[index].uses[0]


def test_a_plan_looked_for_near_a_bad_one_is_nearly_as_good() -> None:
    recording = transformer(24)
    limit = make_plan(recording, 100_000 * MB, RATES).native.peak // 3
    stretched = replace(recording, seconds=tuple(5 * value for value in recording.seconds))
    bad = make_plan(stretched, limit, RATES)
    near, anew = make_plan(recording, limit, RATES, like=bad), make_plan(recording, limit, RATES)
    assert near.timeline.peak <= limit
    assert near.slowdown < 1.03 * anew.slowdown


def recorded(name: str) -> tuple[Recording, int, Rates]:
    """A step that ran on a card, what `benchmarks/lms.py --recordings` kept of it: with its budget and its link."""
    with gzip.open(Path(__file__).parents[1] / "recordings" / f"{name}.json.gz", "rt") as file:
        kept = json.load(file)
    limit, rates = kept.pop("limit"), Rates(**kept.pop("rates"))
    sites = [
        SavedSite(**(site | {"uses": tuple(site["uses"]), "needs": tuple(site["needs"])}))
        for site in kept.pop("sites")
    ]
    base = kept.pop("base")
    return (
        Recording(sites=tuple(sites), base=base, **{name: tuple(value) for name, value in kept.items()}),
        limit,
        rates,
    )


@pytest.mark.parametrize(
    ("name", "slowdown"),
    [("gpt-26", 1.044), ("gpt-16", 1.104), ("gpt-9", 1.149), ("llama-4k", 1.018), ("llama-32k", 1.065)],
)
def test_plans_for_steps_of_a_card_stay_as_good_as_they_were(name: str, slowdown: float) -> None:
    recording, limit, rates = recorded(name)
    plan = make_plan(recording, limit, rates)
    assert plan.timeline.peak <= limit
    assert plan.slowdown <= slowdown


def test_more_memory_never_costs_time() -> None:
    """The best plan may be far from the ends of all classes of prices, between two that are worse."""
    recording, limit, rates = recorded("llama-32k")
    native = make_plan(recording, 1 << 62, rates).native.peak
    budgets = [int(limit + (native - limit) * part / 20) for part in range(6)]
    costs = [make_plan(recording, budget, rates).slowdown for budget in budgets]
    for less, more in pairwise(costs):
        assert more <= less + 2e-3


def test_where_nothing_near_an_old_plan_is_good_others_are_tried() -> None:
    with torch.device("meta"):
        model = Transformer(8, lambda: LlamaBlock(2048, 16, 4, 7168), 2048).bfloat16()
        batch = torch.empty(1, 16384, 2048, dtype=torch.bfloat16)
    plan = lms.estimate(model, batch, "100GB").plan
    assert plan is not None
    recording = plan.recording
    limit = int(recording.base + (plan.native.peak - recording.base) * 0.22)
    old, faster = make_plan(recording, limit, RATES), recording.sped_up(0.7)
    near, anew = make_plan(faster, limit, RATES, like=old), make_plan(faster, limit, RATES)
    assert near.slowdown < anew.slowdown + 0.01
