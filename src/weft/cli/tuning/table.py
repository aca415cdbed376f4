"""Studies and trials as text: the live table of `weft tune`, lists, and sentences."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from weft.cli.jobs.printing import duration, plain
from weft.text import format_table, plural

if TYPE_CHECKING:
    from weft.tune.results.views import StudyView, TrialView
    from weft.tune.study.state import SearchState

REDRAW_S = 0.25  # at the fastest
MOST_ROWS = 20
_ORDER = {"running": 0, "completed": 1, "paused": 2, "waiting": 3, "stopped": 4, "failed": 5}


def shown(value: Any) -> str:
    """Return a parameter or a metric in a table's cell."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else plain(str(value))


def trial_table(trials: Iterable[TrialView], metrics: Sequence[str]) -> list[str]:
    """Return the lines of a table of trials."""
    found = list(trials)
    names = list(dict.fromkeys(name for trial in found for name in trial.params))
    rows = [("trial", "state", *metrics, "step", "time", *names, "about")]
    for one in found:
        values = (shown(one.values.get(name)) for name in metrics)
        about = " ".join(one.message.split()) or (
            f"weights of {one.parent}" if one.parent is not None else ""
        )
        about = about if len(about) <= 60 else f"{about[:57]}..."
        params = (shown(one.params.get(name)) if name in one.params else "" for name in names)
        time_run = duration(one.run_s * 1000)
        rows.append((str(one.number), one.state, *values, str(one.step), time_run, *params, plain(about)))
    return format_table(rows, left=("state", "about", *names))


def study_table(studies: Iterable[StudyView]) -> list[str]:
    """Return the lines of a table of studies."""
    rows = [("id", "name", "state", "trials", "running", "best", "metric", "search", "schedule", "about")]
    for one in studies:
        metric = next(iter(one.metrics), "")
        best = shown(one.best.values.get(metric)) if one.best is not None else "-"
        about = one.message if len(one.message) <= 60 else f"{one.message[:57]}..."
        rows.append(
            ("-" if one.id is None else str(one.id), plain(one.name), one.state, str(one.trials),
             str(one.counts.get("running", 0)), best, f"{one.metrics[metric]} {plain(metric)}" if metric else "",
             plain(one.search), plain(one.schedule), plain(about))
        )  # fmt: skip
    return format_table(rows, left=("name", "state", "metric", "search", "schedule", "about"))


def headline(view: StudyView) -> str:
    """Return one sentence about a study."""
    counts = ", ".join(f"{count} {state}" for state, count in view.counts.items())
    metric = next(iter(view.metrics), "")
    best = ""
    if view.best is not None:
        params = " ".join(f"{name}={shown(value)}" for name, value in view.best.params.items())
        best = f"; best {metric} {shown(view.best.values.get(metric))} in trial {view.best.number}: {params}"
    text = f" ({' '.join(view.message.split())})" if view.message else ""
    trials = plural(view.trials, "trial") + (f" ({counts})" if counts else "")
    return plain(f"study {view.name} is {view.state}{text}: {trials}{best}")


class LiveTable:
    """The table of a running study: drawn anew at a terminal, a line for each trial's end elsewhere."""

    def __init__(self, state: SearchState, *, quiet: bool = False) -> None:
        self._state, self._quiet = state, quiet
        self._terminal = sys.stderr.isatty() and not quiet
        self._drawn_s, self._lines = 0.0, 0
        self._told = {number for number in state.over if not state.trials[number].cut}

    def __call__(self) -> None:
        """Show what has changed; many changes at once are shown together."""
        if self._quiet:
            return
        if not self._terminal:
            self._tell()
        elif time.monotonic() - self._drawn_s >= REDRAW_S:
            self._draw()

    def close(self) -> None:
        """Show the last state."""
        if self._terminal:
            self._draw()
        elif not self._quiet:
            self._tell()

    def _tell(self) -> None:
        from weft.tune.results.views import trial_view

        state = self._state
        for number in self._untold():
            view = trial_view(state, state.trials[number])
            values = " ".join(f"{name}={shown(value)}" for name, value in view.values.items())
            params = " ".join(f"{name}={shown(value)}" for name, value in view.params.items())
            about = f": {view.message}" if view.message else ""
            click.echo(
                plain(f"weft: trial {number} is {view.state} with {values} at {params}{about}"), err=True
            )

    def _untold(self) -> list[int]:
        """Return the trials that have ended since, but those of earlier studies; they are told from now on."""
        over, found = self._state.over, []
        if len(over) < len(self._told):
            self._told &= set(over)  # others go on, and will end again
        for number in reversed(over):
            if number in self._told:
                break
            found.append(number)
        self._told |= set(found)
        return [number for number in reversed(found) if not self._state.trials[number].source]

    def _draw(self) -> None:
        from weft.tune.results.views import study_view, trial_view

        state = self._state
        width, height = shutil.get_terminal_size()
        chosen = sorted(state, key=lambda t: (_ORDER[t.state], t.last_score, t.number))
        views = [trial_view(state, trial) for trial in chosen[: min(MOST_ROWS, max(3, height - 4))]]
        lines = [headline(study_view(state)), *trial_table(views, state.goals)]
        up = f"\x1b[{self._lines}A" if self._lines else ""
        click.echo(up + "\n".join(f"\x1b[K{line[: width - 1]}" for line in lines) + "\x1b[J", err=True)
        self._lines, self._drawn_s = len(lines), time.monotonic()
