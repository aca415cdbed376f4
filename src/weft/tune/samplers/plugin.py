"""Searches by plug-in algorithms of WMLA's shape, each suggestion made by a process of its own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from weft.text import shorten
from weft.tune.samplers.base import SearcherFailed, Suggestion
from weft.tune.space.domains import Choices, IntRange, LogRange, SpaceError
from weft.tune.study.state import SearchState, TrialRecord

HOST = Path(__file__).with_name("plugin_host.py")
TIME_LIMIT_S = 60.0  # of one suggestion, all calls before it repeated


class PluginSearcher:
    """Points of a class PluginOptimizer in a folder: `search(number_samples, last_exp_results)`.

    `parameters` describe the space in WMLA's words, as the class reads them; one with a `power` is an exponent of it.
    `options` are the other arguments of the class, all text.
    """

    def __init__(
        self, name: str, folder: Path, parameters: list[dict[str, Any]], options: dict[str, str] | None = None
    ) -> None:
        self._name, self._folder = name, folder
        self._parameters, self._options = parameters, dict(options or {})

    def suggest(self, state: SearchState, number: int) -> Suggestion | None:
        """Return the point that the plug-in answers; None if it has no further."""
        asked = {
            "name": self._name,
            "folder": str(self._folder),
            "parameters": self._parameters,
            "options": self._options,
            "seed": state.config.seed,
            "calls": calls_of(state),
        }
        points = self._run(asked)
        if not points:
            return None
        if not isinstance(points[0], dict):
            raise SearcherFailed(
                f"algorithm {self._name} must suggest mappings of names to values, got "
                f"{shorten(json.dumps(points[0]))}; return [{{'lr': 0.1}}]"
            )
        try:
            return Suggestion(state.space.check_point(self._point(points[0], state)))
        except (SpaceError, TypeError, ValueError) as error:
            raise SearcherFailed(
                f"algorithm {self._name} must suggest points of the space, got {error}"
            ) from None

    def _point(self, given: dict[str, Any], state: SearchState) -> dict[str, Any]:
        """Return a point with powers in place of exponents, and numbers of the kinds that the space has."""
        made = dict(given)
        for one in self._parameters:
            name, base = one.get("name"), one.get("power")
            if name in made and base is not None:
                made[name] = float(base) ** float(made[name])
            domain = state.space.domains.get(str(name))
            if isinstance(domain, IntRange) and name in made:
                made[name] = round(float(made[name]))
            elif isinstance(domain, LogRange) and name in made:
                ends = (domain.low, domain.high)
                near = [end for end in ends if math.isclose(end, float(made[name]), rel_tol=1e-9)]
                made[name] = (
                    near[0] if near else float(made[name])
                )  # a power may miss an end by its last digit
            elif isinstance(domain, Choices) and base is not None and name in made:
                made[name] = min(domain.values, key=lambda value: abs(float(value or 0) - made[name]))
        return made

    def _run(self, asked: dict[str, Any]) -> list[Any]:
        try:
            done = subprocess.run(
                [sys.executable, str(HOST)],
                input=json.dumps(asked),
                capture_output=True,
                text=True,
                check=False,
                timeout=TIME_LIMIT_S,
                cwd=self._folder,
            )
        except subprocess.TimeoutExpired:
            raise SearcherFailed(
                f"algorithm {self._name} must answer within {TIME_LIMIT_S:g} s, got nothing; make it quicker"
            ) from None
        except OSError as error:
            raise SearcherFailed(f"algorithm {self._name} must be installed, got {error}") from None
        if done.returncode:
            last = shorten((done.stderr.strip().splitlines() or ["nothing"])[-1])
            raise SearcherFailed(f"algorithm {self._name} must suggest a point, got {last}; mend it")
        found: list[Any] = json.loads(done.stdout)
        return found


def calls_of(state: SearchState) -> list[list[dict[str, Any]]]:
    """Return what each call of `search` is told: the trials that ended since the one before, the next call last."""
    ended = [state.trials[number] for number in state.over]
    told = [trial for trial in ended if trial.values is not None and math.isfinite(trial.last_score)]
    asked = [trial for trial in state if not trial.given]
    calls: list[list[dict[str, Any]]] = []
    given = 0
    for trial in (*asked, None):
        until = math.inf if trial is None or trial.begun_s is None else trial.begun_s
        new = given
        while new < len(told) and (trial is None or (told[new].ended_s or 0.0) <= until):
            new += 1
        calls.append([result_of(one) for one in told[given:new]])
        given = new
    return calls


def result_of(trial: TrialRecord) -> dict[str, Any]:
    """Return the result of a trial in WMLA's words."""
    assert trial.values is not None
    listed = [{"name": name, "fixedVal": value} for name, value in trial.params.items()]
    return {
        "id": trial.number,
        "score": trial.values[0],
        "metricVal": trial.values[0],
        "hyperparameters": dict(trial.params),
        "hyperParams": listed,
    }
