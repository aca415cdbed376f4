"""Plans that call modules again, on recordings of blocks and on random ones, with no device."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lms.planning.test_never_worse import MB, random_step

from weft.lms.planning.blocks import ModuleSpan, called_again, plan_blocks
from weft.lms.planning.launching import LaunchCost
from weft.lms.planning.playback import play
from weft.lms.planning.recording import Rates, Recording, SavedSite
from weft.lms.planning.search import make_plan

RATES = Rates(out=1e8, back=1e8)
FREE, BOUND = LaunchCost(), LaunchCost(1.0)
BLOCKS = 12


def small_operations(each: int = 40) -> Recording:
    """Blocks that save their argument, and many more tensors as small: a tape makes each again from that before it."""
    events = BLOCKS * each
    sites = [
        SavedSite(
            op=f"op{index % each}",
            module="",
            bytes=MB,
            pack=index,
            uses=(2 * events - 1 - index,),
            held=index + 1,
            recipe_s=1e-5 if index % each else None,
            needs=(index - 1,) if index % each else (),
            replayed=(index,) if index % each else (),
        )
        for index in range(events)
    ]
    seconds = [1e-5] * events + [2e-5] * events + [0.0]
    return Recording(sites=tuple(sites), seconds=tuple(seconds), other=(5 * MB,) * len(seconds))


def spans(recording: Recording, blocks: int, kinds: tuple[str, ...] = ("Block",)) -> list[ModuleSpan]:
    """The blocks of a step, each of which saves as many tensors, in a model that is a module, too."""
    each = len(recording.sites) // blocks
    whole = ModuleSpan(module=blocks, kind="Model", depth=0, first=0, last=len(recording.sites) - 1)
    inside = [
        ModuleSpan(
            module=block,
            kind=kinds[block * len(kinds) // blocks],
            depth=1,
            first=block * each,
            last=(block + 1) * each - 1,
            began=block * each,
            operations=each,
            given=frozenset({block * each}),
        )
        for block in range(blocks)
    ]
    return [whole, *inside]


def native_peak(recording: Recording) -> int:
    return play(recording, ["keep"] * len(recording.sites), RATES, 1 << 62).peak


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_all_blocks_called_again_take_what_checkpointing_takes(seed: int) -> None:
    step = random_step(Random(seed))
    blocks = len({site.module for site in step.recording.sites})
    timeline = called_again(step.recording, spans(step.recording, blocks)[1:], RATES)
    assert timeline.seconds == pytest.approx(step.seconds)
    assert timeline.peak <= 1.0001 * step.peak


def test_arguments_that_autograd_does_not_save_are_held_until_a_module_is_called_again() -> None:
    recording = small_operations()
    modules = spans(recording, BLOCKS)[1:]
    saved = called_again(recording, modules, RATES)
    edges = (7, 3 * MB)  # which all of them are given
    unsaved = [
        replace(span, given=frozenset(), unsaved=((span.module + 8, 2 * MB), edges)) for span in modules
    ]
    held = called_again(recording, unsaved, RATES)
    assert held.seconds == pytest.approx(saved.seconds)
    # The last one is called again while the arguments of all are there, and its first tensor is made again.
    assert held.peak == saved.peak + (BLOCKS + 3 + 1) * MB
    alone = called_again(recording, unsaved[:1], RATES)
    assert (
        alone.levels[len(recording.sites)]
        == called_again(recording, modules[:1], RATES).levels[len(recording.sites)] + (2 + 3 - 1) * MB
    )


@pytest.mark.parametrize("share", [0.9, 0.5, 0.25])
def test_no_more_blocks_are_called_again_than_must_be(share: float) -> None:
    recording = small_operations()
    modules = spans(recording, BLOCKS)
    limit = int(share * native_peak(recording))
    plan = plan_blocks(recording, modules, limit, RATES, FREE)
    assert plan is not None
    count = len(plan.modules)
    assert plan.modules == frozenset(range(count))  # the first ones, which are wanted last
    assert called_again(recording, modules[1 : count + 1], RATES).peak <= limit
    assert called_again(recording, modules[1:count], RATES).peak > limit


def test_what_all_blocks_are_not_enough_for_has_no_plan() -> None:
    recording = small_operations()
    assert plan_blocks(recording, spans(recording, BLOCKS), 30 * MB, RATES, FREE) is None
    assert plan_blocks(recording, [], native_peak(recording) // 2, RATES, FREE) is None


def test_an_encoder_and_a_decoder_are_called_again_together() -> None:
    recording = small_operations()
    least = called_again(recording, spans(recording, BLOCKS)[1:], RATES).peak
    plan = plan_blocks(recording, spans(recording, BLOCKS, ("Encoder", "Decoder")), least, RATES, FREE)
    assert plan is not None
    assert len(plan.modules) > BLOCKS // 2


def test_blocks_that_run_within_each_other_are_not_called_again() -> None:
    recording = small_operations()
    twice = [span for span in spans(recording, BLOCKS) if span.depth] + [
        ModuleSpan(module=99, kind="Block", depth=1, first=5, last=300)
    ]
    assert plan_blocks(recording, twice, native_peak(recording) // 2, RATES, FREE) is None


def test_many_small_tensors_are_cheaper_by_calling_blocks_where_launching_counts() -> None:
    recording = small_operations()
    least = called_again(recording, spans(recording, BLOCKS)[1:], RATES).peak
    rebuilt = make_plan(recording, least, RATES, launching=BOUND)
    called = plan_blocks(recording, spans(recording, BLOCKS), least, RATES, BOUND)
    assert called is not None
    assert called.seconds < 0.95 * rebuilt.timeline.seconds
    assert called.seconds > called_again(recording, spans(recording, BLOCKS)[1:], RATES).seconds
