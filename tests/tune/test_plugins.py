"""Plug-in algorithms of WMLA's shape: each suggestion by a process of its own, and studies that fail with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.tune.runners.simulated import SimulatedStudy
from weft.tune.samplers.plugin import PluginSearcher, calls_of
from weft.tune.study.config import convert_config
from weft.tune.study.core import StudyCore

COUNTING = """
import random
from plugins.core.logger import logger
from plugins.core.base_plugin_opt import BasePluginOptimizer

class PluginOptimizer(BasePluginOptimizer):
    def __init__(self, name, hyper_parameters, **kwargs):
        super().__init__(name, hyper_parameters, **kwargs)
        self.calls, self.seen, self.shift = 0, [], float(kwargs["shift"])

    def search(self, number_samples, last_exp_results):
        print("this is no answer")
        logger.info("asked")
        self.seen += last_exp_results or []
        self.calls += 1
        if self.calls > 3:
            return []
        assert [one["id"] for one in self.seen] == list(range(self.calls - 1))
        low, high = self.hyper_parameters[0]["minDbVal"], self.hyper_parameters[0]["maxDbVal"]
        return [{"lr": low + (high - low) * random.random() * 0 + self.calls - 1 + self.shift, "n": self.calls}]
"""
LISTS = """
class PluginOptimizer:
    def __init__(self, name, hyper_parameters):
        pass

    def search(self, number_samples, last_exp_results):
        return [[{"name": "lr", "fixedVal": 0.1}]]
"""
PARAMETERS = [
    {"name": "lr", "type": "Range", "dataType": "DOUBLE", "minDbVal": -3.0, "maxDbVal": 0.0, "power": 10},
    {"name": "n", "type": "Range", "dataType": "INT", "minIntVal": 1, "maxIntVal": 9},
]


def begun(folder: Path, code: str, **options: str) -> StudyCore:
    (folder / "optimizer.py").write_text(code)
    config = convert_config(
        {"space": {"lr": "log:1e-3:1", "n": "int:1:9"}, "minimize": "loss", "budget": {"trials": 9},
         "resource": {"max": 1}}
    )  # fmt: skip
    return StudyCore.begin(config, searcher=PluginSearcher("counting", folder, PARAMETERS, options))


def test_a_plugin_suggests_until_it_has_no_further_point(tmp_path: Path) -> None:
    core = begun(tmp_path, COUNTING, shift="0")
    SimulatedStudy(core, lambda params, step: params["lr"], workers=1).run()
    trials = list(core.state)
    assert [t.params["n"] for t in trials] == [1, 2, 3]
    assert [t.params["lr"] for t in trials] == pytest.approx([1e-3, 1e-2, 1e-1])
    assert core.state.state == "completed"
    assert [[one["id"] for one in call] for call in calls_of(core.state)] == [[], [0], [1], [2]]


@pytest.mark.parametrize(
    ("code", "options", "reason"),
    [
        (COUNTING, {"shift": "9"}, "must suggest points of the space, got"),
        (COUNTING, {"shift": "x"}, 'must suggest a point, got "ValueError: could not'),
        ("x = 1", {}, "must have a class PluginOptimizer"),
        (LISTS, {}, "must suggest mappings of names to values, got"),
        ("import no_such_package", {}, "ModuleNotFoundError"),
    ],
)
def test_a_plugin_that_fails_ends_its_study_with_a_sentence(
    tmp_path: Path, code: str, options: dict[str, Any], reason: str
) -> None:
    core = begun(tmp_path, code, **options)
    assert core.actions(1) == []
    assert core.state.state == "failed"
    assert reason in core.state.message
    assert not core.state.trials


def test_a_searcher_of_an_entry_point_that_raises_ends_its_study_too() -> None:
    class Broken:
        def suggest(self, state: Any, number: int) -> None:
            raise ZeroDivisionError("by zero")

    config = convert_config({"space": {"x": "float:0:1"}, "minimize": "loss", "budget": {"trials": 2}})
    core = StudyCore.begin(config, searcher=Broken())
    assert core.actions(1) == []
    assert (
        core.state.message
        == "searcher Broken must suggest a point, got 'ZeroDivisionError: by zero'; mend it"
    )
