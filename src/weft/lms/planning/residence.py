"""Residence: what of a model lives on the host, and which paged parameters are on the device when. Pure.

The cheapest kind leaves first: optimizer state travels once a step, gradients once for each pass, parameters twice.
Paged parameters share a window of device memory. One that is used while it is away comes to the window; those leave
whose next use is furthest, in the order in which the step before used them; and room that is left in the window is
filled with the parameters that are used next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from weft.errors import BudgetError, UsageError
from weft.lms.planning.recording import NEVER, Rates
from weft.lms.tuning import DEFAULTS, LmsTuning
from weft.text import format_seconds, format_size, round_up_size

Paging = Literal["auto", "always", "never"]


@dataclass(frozen=True, kw_only=True)
class ModelBytes:
    """The bytes of a model's parts."""

    fixed: int  # buffers, and parameters that stay whatever happens
    parameters: int  # that could be paged
    gradients: int  # of all parameters
    paged_gradients: int  # of those whose gradients could be paged
    state: int  # of the optimizer; 0 if there is none to page
    unit: int  # the most parameters that one module has
    largest: int  # the largest parameter


@dataclass(frozen=True, kw_only=True)
class Residence:
    """The kinds of tensors of a model that are paged, and how much of them may be on the device at once."""

    sizes: ModelBytes
    state: bool = False
    gradients: bool = False
    parameters: bool = False
    window: int = 0  # bytes of paged parameters on the device
    tuning: LmsTuning = DEFAULTS

    @property
    def kinds(self) -> tuple[bool, bool, bool]:
        """Whether state, gradients and parameters are paged."""
        return self.state, self.gradients, self.parameters

    @property
    def gradient_window(self) -> int:
        """Bytes of paged gradients on the device at once."""
        few = self.tuning.gradients_on_device * self.sizes.largest
        return min(self.sizes.paged_gradients, few) if self.gradients else 0

    @property
    def away(self) -> int:
        """Bytes that are not on the device during a pass."""
        sizes = self.sizes
        found = sizes.state if self.state else 0
        found += sizes.paged_gradients - self.gradient_window if self.gradients else 0
        return found + (sizes.parameters - self.window if self.parameters else 0)

    @property
    def hosted(self) -> int:
        """Bytes of host memory that pages take: each has its place there, even while it is on the device."""
        sizes = self.sizes
        found = sizes.state if self.state else 0
        found += sizes.paged_gradients if self.gradients else 0
        return found + (sizes.parameters if self.parameters else 0)

    def explain(self, played: PagingCost | None = None, reserve: int = 0, last: int = 0) -> str:
        """Return a line for each kind that is paged: bytes, and the cost of parameters if it is known."""
        sizes = self.sizes
        lines = []
        if self.state:
            left = [f"{format_size(reserve)} to what stays"] if reserve else []
            left += [f"{format_size(last)} in the last pass before the step"] if last > reserve else []
            stays = f"; activations leave {', '.join(left)}" if left else ""
            lines.append(
                f"page  {format_size(sizes.state):>10}  optimizer state, in and out once a step{stays}"
            )
        if self.gradients:
            lines.append(
                f"page  {format_size(sizes.paged_gradients):>10}  gradients, out as they are made and in for the step; "
                f"{format_size(self.gradient_window)} on the device"
            )
        if self.parameters:
            cost = "" if played is None else f"; {played} a step"
            lines.append(
                f"page  {format_size(sizes.parameters):>10}  parameters, {format_size(self.window)} on the device{cost}"
            )
        return "\n".join(lines)

    def smaller(self) -> Residence | None:
        """Return the same residence with half the window; None if that would not hold a module."""
        half = max(self.sizes.unit, self.window // 2)
        return replace(self, window=half) if self.parameters and half < self.window else None


def decide(sizes: ModelBytes, limit: int, page: Paging, tuning: LmsTuning = DEFAULTS) -> Residence:
    """Return what to page at a budget; BudgetError if not even a single module would fit."""
    if page not in ("auto", "always", "never"):
        raise UsageError(f"page must be 'auto', 'always' or 'never', got {page!r}; leave it out for 'auto'")
    if page == "never":
        return Residence(sizes=sizes, tuning=tuning)
    room = int((1 - tuning.activation_share) * limit)
    everything = sizes.fixed + sizes.parameters
    state = gradients = parameters = page == "always"
    if page == "auto":
        state = everything + sizes.gradients + sizes.state > room
        left = 0 if state else sizes.state
        gradients = state and everything + sizes.gradients + left > room
        few = min(sizes.paged_gradients, tuning.gradients_on_device * sizes.largest)
        parameters = gradients and everything + few > room
    found = Residence(
        sizes=sizes,
        state=state and sizes.state > 0,
        gradients=gradients and sizes.paged_gradients > 0,
        parameters=parameters and sizes.parameters > 0,
        tuning=tuning,
    )
    return _with_window(found, limit, room, page) if found.parameters else found


def tighter(found: Residence, limit: int, short: int) -> Residence | None:
    """Return a residence with at least `short` bytes more on the host, as far as possible; None if nothing is left to
    page.
    """
    best: Residence | None = None
    while (more := _next_to_leave(best or found, limit)) is not None:
        best = more
        if best.away >= found.away + short:
            break
    return best


def _next_to_leave(found: Residence, limit: int) -> Residence | None:
    """Return a residence with one more kind paged, or with a smaller window."""
    sizes = found.sizes
    if sizes.state and not found.state:
        return replace(found, state=True)
    if sizes.paged_gradients and not found.gradients:
        return replace(found, gradients=True)
    if not sizes.parameters or found.parameters:
        return found.smaller()
    room = int((1 - found.tuning.activation_share) * limit)
    try:
        return _with_window(replace(found, parameters=True), limit, room, "auto")
    except BudgetError:
        return None


def _with_window(found: Residence, limit: int, room: int, page: Paging) -> Residence:
    """Return a residence with a window for its parameters; BudgetError if the limit does not hold the smallest."""
    sizes = found.sizes
    step_bytes = found.tuning.step_bytes_factor * sizes.largest
    least = sizes.fixed + max(sizes.unit + sizes.largest, step_bytes)
    if least > limit:
        step, unit = format_size(step_bytes), format_size(sizes.unit)
        raise BudgetError(
            f"limit must hold the largest parameter with what its step takes, {step}, the parameters of one module, "
            f"{unit}, a compiled one as a whole, and {format_size(sizes.fixed)} that stay on the device, got "
            f"{format_size(limit)}; the smallest that could work is limit='{round_up_size(least)}'"
        )
    wide = room - sizes.fixed - found.gradient_window if page == "auto" else 2 * sizes.unit
    return replace(found, window=min(sizes.parameters, max(sizes.unit, wide)))


@dataclass(frozen=True)
class UseOrder:
    """The order in which a step uses pages; the next step uses them in the same order."""

    uses: tuple[int, ...]
    _places: dict[int, list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places: dict[int, list[int]] = {}
        for place, page in enumerate(self.uses):
            places.setdefault(page, []).append(place)
        object.__setattr__(self, "_places", places)

    def next_use(self, page: int, place: int) -> int:
        """Return the first place after this one where a page is used, counting on over the end; NEVER if it is not."""
        places = self._places.get(page)
        if places is None:
            return NEVER
        index = bisect_right(places, place)
        return places[index] if index < len(places) else places[0] + len(self.uses)


@dataclass(frozen=True)
class Moves:
    """The pages that leave and then those that are fetched, at one use."""

    leave: tuple[int, ...]
    fetch: tuple[int, ...]


def moves(
    order: UseOrder,
    place: int,
    wanted: Sequence[int],
    here: Collection[int],
    stuck: Collection[int],
    sizes: Mapping[int, int],
    window: int,
    tuning: LmsTuning = DEFAULTS,
) -> Moves:
    """Return the pages that must leave and come for those wanted now, and the pages that may come early."""
    fetch = [page for page in dict.fromkeys(wanted) if page not in here]
    used = sum(sizes[page] for page in here) + sum(sizes[page] for page in fetch)
    ways = {page: order.next_use(page, place) for page in here if page not in stuck and page not in wanted}
    furthest = sorted(ways, key=lambda page: (ways[page], page))
    leave: list[int] = []
    while furthest and used > window:
        leave.append(furthest.pop())
        used -= sizes[leave[-1]]
    there = {*here, *fetch} - set(leave)
    count = len(order.uses)
    for distant in range(place + 1, place + 1 + min(tuning.prefetch_uses, count)):
        page = order.uses[distant % count]
        if page in there:
            continue
        going: list[int] = []
        freed = 0
        while used - freed + sizes[page] > window and furthest and ways[furthest[-1]] > distant:
            going.append(furthest.pop())
            freed += sizes[going[-1]]
        if used - freed + sizes[page] > window:
            furthest.extend(reversed(going))
            break
        leave += going
        fetch.append(page)
        there = (there | {page}) - set(going)
        used += sizes[page] - freed
    return Moves(tuple(leave), tuple(fetch))


@dataclass(frozen=True, kw_only=True)
class PagingCost:
    """The cost of paged parameters in one step."""

    peak: int  # bytes on the device
    moved: int  # bytes in
    stall_s: float  # waited for copies

    def __str__(self) -> str:
        return f"{format_size(self.moved)} in, waiting {format_seconds(self.stall_s)}"


def play(
    order: UseOrder,
    sizes: Mapping[int, int],
    window: int,
    seconds: float,
    rates: Rates,
    tuning: LmsTuning = DEFAULTS,
) -> PagingCost:
    """Play two steps, and return the cost of the second; its compute is spread evenly over the uses."""
    here: dict[int, float] = {}  # when each copy is done
    clock = link = stall = 0.0
    peak = moved = 0
    count = len(order.uses)
    for turn in range(2 * count):
        if turn == count:
            stall, moved = 0.0, 0
        place = turn % count
        page = order.uses[place]
        found = moves(order, place, (page,), here, (), sizes, window, tuning)
        for gone in found.leave:
            del here[gone]
        for coming in found.fetch:
            link = max(link, clock) + sizes[coming] / rates.back
            here[coming] = link
            moved += sizes[coming]
        peak = max(peak, sum(sizes[each] for each in here))
        stall += max(0.0, here[page] - clock)
        clock = max(clock, here[page]) + seconds / count
    return PagingCost(peak=peak, moved=moved, stall_s=stall)
