"""What of a model lives on the host, and which parameters are on the device when. Pure.

The cheapest leaves first: optimizer state travels once a step, gradients once for each pass, parameters twice. What is
paged shares a window of device memory. Who wants one that is away gets it there; those leave whose next use is
furthest, in the order in which the step before used them; and room that is left is filled with what comes next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from weft.errors import BudgetError, UsageError
from weft.lms.plan.recording import Rates
from weft.text import format_seconds, format_size, round_up_size

Paging = Literal["auto", "always", "never"]
ROOM = 0.25  # of the budget should be left for activations: the first guess
STEP = 6  # times its bytes that an optimizer may want to step a parameter: itself, gradient, state, and on the way
GRADIENTS = 3  # on the device at once: one that leaves, one that is added to, one that comes
LOOK = 64  # uses ahead


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A model, in bytes."""

    fixed: int  # buffers, and parameters that stay whatever happens
    parameters: int  # that could be paged
    gradients: int  # of all parameters
    paged_gradients: int  # of those whose gradients could be paged
    state: int  # of the optimizer; 0 where it is none of ours
    unit: int  # the most parameters that one module has
    largest: int  # the largest parameter


@dataclass(frozen=True, kw_only=True)
class Residence:
    """What is paged, and how much of it may be on the device at once."""

    sizes: Sizes
    state: bool = False
    gradients: bool = False
    parameters: bool = False
    window: int = 0  # bytes of parameters

    @property
    def kinds(self) -> tuple[bool, bool, bool]:
        return self.state, self.gradients, self.parameters

    @property
    def gradient_window(self) -> int:
        return min(self.sizes.paged_gradients, GRADIENTS * self.sizes.largest) if self.gradients else 0

    @property
    def away(self) -> int:
        """Bytes that are not on the device during a pass."""
        sizes = self.sizes
        found = sizes.state if self.state else 0
        found += sizes.paged_gradients - self.gradient_window if self.gradients else 0
        return found + (sizes.parameters - self.window if self.parameters else 0)

    @property
    def hosted(self) -> int:
        """Bytes of host memory that pages take: each has its place there, wherever it is."""
        sizes = self.sizes
        found = sizes.state if self.state else 0
        found += sizes.paged_gradients if self.gradients else 0
        return found + (sizes.parameters if self.parameters else 0)

    def explain(self, played: Played | None = None, reserve: int = 0, last: int = 0) -> str:
        """A line for each kind that is paged: bytes, and the price of parameters if it is known."""
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
            price = "" if played is None else f"; {played} a step"
            lines.append(
                f"page  {format_size(sizes.parameters):>10}  parameters, "
                f"{format_size(self.window)} on the device{price}"
            )
        return "\n".join(lines)

    def smaller(self) -> Residence | None:
        """With half the window; None if that would not hold a module."""
        half = max(self.sizes.unit, self.window // 2)
        return replace(self, window=half) if self.parameters and half < self.window else None


def decide(sizes: Sizes, limit: int, page: Paging) -> Residence:
    """What to page at a budget; BudgetError if not even a single module would fit."""
    if page not in ("auto", "always", "never"):
        raise UsageError(f"page must be 'auto', 'always' or 'never', got {page!r}; leave it out for 'auto'")
    if page == "never":
        return Residence(sizes=sizes)
    room = int((1 - ROOM) * limit)
    everything = sizes.fixed + sizes.parameters
    state = gradients = parameters = page == "always"
    if page == "auto":
        state = everything + sizes.gradients + sizes.state > room
        left = 0 if state else sizes.state
        gradients = state and everything + sizes.gradients + left > room
        few = min(sizes.paged_gradients, GRADIENTS * sizes.largest)
        parameters = gradients and everything + few > room
    found = Residence(
        sizes=sizes,
        state=state and sizes.state > 0,
        gradients=gradients and sizes.paged_gradients > 0,
        parameters=parameters and sizes.parameters > 0,
    )
    return _with_window(found, limit, room, page) if found.parameters else found


def tighter(found: Residence, limit: int, short: int) -> Residence | None:
    """With more on the host, where so many bytes are missing for activations; None if nothing is left that could go."""
    best: Residence | None = None
    while (more := _next_to_leave(best or found, limit)) is not None:
        best = more
        if best.away >= found.away + short:
            break
    return best


def _next_to_leave(found: Residence, limit: int) -> Residence | None:
    sizes = found.sizes
    if sizes.state and not found.state:
        return replace(found, state=True)
    if sizes.paged_gradients and not found.gradients:
        return replace(found, gradients=True)
    if not sizes.parameters or found.parameters:
        return found.smaller()
    try:
        return _with_window(replace(found, parameters=True), limit, int((1 - ROOM) * limit), "auto")
    except BudgetError:
        return None


def _with_window(found: Residence, limit: int, room: int, page: Paging) -> Residence:
    sizes = found.sizes
    least = sizes.fixed + max(sizes.unit + sizes.largest, STEP * sizes.largest)
    if least > limit:
        step, unit = format_size(STEP * sizes.largest), format_size(sizes.unit)
        raise BudgetError(
            f"limit must hold the largest parameter with what its step takes, {step}, the parameters of one module, "
            f"{unit}, a compiled one as a whole, and {format_size(sizes.fixed)} that stay on the device, got "
            f"{format_size(limit)}; the smallest that could work is limit='{round_up_size(least)}'"
        )
    wide = room - sizes.fixed - found.gradient_window if page == "auto" else 2 * sizes.unit
    return replace(found, window=min(sizes.parameters, max(sizes.unit, wide)))


@dataclass(frozen=True)
class Order:
    """Uses of pages in the order of a step, which comes again and again."""

    uses: tuple[int, ...]
    _places: dict[int, list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places: dict[int, list[int]] = {}
        for place, page in enumerate(self.uses):
            places.setdefault(page, []).append(place)
        object.__setattr__(self, "_places", places)

    def next_use(self, page: int, place: int) -> int:
        """The first place after this one where a page is used, counted on over the end; never, if it is not."""
        places = self._places.get(page)
        if places is None:
            return 1 << 60
        index = bisect_right(places, place)
        return places[index] if index < len(places) else places[0] + len(self.uses)


@dataclass(frozen=True)
class Moves:
    """What happens at a use, in this order."""

    leave: tuple[int, ...]
    fetch: tuple[int, ...]


def moves(
    order: Order,
    place: int,
    wanted: Sequence[int],
    here: Collection[int],
    stuck: Collection[int],
    sizes: Mapping[int, int],
    window: int,
) -> Moves:
    """What must leave and come for pages that are wanted now, and what may come early."""
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
    for distant in range(place + 1, place + 1 + min(LOOK, count)):
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
class Played:
    """What a step would cost."""

    peak: int
    moved: int  # bytes in
    stall_s: float

    def __str__(self) -> str:
        return f"{format_size(self.moved)} in, waiting {format_seconds(self.stall_s)}"


def play(order: Order, sizes: Mapping[int, int], window: int, seconds: float, rates: Rates) -> Played:
    """Play two steps, and look at the second; its compute is spread evenly over the uses."""
    here: dict[int, float] = {}  # when each copy is done
    clock = link = stall = 0.0
    peak = moved = 0
    count = len(order.uses)
    for turn in range(2 * count):
        if turn == count:
            stall, moved = 0.0, 0
        place = turn % count
        page = order.uses[place]
        found = moves(order, place, (page,), here, (), sizes, window)
        for gone in found.leave:
            del here[gone]
        for coming in found.fetch:
            link = max(link, clock) + sizes[coming] / rates.back
            here[coming] = link
            moved += sizes[coming]
        peak = max(peak, sum(sizes[each] for each in here))
        stall += max(0.0, here[page] - clock)
        clock = max(clock, here[page]) + seconds / count
    return Played(peak=peak, moved=moved, stall_s=stall)
