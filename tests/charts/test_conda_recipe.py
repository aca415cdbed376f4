"""The conda recipe, which must say what pyproject.toml says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from weft.version import __version__

ROOT = Path(__file__).resolve().parents[2]
CONDA_NAMES = {"torch": "pytorch"}  # where conda-forge has another name


def conda(requirement: str) -> str:
    """Return a requirement of a wheel in conda's words."""
    found = re.fullmatch(r"([\w-]+)(.*)", requirement)
    assert found is not None
    name, versions = found.groups()
    return f"{CONDA_NAMES.get(name, name)} {versions}"


def test_the_recipe_has_the_version_the_requirements_and_the_command_of_the_wheel() -> None:
    recipe: dict[str, Any] = yaml.safe_load((ROOT / "distributions" / "conda" / "recipe.yaml").read_text())
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = whole["project"]
    assert recipe["context"]["version"] == __version__
    python = f"python {project['requires-python']}"
    assert recipe["requirements"]["run"] == [python, *map(conda, project["dependencies"])]
    assert set(map(conda, whole["build-system"]["requires"])) <= set(recipe["requirements"]["host"])
    commands = [f"{name} = {place}" for name, place in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands
    assert (recipe["about"]["summary"], recipe["about"]["license"]) == (
        project["description"],
        project["license"],
    )
