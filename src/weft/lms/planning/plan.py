"""A plan: a choice for every site of a step, its cost, and when copies leave and return; as data and as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from weft.lms.planning.playback import Choice, Timeline
from weft.lms.planning.recording import Recording
from weft.text import format_seconds, format_size, plural

WORDS: dict[Choice, str] = {"keep": "keep", "recipe": "rebuild", "swap": "swap"}


@dataclass(frozen=True)
class PlanFamily:
    """The candidates of one search as a family: which sites they may rebuild."""

    depth: int = 1 << 30  # longest chain of recipes
    anchors: frozenset[int] = frozenset()  # sites that stay, so that chains begin at them
    replays: bool = True  # sites whose recipes repeat operations of the tape are among them


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The choices for steps of one shape, and the timeline that follows from them."""

    limit: int  # bytes
    recording: Recording
    choices: tuple[Choice, ...]
    timeline: Timeline
    native: Timeline  # the same step with everything kept
    keys: tuple[tuple[str, int], ...] = field(default=())  # `SavedSite.key` of each site; bytes -1 match any
    rebuilt: int = 0  # number of cheapest sites that are rebuilt, and
    family: PlanFamily = field(
        default_factory=lambda: PlanFamily()
    )  # where a search for the next plan starts
    paged: str = ""  # lines about what of the model lives on the host
    called: tuple[str, ...] = ()  # classes of the modules that are called again in the backward pass

    @cached_property
    def keeps_all(self) -> bool:
        """Whether the plan leaves everything on the device."""
        return all(choice == "keep" for choice in self.choices)

    @cached_property
    def operations(self) -> frozenset[str]:
        """The names of the operations that made the step's storages."""
        return frozenset(op for op, _ in self.keys)

    @cached_property
    def replayed(self) -> frozenset[int]:
        """The numbers of the operations that are repeated to rebuild something: a tape must see them in the step."""
        sites = zip(self.recording.sites, self.choices, strict=True)
        return frozenset(number for site, choice in sites if choice == "recipe" for number in site.replayed)

    @cached_property
    def asks_graph(self) -> bool:
        """Whether something may be rebuilt by what autograd's nodes tell: a step must note these then."""
        sites = zip(self.recording.sites, self.choices, strict=True)
        return any(
            site.recipe_s is not None and not site.replayed for site, choice in sites if choice != "keep"
        )

    @property
    def replays(self) -> bool:
        return bool(self.replayed)

    @property
    def slowdown(self) -> float:
        """The predicted time over that of the same step with everything kept."""
        return self.timeline.seconds / self.native.seconds if self.native.seconds > 0 else 1.0

    def bytes_of(self, choice: Choice) -> int:
        return sum(
            site.bytes
            for site, made in zip(self.recording.sites, self.choices, strict=True)
            if made == choice
        )

    def summary(self) -> str:
        """Return the plan in one line."""
        shares = ", ".join(f"{WORDS[choice]} {format_size(self.bytes_of(choice))}" for choice in WORDS)
        if self.called:
            shares += f", call {plural(len(self.called), 'module')} again"
        return (
            f"budget {format_size(self.limit)}: {shares}; peak {format_size(self.timeline.peak)} instead of "
            f"{format_size(self.native.peak)}, time x{self.slowdown:.3f}"
        )

    def explain(self, most: int = 40) -> str:
        """Return a line for each kind of decision, the largest first: bytes, choice, price."""
        rows: Counter[tuple[str, str, Choice]] = Counter()
        counts: Counter[tuple[str, str, Choice]] = Counter()
        prices: Counter[tuple[str, str, Choice]] = Counter()
        for site, choice in zip(self.recording.sites, self.choices, strict=True):
            row = (site.op, site.module, choice)
            rows[row] += site.bytes
            counts[row] += 1
            prices[row] += (site.recipe_s or 0.0) if choice == "recipe" else 0.0  # type: ignore[assignment]
        lines = [
            self.summary(),
            f"{'bytes':>10}  {'tensors':>7}  {'choice':<8}{'price':>10}  made by, saved in",
        ]
        for row, size in rows.most_common(most):
            op, module, choice = row
            price = (
                format_seconds(prices[row]) if choice == "recipe" else "hidden" if choice == "swap" else "-"
            )
            if choice == "swap" and self.timeline.stall_s > 0.01 * self.timeline.seconds:
                price = "exposed"
            lines.append(
                f"{format_size(size):>10}  {counts[row]:>7}  {WORDS[choice]:<8}{price:>10}  {op}, {module or '-'}"
            )
        if len(rows) > most:
            lines.append(f"... and {len(rows) - most} more kinds")
        timeline = self.timeline
        lines.append(
            f"rebuilding {format_seconds(timeline.recipe_s)}, waiting for copies {format_seconds(timeline.stall_s)}, "
            f"{format_size(timeline.moved)} each way, host memory {format_size(timeline.host_peak)}"
        )
        for kind, count in Counter(self.called).items():
            lines.append(f"called again in the backward pass: {plural(count, 'module')} {kind}")
        lines += [self.paged] if self.paged else []
        return "\n".join(lines)
