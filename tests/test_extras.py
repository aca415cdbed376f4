"""Each extra brings what its commands import: nothing of it is there by the luck of another one."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
# What the commands of an extra import when they are called.
STARTS = {
    "": ("weft.cli.training.run", "weft.elastic.launcher.underlying", "weft.launch.run"),
    "auto": ("weft.auto.running", "weft.auto.results"),
    "data": ("weft.learn.tables.convert",),
    "export": ("weft.serve.export.api",),
    "jobs": ("weft.jobs.api.process", "weft.jobs.client.client"),
    "kubernetes": ("weft.launch.engines.kubernetes.run", "weft.launch.engines.kubernetes.trial"),
    "learn": ("weft.learn.fitting_job",),
    "serve": ("weft.serve.server.process",),
    "tune": ("weft.tune.results.insights",),
    "vision": ("weft.vision.library.library", "weft.vision.training.run"),
}
# Refuses packages that are not among those named.
PROGRAM = """
import importlib, sys
absent = set(sys.argv[1].split(","))
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
for module in sys.argv[2:]:
    importlib.import_module(module)
"""


def requirements_of(extra: str) -> list[Requirement]:
    """Return what an extra installs, those that it takes in included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = []
    for text in project["optional-dependencies"][extra] if extra else project["dependencies"]:
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) == "weft":
            for other in requirement.extras:
                found += requirements_of(other)
        else:
            found.append(requirement)
    return found


def installed_with(extra: str) -> set[str]:
    """Return the distributions that there are with an extra and nothing else, as far as they are here."""
    wanted, found = [*requirements_of(""), *(requirements_of(extra) if extra else ())], set[str]()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        given = {"extra": next(iter(requirement.extras), "")}
        if name in found or (requirement.marker is not None and not requirement.marker.evaluate(given)):
            continue
        found.add(name)
        try:
            more = map(Requirement, requires(name) or ())
        except PackageNotFoundError:
            continue
        for each in more:
            marks = [{"extra": one} for one in ("", *requirement.extras)]
            if each.marker is None or any(map(each.marker.evaluate, marks)):
                each.marker = None
                wanted.append(each)
    return found


@pytest.mark.parametrize("extra", STARTS, ids=lambda extra: extra or "none")
def test_an_extra_has_what_its_commands_import(extra: str) -> None:
    there = installed_with(extra)
    absent = [
        module
        for module, distributions in packages_distributions().items()
        if there.isdisjoint(map(canonicalize_name, distributions)) and module != "weft"
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(absent), *STARTS[extra]],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
