"""Blocks of a step: modules of one kind whose forward pass can be called again, as checkpointing does by hand. Pure.

Where a device waits for its launching thread, repeating operations one by one is dear: a tape has to see every
operation of the forward pass, and each tensor is made again by itself. A module that is called again costs what
checkpointing it costs, and nothing has to be seen. Which modules run, and what is saved while they do, is known from
the recorded step. This is an estimate, which decides whether it is worth trying: a step in which they are called again
is recorded, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from weft.lms.planning.launching import LaunchCost
from weft.lms.planning.playback import Choice, Timeline, play
from weft.lms.planning.recording import Rates, Recording, SavedSite
from weft.lms.tuning import DEFAULTS, LmsTuning


@dataclass(frozen=True, kw_only=True)
class ModuleSpan:
    """The part of a recorded step in which a module ran."""

    module: int  # the number of the module
    kind: str  # its class,
    depth: int  # and the number of modules that it is called within
    first: int  # the first and
    last: int  # the last event at which something was saved meanwhile
    began: int = 0  # operations that were done before,
    operations: int = 0  # and meanwhile
    given: frozenset[int] = frozenset()  # sites that it was given as arguments
    # Numbers and bytes of arguments that nobody else holds until the step ends and that autograd does not save.
    unsaved: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class BlockPlan:
    """Modules to call again instead of keeping what they save, and the seconds of a step that does."""

    modules: frozenset[int]
    seconds: float
    peak: int


def plan_blocks(
    recording: Recording,
    spans: Sequence[ModuleSpan],
    limit: int,
    rates: Rates,
    launching: LaunchCost,
    tuning: LmsTuning = DEFAULTS,
) -> BlockPlan | None:
    """Return the fastest way to stay under `limit` bytes by calling modules again, the first ones of a group in the
    step: those are wanted last, when all else is gone. None where no group of modules is nearly enough.
    """
    groups = _groups(recording, spans, tuning)
    found = (_fewest(recording, group, limit, rates, launching, tuning) for group in groups)
    return min((plan for plan in found if plan is not None), key=lambda plan: plan.seconds, default=None)


def is_worth_trying(
    found: BlockPlan, planned_s: float, measured_s: float, tuning: LmsTuning = DEFAULTS
) -> bool:
    """Return whether calling modules again may be faster than a plan of `planned_s`, whose steps take `measured_s`.

    Recorded times have some of the launching in them already. What two plans add to a step differs by less than that.
    """
    hoped = min(found.seconds, measured_s + found.seconds - planned_s)
    return hoped < (1 - tuning.block_gain) * measured_s


def _groups(recording: Recording, spans: Iterable[ModuleSpan], tuning: LmsTuning) -> list[list[ModuleSpan]]:
    """Return groups of modules that run one after the other and save some of what the step saves: those of one class
    that are called from one depth, and those of all such classes, as of an encoder and a decoder.
    """
    whole = sum(site.bytes for site in recording.sites)
    by_depth: dict[int, dict[str, list[ModuleSpan]]] = defaultdict(lambda: defaultdict(list))
    for span in sorted(spans, key=lambda span: span.first):
        by_depth[span.depth][span.kind].append(span)
    found = []
    for kinds in by_depth.values():
        least = tuning.block_kind_share * whole
        alike = [group for group in kinds.values() if _bytes(recording, group) >= least]
        together = sorted(chain.from_iterable(alike), key=lambda span: span.first)
        for group in (*alike, together) if len(alike) > 1 else alike:
            apart = all(one.last < two.first for one, two in pairwise(group))
            if apart and _bytes(recording, group) >= tuning.block_share * whole:
                found.append(group)
    return found


def _bytes(recording: Recording, group: Iterable[ModuleSpan]) -> int:
    """Return the bytes that modules save besides their arguments."""
    return sum(recording.sites[index].bytes for span in group for index in _inside(recording, span))


def _inside(recording: Recording, span: ModuleSpan) -> list[int]:
    """Return the sites that a module saves besides its arguments."""
    packs = recording.packs[span.first : span.last + 1]
    return [index for saved in packs for index in saved if index not in span.given]


def _fewest(
    recording: Recording,
    group: Sequence[ModuleSpan],
    limit: int,
    rates: Rates,
    launching: LaunchCost,
    tuning: LmsTuning,
) -> BlockPlan | None:
    """Return the plan that calls the fewest modules of a group again; None if all of them are not nearly enough."""
    low, high = 1, len(group)
    enough = (1 - tuning.block_margin) * limit
    while low < high:
        middle = (low + high) // 2
        if called_again(recording, group[:middle], rates, tuning).peak <= enough:
            high = middle
        else:
            low = middle + 1
    timeline = called_again(recording, group[:low], rates, tuning)
    if (
        timeline.peak > (1 + tuning.block_excess) * limit
    ):  # more than other ways could still free at little cost
        return None
    operations = sum(span.operations for span in group[:low])
    # Where launching holds the device up, the recorded time of a module is that of launching it.
    added_s = max(0.0, launching.of_called(operations, low) - timeline.recipe_s)
    if timeline.peak > limit:  # what is missing may need the tape
        added_s += launching.of_taping(recording)
    return BlockPlan(
        modules=frozenset(span.module for span in group[:low]),
        seconds=timeline.seconds + added_s,
        peak=timeline.peak,
    )


def called_again(
    recording: Recording, spans: Sequence[ModuleSpan], rates: Rates, tuning: LmsTuning = DEFAULTS
) -> Timeline:
    """Return the course of a step in which modules are called again, and all else is kept.

    A module's arguments are held until it is called again: those that autograd saves anyway are there for that, and
    others are sites of their own then.
    """
    sites = list(recording.sites)
    choices: list[Choice] = ["keep"] * len(sites)
    given = frozenset[int]().union(*(span.given for span in spans))
    unsaved: dict[int, SavedSite] = {}
    for span in spans:
        inside = [index for index in _inside(recording, span) if sites[index].uses and index not in given]
        if not inside:
            continue
        wanted = min(sites[index].uses[0] for index in inside)  # all of them are there from then on
        took = sum(recording.seconds[span.first : span.last + 1])
        for place, index in enumerate(inside):
            cost = 0.0 if place else took
            again = replace(sites[index], recipe_s=cost, recipe_bytes=0, needs=(), replayed=())
            sites[index], choices[index] = _used_at(again, wanted), "recipe"
        for index in span.given:
            sites[index] = _used_at(sites[index], wanted)
        for number, size in span.unsaved:
            argument = SavedSite(op="argument", module="", bytes=size, pack=span.first)
            unsaved[number] = _used_at(unsaved.get(number, argument), wanted)
    sites += unsaved.values()
    choices += ["keep"] * len(unsaved)
    return play(replace(recording, sites=tuple(sites)), choices, rates, 1 << 62, tuning)


def _used_at(site: SavedSite, event: int) -> SavedSite:
    """Return a site that is wanted at an event, too."""
    return replace(site, uses=tuple(sorted({event, *site.uses})))
